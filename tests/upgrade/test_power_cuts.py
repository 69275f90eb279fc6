"""The power goes at a step of an upgrade: the log is there in the old format or in the new one, whole, and the next
upgrade finishes it or begins again. An upgrade that has returned is on the disk."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.power_cuts import Image
from tests.crash.rows import Skip
from tests.upgrade.test_format1 import LOGS
from tests.upgrade.test_kills import IN_FILES, judge
from tests.upgrade.victims import Victims
from tests.upgrade.writing import CATALOG, STORES

from everlog.log.log import Log
from everlog.upgrading import upgrade
from everlog.wiring import open_store

EVERYDAY, LONG = 3, 100


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    try:
        with Image() as found:
            yield found
    except Skip as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    with closing(Victims()) as found:
        yield found


@pytest.mark.parametrize("name", IN_FILES)
def test_a_power_cut_at_a_step_loses_nothing(
    name: str, image: Image, victims: Victims, request: pytest.FixtureRequest
) -> None:
    url = STORES[name.partition("_")[0]]
    steps = victims.upgrade(url, fresh(name, image.place / "counted"))
    cuts = LONG if request.config.getoption("--full") else EVERYDAY
    for number in range(cuts):
        step = 1 + number * (steps - 1) // (cuts - 1)
        base = fresh(name, image.place / "log")
        assert victims.upgrade(url, base, kill_at=step, cut=image.place) == -1
        image.restart()
        judge(name, base, f"power cut at step {step} of {steps}")


@pytest.mark.parametrize("name", IN_FILES)
def test_an_upgrade_that_has_returned_survives_a_power_cut(name: str, image: Image, victims: Victims) -> None:
    url = STORES[name.partition("_")[0]]
    base = fresh(name, image.place / "done")
    assert victims.upgrade(url, base) > 0
    image.cut()
    image.restart()
    open_store(url, base=base, create=False).close()
    judge(name, base, "power cut after the upgrade")


def fresh(name: str, place: Path) -> Path:
    """Put a log in the old format on the disk."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(LOGS / name, place)
    subprocess.run(["sync", "-f", str(place)], check=True)
    return place


@pytest.mark.parametrize("name", ["segments", "jsonl"])
def test_a_plan_that_a_power_cut_brings_back_moves_no_new_file(name: str, tmp_path: Path) -> None:
    """The removal of the draft is not flushed; what was carried out already must not be carried out again."""
    base = fresh(name, tmp_path / "log")
    url = STORES[name]
    upgrade(url, base=base)
    work = base / "log" / ("local" if name == "jsonl" else "")
    (work / "views.db").write_bytes(b"made after the upgrade")
    (work / "upgrading").mkdir()
    (work / "upgrading" / "swap.json").write_bytes(b"{}\n")
    with closing(Log(open_store(url, base=base, create=False), CATALOG)) as log:
        before = [str(recorded.event.id) for recorded in log.read()]
    upgrade(url, base=base)
    assert (work / "views.db").read_bytes() == b"made after the upgrade"
    assert not (work / "upgrading").exists()
    with closing(Log(open_store(url, base=base, create=False), CATALOG)) as log:
        assert [str(recorded.event.id) for recorded in log.read()] == before
