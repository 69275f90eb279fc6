"""Typed payloads: append takes an instance of a model, read takes a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

import everlog
from everlog.catalog.catalog import Catalog
from everlog.errors import InvalidField, InvalidPayload, SchemaBroken, UnknownType
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.programs.workpackages import events as workpackages

CATALOG = Catalog()


@CATALOG.event("expense.filed", version=1)
class FiledV1(msgspec.Struct):
    cents: int


@CATALOG.event("expense.filed", version=2)
class Filed(msgspec.Struct):
    amount: float
    note: str = ""


@CATALOG.upcaster("expense.filed", from_version=1)
def in_euros(old: dict[str, int]) -> dict[str, float]:
    return {"amount": old["cents"] / 100}


@CATALOG.event("expense.paid")
class Paid(BaseModel):
    account: str


class Both(msgspec.Struct):
    text: str


CATALOG.event("both.one")(Both)
CATALOG.event("both.other")(Both)


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments"])
def expenses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    where = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/log.db"}
    url = where.get(request.param, f"{request.param}:{tmp_path}/events")
    with everlog.open(url, catalog=CATALOG, actor="user:ada") as log:
        yield log


def test_a_typed_payload_is_recorded_under_its_type(expenses: Log) -> None:
    record = expenses.append(Filed(amount=12.5), stream="expense/1")
    paid = expenses.append(Paid(account="travel"), stream="expense/1")
    assert (record.event.type, record.event.version, record.event.payload) == (
        "expense.filed",
        2,
        {"amount": 12.5, "note": ""},
    )
    assert (paid.event.type, paid.event.payload) == ("expense.paid", {"account": "travel"})


def test_a_typed_payload_and_a_dict_are_the_same_request(expenses: Log) -> None:
    first = expenses.append(Filed(amount=1.0), stream="expense/1", key="once")
    again = expenses.append("expense.filed", payload={"amount": 1.0, "note": ""}, stream="expense/1", key="once")
    assert again == first
    assert expenses.head() == 1


def test_reading_a_model_gives_its_events_with_typed_payloads(expenses: Log) -> None:
    expenses.append(Filed(amount=1.0), stream="expense/1")
    expenses.append(Paid(account="travel"), stream="expense/1")
    expenses.append(Filed(amount=2.0), stream="expense/2")
    found = list(expenses.read(Filed))
    amounts: list[float] = [record.payload.amount for record in found]
    assert amounts == [1.0, 2.0]
    assert [(record.position, record.sequence, record.event.stream) for record in found] == [
        (1, 1, "expense/1"),
        (3, 1, "expense/2"),
    ]
    assert [record.payload.account for record in expenses.read(Paid)] == ["travel"]
    assert [record.position for record in expenses.read(Filed, stream="expense/2")] == [3]
    assert [record.position for record in expenses.read(Filed, newest_first=True, limit=1)] == [3]
    assert [record.position for record in expenses.read(Filed, after=1, upto=3)] == [3]


def test_an_old_event_is_read_as_the_latest_model() -> None:
    old = Catalog()
    old.event("expense.filed", version=1)(FiledV1)
    with everlog.open("memory:", catalog=old, actor="user:ada") as log:
        log.append(FiledV1(cents=250), stream="expense/1")
        assert [record.payload.cents for record in log.read(FiledV1)] == [250]
        log.catalog.include(CATALOG)
        assert [record.payload for record in log.read(Filed)] == [Filed(amount=2.5)]
        with pytest.raises(UnknownType, match="FiledV1 is not the payload"):
            log.read(FiledV1)


def test_an_instance_that_was_changed_is_checked_like_any_payload(expenses: Log) -> None:
    wrong = Filed(amount="much")  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match="amount"):
        expenses.append(wrong, stream="expense/1")
    assert expenses.head() == 0


def test_a_model_of_no_type_or_of_two_is_refused(expenses: Log) -> None:
    class Other(msgspec.Struct):
        text: str

    with pytest.raises(UnknownType, match="is not the payload of an event type"):
        expenses.append(Other(text="x"), stream="expense/1")
    with pytest.raises(UnknownType, match="is the payload of 2 event types"):
        expenses.append(Both(text="x"), stream="expense/1")
    with pytest.raises(UnknownType, match="is not the payload of an event type"):
        expenses.read(Other)
    assert expenses.append("both.one", payload=Both(text="x"), stream="expense/1").event.type == "both.one"


def test_two_payloads_are_refused(expenses: Log) -> None:
    with pytest.raises(InvalidField, match="two payloads"):
        expenses.append(Filed(amount=1.0), payload={"amount": 2.0}, stream="expense/1")


def test_what_is_neither_a_name_nor_a_payload_is_refused_as_a_type(expenses: Log) -> None:
    with pytest.raises(InvalidField, match="the type is"):
        expenses.append(7, stream="expense/1")  # type: ignore[arg-type]


def test_the_model_of_a_program_is_known_before_the_program_is_loaded() -> None:
    with everlog.open("memory:", actor="user:ada") as log:
        assert log.catalog.type_of_model(workpackages.Created) == "WPCreated"


def test_a_task_appends_a_typed_payload(expenses: Log) -> None:
    record = asyncio.run(everlog.aio.append(expenses, Filed(amount=3.0), stream="expense/1"))
    assert record.event.payload == {"amount": 3.0, "note": ""}


def test_a_draft_takes_a_typed_payload(expenses: Log) -> None:
    (record,) = expenses.append_batch([Draft("expense.filed", "expense/1", Filed(amount=4.0))])
    assert record.event.payload["amount"] == 4.0


def test_an_event_that_does_not_fit_names_its_position() -> None:
    loose = Catalog()

    @loose.event("expense.filed", version=2)
    class Loose(msgspec.Struct):
        amount: str

    with everlog.open("memory:", catalog=loose, actor="user:ada") as log:
        log.append(Loose(amount="much"), stream="expense/1")
        log.catalog = CATALOG
        with pytest.raises(SchemaBroken) as caught:
            list(log.read(Filed))
        assert caught.value.details["position"] == 1


@pytest.mark.parametrize(
    ("query", "hint"), [("note.added", "Query(types=frozenset(['note.added']))"), ("note/1", "read(stream='note/1')")]
)
def test_a_bare_text_in_place_of_a_query_is_refused(expenses: Log, query: str, hint: str) -> None:
    with pytest.raises(InvalidField) as caught:
        expenses.read(query)  # type: ignore[call-overload]
    assert hint in caught.value.hint


def test_a_bare_text_as_the_types_of_a_query_is_refused() -> None:
    with pytest.raises(InvalidField, match="types are a set of names"):
        everlog.Query(types="note.added")  # type: ignore[arg-type]
