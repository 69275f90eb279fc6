"""The frozen readers of format 1 give exactly what the version that wrote that format read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.upgrade.server import Server, postgres_server

from everlog.core.codec import Packed
from everlog.core.event import Purge, Purged
from everlog.files import DiskFiles
from everlog.transfer.upgrade.format1.jsonl import JsonlLog
from everlog.transfer.upgrade.format1.model import Bad, OldLog
from everlog.transfer.upgrade.format1.segments import SegmentsLog
from everlog.transfer.upgrade.format1.sqlite import SqliteLog

LOGS = Path(__file__).parent / "logs"
FILES = ("sqlite", "sqlite_copied", "segments", "segments_copied", "jsonl", "jsonl_copied", "jsonl_merged")
SLOT = ("position", "sequence", "received_us", "header", "payload", "salt", "signature", "path")
STUB = ("position", "sequence", "id", "origin", "origin_seq", "hash", "previous", "reserved")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from postgres_server()


def opened(name: str, place: Path) -> OldLog:
    if name.startswith("sqlite"):
        return SqliteLog(place / "log.db")
    if name.startswith("segments"):
        return SegmentsLog(place / "log", DiskFiles())
    return JsonlLog(place / "log", DiskFiles())


def content(log: OldLog) -> dict[str, Any]:
    slots = list(log.slots())
    assert not [slot for slot in slots if isinstance(slot, Bad)]
    kept = [slot for slot in slots if not isinstance(slot, Purge)]
    found = {
        "identity": msgspec.to_builtins(log.identity),
        "clock": log.clock,
        "slots": [[type(slot).__name__, as_it_was(slot)] for slot in kept],
        "purges": [slot for slot in slots if isinstance(slot, Purge)],
        "rows": sorted(log.rows()),
    }
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return decoded


def as_it_was(slot: Any) -> dict[str, Any]:
    """A slot with the fields that it had in format 1."""
    found: dict[str, Any] = msgspec.to_builtins(slot)
    return {name: found[name] for name in (STUB if isinstance(slot, Purged) else SLOT)}


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((LOGS / f"{name}.json").read_text(encoding="utf-8"))
    del found["digest"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_log_is_read_as_the_version_that_wrote_it_read_it(name: str, tmp_path: Path) -> None:
    shutil.copytree(LOGS / name, tmp_path / name)
    log = opened(name, tmp_path / name)
    assert content(log) == expected(name)
    log.close()


@pytest.mark.parametrize("name", ["postgres", "postgres_copied"])
def test_a_schema_is_read_as_the_version_that_wrote_it_read_it(name: str, server: Server) -> None:
    with server.opened(name, LOGS / f"{name}.txt") as log:
        assert content(log) == expected(name)


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copytree(LOGS / name, tmp_path / name)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        log = opened(name, tmp_path / name)
        content(log)
        log.close()
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# ---- damage


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_named_or_changes_no_slot(name: str, tmp_path: Path) -> None:
    """Of the files that hold events; what no hash covers is left to the checks of the upgrade."""
    shutil.copytree(LOGS / name, tmp_path / name)
    for path in sorted((tmp_path / name).rglob("*.seg*")) + sorted((tmp_path / name).rglob("*.jsonl")):
        data = path.read_bytes()
        for at in range(0, len(data), max(len(data) // 40, 1)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            assert found_damage(name, tmp_path / name) or unchanged(name, tmp_path / name), (path.name, at)
        path.write_bytes(data)


def unchanged(name: str, place: Path) -> bool:
    return content(opened(name, place)) == expected(name)


def found_damage(name: str, place: Path) -> bool:
    log = opened(name, place)
    return any(isinstance(each, Bad) for each in [*log.slots(), *log.rows()])


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    shutil.copytree(LOGS / "segments", tmp_path / "log")
    (tmp_path / "log" / "log" / "segments" / "00000002.seg.gz").unlink()
    found = list(SegmentsLog(tmp_path / "log" / "log", DiskFiles()).slots())
    assert found[0] == Bad("segments/00000002.seg", "the file is missing")


def test_a_damaged_row_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    import sqlite3

    shutil.copytree(LOGS / "sqlite", tmp_path / "log")
    connection = sqlite3.connect(tmp_path / "log" / "log.db")
    connection.execute("DROP TRIGGER events_are_not_changed")
    connection.execute("UPDATE events SET payload = CAST(x'7bff7d' AS TEXT) WHERE position = 2")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.commit()
    connection.close()
    log = SqliteLog(tmp_path / "log" / "log.db")
    slots = [slot for slot in log.slots() if isinstance(slot, Packed)]
    assert slots[1].payload == b"{\xff}"
    log.close()


def test_lines_without_an_index_are_in_the_order_of_the_files(tmp_path: Path) -> None:
    shutil.copytree(LOGS / "jsonl", tmp_path / "log")
    (tmp_path / "log" / "log" / "local" / "index.db").unlink()
    log = JsonlLog(tmp_path / "log" / "log", DiskFiles())
    assert not log.indexed
    found, known = content(log), expected("jsonl")
    assert found["slots"] == known["slots"]
    assert found["identity"]["epoch"] != known["identity"]["epoch"]


def test_a_torn_end_of_a_day_file_was_never_acknowledged(tmp_path: Path) -> None:
    shutil.copytree(LOGS / "jsonl", tmp_path / "log")
    (path,) = (tmp_path / "log" / "log" / "events").iterdir()
    data = path.read_bytes()
    path.write_bytes(data + data.splitlines(keepends=True)[-1][:50])
    assert content(JsonlLog(tmp_path / "log" / "log", DiskFiles())) == expected("jsonl")
