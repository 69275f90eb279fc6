"""Ids that cannot be kept are replaced: the same on every machine, with the old one in a tag, references included."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transfer.foreign import AGENTS, CLI, COMMUNITY, KATA, STATUS, text
from tests.transfer.test_exporting import a_log, bytes_of, imported, source, text_of

from everlog.core.ids import id_time_ms
from everlog.errors import BadFile
from everlog.log.log import Log
from everlog.transfer.import_pass import Options
from everlog.transfer.importing import import_files

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
FUTURE = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
YEAR_MS = 365 * 24 * 60 * 60 * 1000


def events(*objects: Any, **options: Any) -> list[Any]:
    log = a_log()
    imported(log, text(*objects), new_ids=True, **options)
    return [recorded.event for recorded in log.read()]


@pytest.mark.parametrize("old", [HASH, "evt-17", "4711", FUTURE])
@pytest.mark.parametrize(
    ("line", "field"),
    [(CLI, "event_id"), (STATUS, "event_id"), (COMMUNITY, "event_id"), (AGENTS, "event_id"), (KATA, "uid")],
)
def test_an_id_that_cannot_be_kept_is_replaced_and_kept_as_a_tag(line: Any, field: str, old: str) -> None:
    inner: Any = line.get("data", {})
    changed = {**line, "data": {**inner, field: old}} if line is KATA else {**line, field: old}
    with pytest.raises(BadFile):
        imported(a_log(), text(changed))
    (event,) = events(changed)
    assert event.tags["was." + field] == old
    assert event.id != old
    assert id_time_ms(event.id) == int(event.occurred_at.timestamp() * 1000)


def test_a_good_id_is_kept() -> None:
    (event,) = events(CLI)
    assert event.id == CLI["event_id"]
    assert "was.event_id" not in event.tags


def test_the_same_file_gives_the_same_ids_on_another_machine_and_again() -> None:
    lines = [{**CLI, "event_id": f"{HASH}{number}", "lamport_clock": number + 1} for number in range(20)]
    one, other = a_log(), a_log()
    first = imported(one, text(*lines), new_ids=True)
    second = imported(other, text(*lines), new_ids=True)
    again = imported(one, text(*lines), new_ids=True)
    assert (first.new, first.new_ids, first.digest) == (20, 20, second.digest)
    assert bytes_of(one._store) == bytes_of(other._store)
    assert (again.new, again.known) == (0, 20)


def test_a_line_keeps_its_new_id_when_the_future_that_it_claimed_has_come() -> None:
    """The same command, years later: nothing is recorded twice."""
    log = a_log()
    claims_2030 = {**CLI, "event_id": "01Q8000000000000000000000A"}
    now_ms = 1_798_761_600_000  # 2027
    assert id_time_ms("01Q8000000000000000000000A") > now_ms + YEAR_MS  # it claims a later one

    def again(ms: int) -> int:
        return import_files(log, [source(text(claims_2030))], Options(new_ids=True), now_us=lambda: ms * 1000).new

    assert again(now_ms) == 1
    assert again(now_ms + 30 * YEAR_MS) == 0
    assert log.head() == 1


def test_references_follow_the_ids_that_were_replaced_in_both_directions() -> None:
    lines = [
        {**CLI, "event_id": "evt-1", "causation_id": "evt-2", "lamport_clock": 1},
        {**CLI, "event_id": "evt-2", "causation_id": "cmd-9", "correlation_id": "evt-1", "lamport_clock": 2},
        {**CLI, "event_id": CLI["event_id"], "causation_id": "evt-2", "correlation_id": "s-1", "lamport_clock": 3},
    ]
    lines[2]["payload"] = {**CLI["payload"], "after": ["evt-1", "kept"]}  # type: ignore[dict-item]
    one, two, three = events(*lines)
    assert (one.causation_id, one.correlation_id) == (two.id, "")
    assert (two.causation_id, two.correlation_id) == ("cmd-9", one.id)
    assert (three.causation_id, three.correlation_id) == (two.id, "s-1")
    assert three.payload["after"] == [one.id, "kept"]


def test_one_old_id_with_two_contents_is_two_events() -> None:
    """A program whose ids are not unique loses nothing by it."""
    assert (
        len({event.id for event in events({**CLI, "event_id": "x"}, {**CLI, "event_id": "x", "actor": "eve"})}) == 2
    )


def test_a_very_long_id_is_kept_by_its_hash() -> None:
    (event,) = events({**CLI, "event_id": "x" * 1000})
    assert event.tags["was.event_id"].startswith("xxx")
    assert "sha256:" in event.tags["was.event_id"]


def test_events_of_everlog_keep_their_ids() -> None:
    """Their ids are part of what was hashed: another id would be another event."""
    log: Log = a_log()
    log.append("note.added", stream="note/1", payload={"text": "x"}, actor="user:ada")
    assert imported(a_log(), text_of(log._store), new_ids=True).new_ids == 0
