"""What goes out as text comes back as it was, in every form."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.core.codec import Packed
from everlog.core.query import Query
from everlog.errors import BadFile, NewerFormat
from everlog.log.log import Log
from everlog.stores.contract import Store, encode_event
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Chain
from everlog.testing.copy_contract import PEER, a_full_log
from everlog.transfer.exporting import Export, Format, chunks
from everlog.transfer.import_pass import Options, Source
from everlog.transfer.importing import Imported, import_files

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT | st.floats(-1e15, 1e15),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def text_of(store: Store, form: Format = Format.EVERLOG, query: Query | None = None) -> bytes:
    return b"".join(Export(store, form, query or Query()).pieces())


def a_log() -> Log:
    catalog = Catalog()
    catalog.include(BUILT_IN)
    return Log(MemoryStore(), catalog)


def source(data: bytes, name: str = "file") -> Source:
    return Source(name, len(data), lambda size, at: data[at : at + size])


def imported(log: Log, data: bytes, **options: Any) -> Imported:
    dry_run = options.pop("dry_run", False)
    return import_files(log, [source(data)], Options(**options), dry_run=dry_run)


def bytes_of(store: Store) -> list[Any]:
    """Everything of every event but where and when it arrived."""
    return [
        (place.header, place.payload, place.salt, place.signature, place.path)
        for place in store.slots()
        if isinstance(place, Packed)
    ]


@pytest.mark.parametrize("form", list(Format))
def test_what_is_exported_is_imported_byte_for_byte(form: Format) -> None:
    store = a_full_log()
    log = a_log()
    result = imported(log, text_of(store, form))

    assert bytes_of(log._store) == bytes_of(store)
    assert result.events == result.new == len(bytes_of(store))
    assert result.shapes == {"everlog": result.events}
    assert {problem.code for problem in log.verify().problems} <= {"signature_unexpected"}  # one is made up


@settings(max_examples=40)
@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=4), min_size=1, max_size=8), st.sampled_from(list(Format)))
def test_hostile_payloads_come_back_byte_for_byte(payloads: list[dict[str, Any]], form: Format) -> None:
    store, chain, log = MemoryStore(), Chain(PEER), a_log()
    with store.open_write() as writer:
        writer.append([chain.next(payload=payload, tags={"team": "ü=,"}) for payload in payloads])
    imported(log, text_of(store, form))

    assert bytes_of(log._store) == bytes_of(store)
    assert log.verify().digest == Log(store, log.catalog).verify().digest


def test_a_payload_as_deep_as_any_comes_back() -> None:
    deep: Any = {}
    for _ in range(63):
        deep = {"a": deep}
    store, log = MemoryStore(), a_log()
    with store.open_write() as writer:
        writer.append([Chain(PEER).next(payload=deep)])
    for form in Format:
        imported(log, text_of(store, form))
    assert bytes_of(log._store) == bytes_of(store)


def test_the_digest_of_an_export_is_the_one_that_verify_prints() -> None:
    store, chain = MemoryStore(), Chain(PEER)
    with store.open_write() as writer:
        writer.append([chain.next() for _ in range(5)])
    export = Export(store, Format.EVERLOG)
    list(export.pieces())
    assert export.digest == Log(store, Catalog()).verify().digest
    assert export.count == 5


def test_importing_twice_adds_nothing() -> None:
    log, text = a_log(), text_of(a_full_log())
    first, again = imported(log, text), imported(log, text)

    assert (again.new, again.known) == (0, first.new)
    assert log.head() == first.new
    assert again.digest == first.digest


def test_an_export_can_be_imported_into_the_log_it_came_from() -> None:
    log = a_log()
    log.append("note.added", stream="note/1", payload={"text": "hello"})
    assert imported(log, text_of(log._store)).new == 0


def test_an_export_takes_a_filter() -> None:
    store = a_full_log()
    lines = text_of(store, query=Query(stream="note/3")).splitlines()
    assert len(lines) == 4  # the first, two events, the last
    assert all(json.loads(line)["stream"] == "note/3" for line in lines[1:-1])


def test_a_log_that_grows_while_it_is_exported_is_exported_up_to_its_head() -> None:
    store, chain = MemoryStore(), Chain(PEER)
    with store.open_write() as writer:
        writer.append([chain.next()])
    pieces = Export(store, Format.EVERLOG).pieces()
    head = json.loads(next(pieces))
    with store.open_write() as writer:
        writer.append([chain.next()])
    rest = [json.loads(piece) for piece in pieces]

    assert head["everlog_export"]["head"] == 1
    assert [line.get("position") for line in rest] == [1, None]


def test_lines_are_canonical_and_end_with_the_count() -> None:
    import rfc8785

    for line in text_of(a_full_log()).splitlines():
        assert rfc8785.dumps(json.loads(line)) == line
    assert json.loads(line)["everlog_end"]["count"] == len(bytes_of(a_full_log()))


def test_pieces_are_joined_to_what_is_worth_a_write() -> None:
    assert list(chunks([b"ab", b"cd", b"e"], size=3)) == [b"abcd", b"e"]
    assert list(chunks([])) == []


# ---- CloudEvents, as the official library reads and writes them


def test_the_official_library_reads_our_cloudevents() -> None:
    store = a_full_log()
    records = list(store.read())
    lines = text_of(store, Format.CLOUDEVENTS).splitlines()
    assert len(lines) == len(records) + 1
    for line, recorded in zip(lines, records, strict=False):
        found = JSONFormat().read(None, line)
        event = recorded.event
        assert (found.get_id(), found.get_type(), found.get_subject()) == (event.id, event.type, event.stream)
        assert found.get_specversion() == "1.0"
        assert found.get_time() == event.occurred_at
        assert found.get_source() == "urn:everlog:" + event.origin
        assert found.get_data() == (event.payload if event.salt else None)
        assert found.get_extension("evlamport") == str(event.lamport)
        for name in found.get_attributes():
            assert name.isalnum(), name
            assert name == name.lower(), name
            assert len(name) <= 20, name


def test_a_batch_of_cloudevents_is_one_array() -> None:
    store = a_full_log()
    found = json.loads(text_of(store, Format.CLOUDEVENTS_BATCH))
    assert [item["id"] for item in found[:-1]] == [recorded.event.id for recorded in store.read()]
    assert found[-1]["type"] == "everlog.export.ended"


def written(data: Any, **attributes: Any) -> bytes:
    """A CloudEvent as the official library writes it; the time that it adds by itself is taken away again."""
    found = json.loads(JSONFormat().write(CloudEvent({"specversion": "1.0", **attributes}, data)))
    if "time" not in attributes:
        found.pop("time", None)
    return json.dumps(found).encode()


NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
GIVEN = [
    written({"n": 1}, id="A-1", source="/shop", type="com.example.order-placed.v2", subject="order/17", time=NOON),
    written("hello", id="A-2", source="/shop", type="ping", partitionkey="7", datacontenttype="text/plain"),
    written(b"\x00\xff", id="01HN3R5K8D1234567890ABCDEF", source="https://x/ü", type="a.b"),
    written(None, id="4", source="/shop", type="ping"),
]


def test_cloudevents_of_others_become_events_that_say_the_same() -> None:
    log = a_log()
    result = imported(log, b"\n".join(GIVEN))
    events = [recorded.event for recorded in log.read()]

    assert result.shapes == {"cloudevents": 4}
    assert [event.type for event in events] == ["com.example.order_placed.v2", "ping", "a.b", "ping"]
    assert [event.stream for event in events] == [
        "order/17",
        "cloudevent/x~~2fshop",
        "cloudevent/https:~2f~2fx~2f~c3~bc",
        "cloudevent/x~~2fshop",
    ]
    assert [event.payload for event in events] == [{"n": 1}, {"data": "hello"}, {"data_base64": "AP8="}, {}]
    tags = {"was.id": "A-1", "was.source": "/shop", "was.type": "com.example.order-placed.v2"}
    assert {name: text for name, text in events[0].tags.items() if name != "was.datacontenttype"} == tags
    assert events[1].tags["was.partitionkey"] == "7"
    assert events[2].id == "01HN3R5K8D1234567890ABCDEF"
    assert [event.occurred_at for event in events] == [NOON] * 4, "one without a time has that of the one before it"
    assert log.verify().ok


@pytest.mark.parametrize("spelled", [int, str])
def test_the_lamport_clock_of_a_cloudevent_decides_the_order(spelled: Any) -> None:
    """Whatever the order of the lines, and in both spellings that an integer attribute has in the wild."""
    late, early = (
        {"specversion": "1.0", "id": str(clock), "source": "/shop", "type": "ping", "lamportclock": spelled(clock)}
        for clock in (9, 4)
    )
    log = a_log()
    imported(log, json.dumps(late).encode() + b"\n" + json.dumps(early).encode())
    events = sorted((recorded.event for recorded in log.read()), key=lambda event: event.causal_order)
    assert [(event.lamport, event.tags["was.id"]) for event in events] == [(4, "4"), (9, "9")]
    assert log._store.ends().clock > 9


def test_lines_and_an_array_of_the_same_cloudevents_give_the_same_events() -> None:
    lines, array = a_log(), a_log()
    one = imported(lines, b"\n".join(GIVEN))
    other = imported(array, b"[" + b" ,\r\n ".join(GIVEN) + b"]\n")

    assert one.digest == other.digest
    assert bytes_of(lines._store) == bytes_of(array._store)


def test_what_went_out_as_a_cloudevent_may_not_be_changed_on_the_way() -> None:
    text = text_of(a_full_log(), Format.CLOUDEVENTS)
    line = next(line for line in text.splitlines() if b'"text":"hello"' in line)
    for changed, told in (
        (line.replace(b"hello", b"hullo"), "commits to"),
        (line.replace(b"urn:everlog:", b"urn:other:"), "source"),
        (line.replace(b'"evlamport":"', b'"evlamport":"x'), "evlamport"),
        (line.replace(b'"1.0"', b'"0.3"'), "specversion"),
        (line.replace(b'"id"', b'"extra":"1","id"'), "extra"),
    ):
        with pytest.raises(BadFile) as caught:
            imported(a_log(), changed)
        assert told in caught.value.why


# ---- cut, joined, newer


@pytest.mark.parametrize("form", [Format.EVERLOG, Format.CLOUDEVENTS_BATCH])
def test_a_file_that_was_cut_is_refused(form: Format) -> None:
    """At every line, and in the middle of one."""
    text = text_of(a_full_log(), form)
    ends = [place for place, byte in enumerate(text) if byte == 0x0A][:-1]
    for end in [ends[0], ends[3], ends[-2], ends[3] + 40, len(text) - 20]:
        log = a_log()
        with pytest.raises(BadFile):
            imported(log, text[:end])
        assert log.head() == 0


def test_a_missing_line_is_noticed_by_the_count() -> None:
    lines = text_of(a_full_log(), Format.CLOUDEVENTS).splitlines(keepends=True)
    with pytest.raises(BadFile, match="is wrong") as caught:
        imported(a_log(), b"".join(lines[:4] + lines[5:]))
    assert "the export says that it has" in caught.value.why


def test_exports_may_be_joined() -> None:
    one, two = text_of(a_full_log()), text_of(a_full_log())
    log = a_log()
    assert imported(log, one + two).new == len(one.splitlines()) + len(two.splitlines()) - 4
    with pytest.raises(BadFile, match="wrong") as caught:
        imported(a_log(), one.split(b"\n", 1)[0] + b"\n" + two)
    assert "before the one above it has ended" in caught.value.why


def test_an_export_of_a_newer_everlog_is_refused() -> None:
    with pytest.raises(NewerFormat):
        imported(a_log(), text_of(a_full_log()).replace(b'"format":1', b'"format":2', 1))


def test_a_forged_event_of_this_very_log_is_refused() -> None:
    """F11."""
    log = a_log()
    other = Chain(log.identity.origin).next()
    store = MemoryStore()
    with store.open_write() as writer:
        writer.append([encode_event(replace(other.event))])
    with pytest.raises(BadFile) as caught:
        imported(log, text_of(store))
    assert "claims to be of this log" in caught.value.why
