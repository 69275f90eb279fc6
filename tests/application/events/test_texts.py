"""Texts of records: the same with and without what is kept of them, whatever happens to the log meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from tests.support.nodes import new_log_id, open_node

import everlog
from everlog.application.events import texts as texts_module
from everlog.application.events.reading import Reading
from everlog.application.events.texts import Texts
from everlog.catalog.personal import Personal
from everlog.core.event import Position, Purged
from everlog.core.group import Group
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Cursor
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.contract import Grouped
from everlog.testing.builders import event
from everlog.testing.signing import key
from everlog.views.registry import Views
from everlog.wire.messages import receipt_bytes, record_bytes

CATALOG = everlog.Catalog()


@CATALOG.event("customer.registered")
class Registered(msgspec.Struct):
    customer: str
    email: Annotated[str, Personal(of="customer")]


@CATALOG.event("thing.measured")
class Measured(msgspec.Struct):
    values: dict[str, Any] = {}


@CATALOG.event("thing.seen")
class Seen(msgspec.Struct):
    pass


@pytest.fixture(params=["sqlite:log.db", "jsonl:log", "segments:log", "memory:"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.chdir(tmp_path)
    with everlog.open(request.param, catalog=CATALOG, actor="user:ada") as log:
        yield log


def fill(log: Log, count: int = 300) -> None:
    log.append_batch([Draft("note.added", f"note/{n % 7}", {"text": f"ü {n}"}, "", "acme") for n in range(count)])


def shown(log: Log, texts: Texts, *, limit: int = 90, looking: bool = True) -> list[bytes]:
    """Return the texts of the whole log, page by page, and check the cursors between the pages."""
    found: list[bytes] = []
    cursor = Cursor()
    while True:
        read, some = Reading(log, EVERYTHING, "").rendered(cursor, texts, limit=limit, looking=looking)
        assert len(some) <= limit
        found += some
        if some:
            position = msgspec.json.decode(some[-1])["position"]
            at_last = log.page_after(cursor, limit=len(some), looking=looking).next_cursor
            assert at_last.position == position
            assert read.page.next_cursor in (
                at_last,
                log.page_after(cursor, limit=limit, looking=looking).next_cursor,
            )
        cursor = read.page.next_cursor
        if read.page.at_head:
            return found


def test_the_texts_are_those_of_the_records(log: Log) -> None:
    texts = Texts(log.catalog)
    fill(log)
    log.append("note.added", stream="note/1", payload={"text": "t"}, tags={"a": "b"}, causation_id="c", key="k")
    expected = [record_bytes(recorded) for recorded in log.read()]
    for limit in (1, 90, 128, 1_000):
        assert shown(log, texts, limit=limit) == expected
    assert shown(log, Texts(log.catalog)) == expected


def test_a_purge_leaves_no_text_behind(log: Log) -> None:
    texts = Texts(log.catalog)
    fill(log)
    shown(log, texts)
    log.purge("note/3", reason="asked to")
    left = shown(log, texts)
    assert left == [record_bytes(recorded) for recorded in log.read()]
    assert not any(b'"stream":"note/3"' in text for text in left)


def test_an_erased_payload_is_not_shown_from_memory(log: Log) -> None:
    texts = Texts(log.catalog)
    fill(log)
    shown(log, texts)
    first = log.get(5)
    assert first is not None
    by = EventId("01M7QD359TED69PS61SQQ82HBX")
    log.writer.write(lambda write: write.erase([first.event.id], by=by))
    left = shown(log, texts)
    assert left == [record_bytes(recorded) for recorded in log.read()]
    assert "payload" not in msgspec.json.decode(left[4])
    assert msgspec.json.decode(left[4])["erased_by"] == by


def test_sealed_values_are_not_kept(log: Log) -> None:
    texts = Texts(log.catalog)
    fill(log, 3)
    log.append("customer.registered", stream="c/1", payload={"customer": "c/1", "email": "ada@example.org"})
    assert b"ada@example.org" in shown(log, texts)[3]
    assert log.sealing is not None
    log.sealing.ring.destroy(log.sealing.ring.ids_of("c/1"))
    assert b"ada@example.org" not in shown(log, texts)[3]


def test_an_old_event_is_shown_in_its_present_form(log: Log) -> None:
    texts = Texts(log.catalog)
    log.admit([event("note.added", stream="note/1", payload={"body": "old"})])
    fill(log, 2)
    for _ in range(2):
        (old, *_) = map(msgspec.json.decode, shown(log, texts))
        assert (old["version"], old["payload"]) == (2, {"text": "old", "topic": ""})


def test_what_is_kept_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts_module, "BYTES_MAX", 20_000)
    texts = Texts(log.catalog)
    fill(log)
    expected = [record_bytes(recorded) for recorded in log.read()]
    assert shown(log, texts) == expected == shown(log, texts)
    assert texts._records._bytes <= 20_000
    assert texts._groups._bytes <= 20_000


def test_a_signed_log_shows_its_proofs(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db", actor="user:ada", signed=True) as log:
        fill(log, 200)
        expected = [record_bytes(recorded) for recorded in log.read()]
        assert shown(log, Texts(log.catalog)) == expected
        assert "path" in msgspec.json.decode(expected[0])


@pytest.mark.parametrize("url", ["sqlite:log.db", "segments:log"])
def test_groups_are_read_up_to_a_position(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, and with what a purge left there; nothing beyond them is read."""
    monkeypatch.chdir(tmp_path)
    with everlog.open(url, catalog=CATALOG, actor="user:ada") as log:
        for n in range(6):
            log.append_batch([Draft("note.added", f"note/{n}", {"text": "x"})] * 3)
        log.purge("note/1", reason="asked")
        stored = log.stored
        assert isinstance(stored, Grouped)

        found = list(stored.groups(upto=Position(10)))
        places = [position for one in found for position in _positions(one)]
        assert sorted(places) == list(range(1, 13))  # 10 is in the group of 10 to 12
        assert list(stored.groups(after=Position(12), upto=Position(12))) == []

        read, asked = type(stored).groups, []

        def spied(self: Grouped, **given: Position) -> Iterator[Group | Purged]:
            asked.append(given)
            return read(self, **given)

        monkeypatch.setattr(type(stored), "groups", spied)
        Reading(log, EVERYTHING, "").rendered(Cursor(Position(6)), Texts(CATALOG), limit=2, looking=True)
        assert asked == [{"after": 6, "upto": 8}]


