"""Every event becomes a typed row or is set aside with a reason, never both and never neither."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.pipeline.shop import SHOP, Moved

from everlog.core.event import Position, Recorded
from everlog.pipeline.source.rows import batch_of
from everlog.pipeline.tables.readings import Readings
from everlog.pipeline.tables.typed import REASON_CHARS_MAX, Typist, by_type
from everlog.testing.builders import event

PLACED: dict[str, Any] = {
    "lane": "doing",
    "count": 3,
    "price": 2,
    "paid": True,
    "at": "2026-11-15T12:00:00.5+02:00",
    "when": "2026-11-15T12:00:00",
    "day": "2026-11-15",
}


def recorded(position: int, type: str = "order.placed", version: int = 1, **payload: Any) -> Recorded:
    made = replace(event(type, payload=payload), version=version)
    return Recorded(Position(position), position, 1_000_000 * position, made)


def rows(*records: Recorded) -> pa.RecordBatch:
    return batch_of(records)


def typed(*records: Recorded) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    good, aside = Typist(Readings(SHOP, {})).typed(records[0].event.type, rows(*records))
    return ([] if good is None else good.to_pylist()), ([] if aside is None else aside.to_pylist())


# ---- what is set aside


def test_old_versions_are_brought_up_to_date() -> None:
    good, aside = typed(recorded(1, "parcel.moved", 1, lane="done"), recorded(2, "parcel.moved", 2, went_to="doing"))
    assert aside == []
    assert [(row["version"], row["went_to"]) for row in good] == [(1, "done"), (2, "doing")]


def test_what_the_model_refuses_is_set_aside_with_every_defect() -> None:
    good, aside = typed(recorded(1, **PLACED), recorded(2, **{**PLACED, "count": "three", "lane": "lost"}))

    assert [row["position"] for row in good] == [1]
    ((code, reason),) = [(row["code"], row["reason"]) for row in aside]
    assert code == "invalid_payload"
    assert "$.count" in reason
    assert "$.lane" in reason
    assert aside[0]["payload"].startswith('{"at":')


@pytest.mark.parametrize(
    ("record", "code", "words"),
    [
        (recorded(1, "never.heard"), "unknown_type", "not known"),
        (recorded(1, "parcel.moved", 3, went_to="x"), "newer_version", "knows version 2"),
        (recorded(1, "parcel.moved", 1, wrong="x"), "schema_broken", "KeyError"),
        (recorded(1, "deploy.done", outcome="perhaps"), "invalid_payload", "outcome"),
    ],
    ids=["unknown type", "newer version", "poisoned upcaster", "declared type"],
)
def test_each_reason_is_reported(record: Recorded, code: str, words: str) -> None:
    good, (row,) = typed(record)

    assert good == []
    assert row["code"] == code
    assert words in row["reason"]


def test_a_value_that_fits_the_model_and_no_column_is_set_aside() -> None:
    good, (row,) = typed(recorded(1, **PLACED), recorded(2, **{**PLACED, "at": "0001-01-01T00:00:00+14:00"}))

    assert [found["position"] for found in good] == [1]
    assert (row["position"], row["code"]) == (2, "not_a_column")


def test_an_erased_event_is_there_and_says_nothing() -> None:
    whole = recorded(1, **PLACED)
    erased = replace(whole, position=Position(2), event=replace(whole.event, payload={}, salt=b""))

    good, aside = typed(whole, erased)
    assert aside == []
    assert [row["lane"] for row in good] == ["doing", None]


def test_a_payload_that_is_no_object_is_set_aside() -> None:
    batch = rows(recorded(1, **PLACED), recorded(2, **PLACED))
    broken = batch.set_column(batch.schema.get_field_index("payload"), "payload", pa.array(['{"lane"', "{}"]))

    good, aside = Typist(Readings(SHOP, {})).typed("order.placed", broken)
    assert good is None
    assert aside is not None
    assert [row["code"] for row in aside.to_pylist()] == ["not_canonical", "invalid_payload"]


def test_a_reason_does_not_grow_without_end() -> None:
    strange: dict[str, Any] = {f"no_such_field_{number}": 1 for number in range(300)}
    _, (row,) = typed(recorded(1, **PLACED, **strange))

    assert len(row["reason"]) == REASON_CHARS_MAX


@given(st.lists(st.tuples(st.sampled_from(["order.placed", "parcel.moved", "x.y"]), st.integers(1, 3)), max_size=30))
def test_every_event_ends_up_in_exactly_one_place(kinds: list[tuple[str, int]]) -> None:
    if not kinds:
        return
    said = {"order.placed": PLACED, "parcel.moved": {"went_to": "doing"}, "x.y": {}}
    batch = rows(*(recorded(at, kind, version, **said[kind]) for at, (kind, version) in enumerate(kinds, 1)))
    typist = Typist(Readings(SHOP, {}))
    found: list[int] = []
    for event_type, mine in by_type(batch):
        for part in typist.typed(event_type, mine):
            found += [] if part is None else part.column("position").to_pylist()

    assert sorted(found) == list(range(1, len(kinds) + 1))


def test_a_reading_changes_with_what_decides_it() -> None:
    from everlog.catalog.catalog import Catalog

    def reading(version: int, upcaster: Any) -> int:
        catalog = Catalog()
        catalog.event("parcel.moved", version=version)(Moved)
        catalog.upcaster("parcel.moved", from_version=1)(upcaster)
        found = Readings(catalog, {}).of("parcel.moved")
        assert found is not None
        return found.number

    def one(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "a": 1}

    def two(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "b": 1}

    assert reading(2, one) == reading(2, one)
    assert len({reading(2, one), reading(3, one), reading(2, two)}) == 3
