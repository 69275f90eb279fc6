"""Events as rows and lines: times in UTC, aligned columns that only grow, and purges only for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

import everlog
from everlog.cli.events.records import TSV_COLUMNS, Lines, moment, print_record, print_reset, row
from everlog.cli.output import Output
from everlog.core.query import Cursor, Reset
from everlog.log.log import Log


def output(**flags: bool) -> Output:
    wanted = {"json": False, "agent": False, "quiet": False, "no_color": True, **flags}
    return Output(**wanted, program="everlog")


@pytest.fixture
def log() -> Iterator[Log]:
    with everlog.open("memory:", actor="user:ada") as log:
        log.append("note.added", stream="note/1", payload={"text": "a\tb"})
        log.append("note.added", stream="note/2", payload={"text": "gone"})
        log.purge("note/2", reason="asked to")
        yield log


def test_a_time_is_shown_in_utc() -> None:
    there = timezone(timedelta(hours=5))
    assert moment(datetime(2026, 11, 1, 3, 0, 0, 999999, tzinfo=there)) == "2026-10-31 22:00:00Z"


def test_a_row_has_the_named_columns(log: Log) -> None:
    (recorded,) = log.read()
    found = dict(zip(TSV_COLUMNS, row(recorded), strict=True))
    assert (found["position"], found["stream"], found["sequence"], found["actor"]) == (1, "note/1", 1, "user:ada")
    assert found["occurred_at"].endswith("Z")


def test_columns_only_grow_so_that_a_tail_stays_aligned(log: Log) -> None:
    (first,) = log.read()
    lines = Lines(output())
    narrow = lines.line(first).index("text=")
    with everlog.open("memory:", actor="agent:a-longer-name") as other:
        other.append("note.added", stream="note/1", payload={"text": "x"})
        (longer,) = other.read()
    wide = lines.line(longer).index("text=")
    assert wide > narrow
    assert lines.line(first).index("text=") == wide


@pytest.mark.parametrize(
    ("flags", "shown"),
    [({}, "1\t"), ({"json": True}, '{"position":1,'), ({"agent": True}, "ITEM position=1 "), ({"quiet": True}, "01")],
)
def test_an_event_of_a_stream_is_one_line_in_every_form(
    log: Log, flags: dict[str, bool], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (recorded,) = log.read()
    (purge,) = log.stored.purges()
    out = output(**flags)
    print_record(out, recorded, Lines(out))
    print_record(out, purge, Lines(out))  # for people only
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(shown)
    assert "a\tb" not in line


def test_a_reset_is_an_object_a_line_or_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    reset = Reset(reason="purged", cursor=Cursor.of(7))
    print_reset(output(json=True), reset, "history changed")
    print_reset(output(agent=True), reset, "history changed")
    print_reset(output(), reset, "history changed")
    found = capsys.readouterr()
    first, second = found.out.splitlines()
    assert json.loads(first) == {"reset_required": "purged", "cursor": str(reset.cursor)}
    assert second == f"RESET reason=purged cursor={reset.cursor}"
    assert found.err == "warning: history changed\n"