def _positions(one: Group | Purged) -> list[int]:
    if isinstance(one, Purged):
        return [one.position]
    return [packed.position for packed in one.packed()]


ODD = {"ü": 1, "b": -0.0, "a": 1.0, "\U0001f600": "😀", "\uffee": [1e-7, {"z": None, "y": True}], "c": 0.1}
"""Values whose text in a store is not the first one that comes to mind."""


def test_the_answer_to_an_append_is_what_readers_get(log: Log) -> None:
    """It is made of the rows that are stored, and a retry of it of the record that is read."""
    answers_are_what_readers_get(log)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_answer_of_a_log_that_signs_is_what_readers_get(store: str, tmp_path: Path) -> None:
    node = open_node(store, tmp_path, new_log_id(), "ada", keys=[key(1)], catalog=CATALOG)
    answers_are_what_readers_get(node.log)
    node.log.close()


@pytest.mark.parametrize("store", ["memory", "sqlite", "segments"])
def test_the_answer_has_its_signature_also_where_a_view_reads_the_events_before_they_are_signed(
    store: str, tmp_path: Path
) -> None:
    class Counted(everlog.View):
        name = "counted"
        types = ("thing.seen", "thing.measured")

        def apply(self, state: dict[str, Any], event: everlog.Event) -> dict[str, Any]:
            return {"n": state.get("n", 0) + 1}

    node = open_node(store, tmp_path, new_log_id(), "ada", keys=[key(1)], catalog=CATALOG, make_views=Views)
    node.log.views.register(Counted, mode="inline")
    answers_are_what_readers_get(node.log)
    node.log.close()


def answers_are_what_readers_get(log: Log) -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    drafts = [
        Draft("thing.seen", "thing/1"),
        Draft("thing.measured", "thing/1", {"values": ODD}, "", "acme", tags={"z": "1", "a": "2"}),
        Draft("thing.measured", "thing/2", {"values": {}}, occurred_at=at, request_id="r", causation_id="c"),
    ]
    for n, own in enumerate((drafts, drafts[:1], drafts[1:2])):
        receipt = log.writer.commit(own, key=f"k{n}", operation="batch")
        answer = receipt_bytes(receipt.records, batch=True)
        read = [log.get(one["id"]) for one in msgspec.json.decode(answer)["events"]]
        assert answer == b'{"events":[' + b",".join(record_bytes(one) for one in read if one) + b"]}"
        assert receipt_bytes(receipt.records, batch=False) == record_bytes(receipt.records[0])
        again = log.writer.commit(own, key=f"k{n}", operation="batch")
        assert again.replayed
        assert receipt_bytes(again.records, batch=True) == answer
