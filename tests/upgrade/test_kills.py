"""An upgrade that is killed at any step loses nothing: the next one finishes it or begins again, and reports it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.upgrade.test_format1 import LOGS, content, expected, opened
from tests.upgrade.test_upgrade import known, plain, without_chain
from tests.upgrade.victims import Victims
from tests.upgrade.writing import CATALOG, STORES

from everlog.errors import OlderFormat
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.transfer.upgrade.format1.jsonl import JsonlLog
from everlog.transfer.upgrade.format1.model import OldLog
from everlog.transfer.upgrade.format1.segments import SegmentsLog
from everlog.transfer.upgrade.format1.sqlite import SqliteLog
from everlog.upgrading import upgrade
from everlog.wiring import open_store

EVERYDAY, LONG = 8, 100
IN_FILES = ("sqlite", "segments", "jsonl", "jsonl_merged")


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    with closing(Victims()) as found:
        yield found


def fresh(name: str, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(LOGS / name, place)
    return place


def kept(name: str, base: Path) -> OldLog:
    """Return the frozen reader of the files that an upgrade has kept."""
    match name.partition("_")[0]:
        case "sqlite":
            return SqliteLog(base / "log.db.format1")
        case "segments":
            return SegmentsLog(base / "log" / "format1", DiskFiles())
        case _:
            return JsonlLog(base / "log" / "local" / "format1", DiskFiles())


def files_of(base: Path) -> dict[str, bytes]:
    """Return the files of a log, without what an upgrade makes beside them, and the index: its journal may change."""
    found = {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}
    beside = ("upgrading", "lock", "/index.db")
    return {name: data for name, data in found.items() if not any(part in name for part in beside)}


def has_draft(base: Path) -> bool:
    return any("upgrading" in path.name for path in base.rglob("*"))


def judge(name: str, base: Path, when: str) -> None:
    """Look at a log whose upgrade was killed, and upgrade it."""
    url = STORES[name.partition("_")[0]]
    second = base / "log.db.format1"
    was_begun = has_draft(base) or (second.exists() and second.samefile(base / "log.db"))
    decided = any(base.rglob("swap.json")) or second.exists()
    try:
        open_store(url, base=base, create=False).close()
        swapped = True
    except OlderFormat:
        swapped = False
    if not decided and not swapped:
        with closing(opened(name, base)) as log:
            assert content(log) == expected(name), when
        if not name.startswith("sqlite"):
            assert files_of(base) == files_of(LOGS / name), when
    done = upgrade(url, base=base)
    assert bool(done.earlier) == was_begun, when
    assert done.done == (not swapped or done.earlier == "finished"), when
    assert not has_draft(base), when
    before = known(name)
    with closing(open_store(url, base=base, create=False)) as store:
        assert plain(store) == {
            **{key: value for key, value in before.items() if key != "digest"},
            "slots": [without_chain(slot) for _, slot in before["slots"]],
        }, when
        verified = Log(store, CATALOG).verify()
        assert verified.problems == (), when
        assert done.report is not None
        assert (done.report.digest, done.report.old_digest) == (verified.digest, before["digest"]), when
    with closing(kept(name, base)) as log:
        assert content(log) == expected(name), when


@pytest.mark.parametrize("name", IN_FILES)
def test_a_kill_at_a_step_loses_nothing(
    name: str, tmp_path: Path, victims: Victims, request: pytest.FixtureRequest
) -> None:
    url = STORES[name.partition("_")[0]]
    steps = victims.upgrade(url, fresh(name, tmp_path / "whole"))
    assert steps > EVERYDAY
    kills = LONG if request.config.getoption("--full") else EVERYDAY
    for number in range(kills):
        step = 1 + number * (steps - 1) // (kills - 1)
        base = fresh(name, tmp_path / "log")
        assert victims.upgrade(url, base, kill_at=step) == -1
        when = f"kill at step {step} of {steps}"
        if number % 2:  # the recovery is killed, too
            again = 1 + step % 7
            if victims.upgrade(url, base, kill_at=again) == -1:
                when += f", and at step {again} of the next one"
        judge(name, base, when)
