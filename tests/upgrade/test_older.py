"""What remains of format 1 after an upgrade, and what every command says about a log that was not upgraded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.upgrade.test_kills import files_of, fresh
from tests.upgrade.writing import CATALOG, STORES

from everlog.core.event import Purged
from everlog.errors import OlderFormat
from everlog.log.log import Log
from everlog.stores.contract import Store
from everlog.stores.formats import UPGRADED
from everlog.stores.memory import MemoryStore
from everlog.stores.small_state import NOTES
from everlog.transfer.copy import copy_log
from everlog.transfer.survey import slots_of
from everlog.upgrading import upgrade
from everlog.wiring import copy_target, open_store

IN_FILES = ("sqlite", "segments", "jsonl")


def upgraded(name: str, base: Path) -> Store:
    upgrade(STORES[name], base=fresh(name, base))
    return open_store(STORES[name], base=base, create=False)


def test_what_a_purge_left_in_format_1_is_accepted_up_to_the_head_of_the_upgrade(tmp_path: Path) -> None:
    with closing(upgraded("sqlite", tmp_path / "log")) as store:
        slots = list(slots_of(store, store.purges()))
        rows = [row for row in store.small_state.every_row() if row.space == NOTES]
        identity = store.identity
    last = max(slot.position for slot in slots if isinstance(slot, Purged))
    for head, problems in ((last, 0), (last - 1, 1), (0, 8)):
        other = MemoryStore(identity=identity)
        with other.open_write() as writer:
            writer.copy_in(slots)
            for row in rows:
                value = row.value
                if row.key == UPGRADED:
                    value = json.dumps({**json.loads(value), "head": head}).encode()
                writer.put(NOTES, {row.key: value}, expires_us=row.expires_us)
        found = Log(other, CATALOG).verify()
        listed = [problem.code for problem in found.problems for _ in range(problem.position, problem.last + 1)]
        assert listed == ["purge_disagrees"] * problems, found.problems


def test_a_format_that_never_was_is_reported(tmp_path: Path) -> None:
    with closing(upgraded("sqlite", tmp_path / "log")) as store:
        slots = [
            replace(slot, hash_format=3) if isinstance(slot, Purged) else slot
            for slot in slots_of(store, store.purges())
        ]
    other = MemoryStore(identity=store.identity)
    with other.open_write() as writer:
        writer.copy_in(slots)
    assert {problem.code for problem in Log(other, CATALOG).verify().problems} == {"purge_disagrees"}


@pytest.mark.parametrize("name", IN_FILES)
def test_a_copy_of_an_upgraded_log_is_verified(name: str, tmp_path: Path) -> None:
    upgraded(name, tmp_path / "log").close()
    if name == "jsonl":  # a clone has no note of the upgrade
        shutil.rmtree(tmp_path / "log" / "log" / "local")
    for number, target in enumerate(("sqlite:one.db", "segments:two")):
        source_url = STORES[name] if not number else "sqlite:one.db"
        base = tmp_path / "log" if not number else tmp_path
        with closing(open_store(source_url, base=base, create=False)) as source:
            copy_log(source, copy_target(target, base=tmp_path))
        with closing(open_store(target, base=tmp_path, create=False)) as copied:
            assert Log(copied, CATALOG).verify().problems == ()


def test_an_event_purged_after_the_upgrade_has_the_present_hash(tmp_path: Path) -> None:
    with closing(Log(upgraded("segments", tmp_path / "log"), CATALOG, actor="user:ada")) as log:
        log.purge("note/1", actor="user:ada", reason="asked to")
        found = {slot.hash_format for slot in log._store.slots() if isinstance(slot, Purged)}
        assert found == {1, 2}
        assert log.verify().ok


COMMANDS = (
    ("verify",),
    ("log",),
    ("doctor",),
    ("export", "out.jsonl"),
    ("copy", "{url}", "sqlite:copied.db"),
)


@pytest.mark.parametrize("name", IN_FILES)
def test_every_command_names_the_upgrade(name: str, tmp_path: Path) -> None:
    base = fresh(name, tmp_path / "log")
    before = files_of(base)
    for command in COMMANDS:
        words = [word.format(url=STORES[name]) for word in command]
        options = [] if command[0] == "copy" else ["--log", STORES[name]]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "everlog", "--json", *options, *words],
            cwd=base,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
        shown = done.stdout + done.stderr
        assert done.returncode == (8 if command[0] == "doctor" else 4), (command, shown)
        assert "older_format" in shown or command[0] == "doctor", (command, shown)
        assert "everlog upgrade" in shown, (command, shown)
    assert {name: data for name, data in files_of(base).items() if not name.endswith(("-wal", "-shm"))} == before
    assert upgrade(STORES[name], base=base).done


def test_spark_names_the_upgrade(tmp_path: Path) -> None:
    source = pytest.importorskip("everlog.pipeline.source.source", reason="Spark is not installed")
    failures = pytest.importorskip("everlog.pipeline.session.failures")
    base = fresh("segments", tmp_path / "log")
    made = source.EverlogSource({"url": f"segments:{base / 'log'}"})
    looks: list[Callable[[], object]] = [
        made.reader(made.schema()).partitions,
        made.streamReader(made.schema()).initialOffset,
    ]
    for look in looks:
        with pytest.raises(failures.CarriedError, match="format 1") as refused:
            look()
        error = failures.everlog_error(refused.value, "reading")
        assert isinstance(error, OlderFormat)
        assert "everlog upgrade" in error.hint
