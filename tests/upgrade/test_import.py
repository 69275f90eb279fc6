"""An export that was made in format 1 is imported: its chains are computed again, as an upgrade does."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.upgrade.test_format1 import LOGS
from tests.upgrade.test_kills import fresh
from tests.upgrade.writing import CATALOG

from everlog.core.event import Event
from everlog.errors import BadFile
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore
from everlog.transfer.import_pass import Source
from everlog.transfer.importing import import_files
from everlog.upgrading import upgrade
from everlog.wiring import open_store

EXPORTS = ("export.jsonl", "export_cloudevents.jsonl")
OUT_OF_ORDER = 4  # the chain of a peer whose beginning stands below begins with this event in the file


def source(data: bytes) -> Source:
    return Source("export", len(data), lambda size, at: data[at : at + size])


def events_of(log: Log) -> dict[str, Event]:
    return {recorded.event.id: recorded.event for recorded in log.read()}


def without_previous(event: Event) -> Event:
    return msgspec.structs.replace(event, previous=b"")


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_of_format_1_becomes_a_log_that_is_verified(name: str, tmp_path: Path) -> None:
    upgrade("sqlite:log.db", base=fresh("sqlite", tmp_path / "log"))
    with closing(Log(open_store("sqlite:log.db", base=tmp_path / "log"), CATALOG)) as log:
        upgraded = events_of(log)
    data = (LOGS / name).read_bytes()
    log = Log(MemoryStore(), CATALOG)
    assert import_files(log, [source(data)]).new == len(upgraded)
    assert log.verify().ok
    found = events_of(log)
    other = [event for event in found.values() if event != upgraded[event.id]]
    # The event before the first of these is read after it, so it keeps `previous`, and the others follow from it.
    assert [event.origin_seq for event in other] == [OUT_OF_ORDER, OUT_OF_ORDER + 1, OUT_OF_ORDER + 2]
    assert [without_previous(event) for event in found.values()] == [
        without_previous(upgraded[event_id]) for event_id in found
    ]
    again = import_files(log, [source(data)])
    assert (again.new, again.known) == (0, len(upgraded))


def test_a_changed_event_is_still_noticed(tmp_path: Path) -> None:
    lines = (LOGS / "export.jsonl").read_bytes().splitlines(keepends=True)
    value = json.loads(lines[5])
    value["actor"] = "user:eve"
    lines[5] = json.dumps(value).encode() + b"\n"
    with pytest.raises(BadFile):
        import_files(Log(MemoryStore(), CATALOG), [source(b"".join(lines))])
