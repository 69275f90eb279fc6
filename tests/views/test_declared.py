"""Views that are said and not written: each reduction, and what cannot be said."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.canonical import canonical
from everlog.errors import InvalidField
from everlog.log.log import Log
from everlog.testing.builders import event
from everlog.testing.view_contract import ViewContract
from everlog.views.declared import Count, DeclaredView, Distinct, First, Last, Max, Mean, Min, Reduction, Sum, Top
from everlog.views.view import CAUSAL, View, view_of


class Said(DeclaredView):
    """What was said in each stream: the last, the first, how often, by whom."""

    name = "declared-said"
    types = ("thing.said",)
    fields: ClassVar[Mapping[str, Reduction]] = {
        "last": Last("payload.value"),
        "first": First("payload.value"),
        "times": Count(),
        "who": Distinct("actor"),
        "when": Last("occurred_at"),
    }


class ByActor(DeclaredView):
    name = "declared-actors"
    by = "actor"
    order = CAUSAL
    fields: ClassVar[Mapping[str, Reduction]] = {"last": Last("payload.value"), "types": Distinct("type")}


class TestSaid(ViewContract):
    view = Said
    events: ClassVar[Any] = [
        event("thing.said", payload={"value": value}, actor=actor, lamport=number)
        for number, (value, actor) in enumerate([(1, "user:b"), (None, "user:a"), ([2.5], "user:b")], start=1)
    ]


class TestByActor(ViewContract):
    view = ByActor
    events: ClassVar[Any] = [
        event("thing.said", payload={"value": value}, actor=f"user:{value % 2}", lamport=value)
        for value in range(1, 9)
    ]


def test_each_field_is_what_it_says(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        for value, actor in (({"a": 1}, "user:b"), (None, "user:a"), ("x", "user:b"), (None, "user:c")):
            made = log.append("thing.said", stream="thing/1", payload={"value": value}, actor=actor)
        state = log.view(Said).get("thing/1").state
        assert state.pop("when") == made.event.occurred_at.isoformat().replace("+00:00", "Z")
        assert state == {"first": {"a": 1}, "last": "x", "times": 4, "who": ["user:a", "user:b", "user:c"]}


def test_a_set_holds_texts_and_nothing_else(make_log: Callable[..., Log]) -> None:
    class Values(DeclaredView):
        name = "values"
        fields: ClassVar[Mapping[str, Reduction]] = {"values": Distinct("payload.value")}

    with make_log("memory") as log:
        for value in ("b", "a", "b", 7, "c"):
            log.append("thing.said", stream="thing/1", payload={"value": value})
        handle = log.view(Values)
        assert handle.get("thing/1").state == {"values": ["a", "b"]}
        assert [letter.what for letter in handle.dead_letters()] == ["failed", "waiting"]


def test_an_invalid_declaration_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidField, match="keyed by 'payload'"):

        class Wrong(DeclaredView):
            by = "payload"

    with pytest.raises(InvalidField, match=r"is of 'payload\.a\.'"):

        class Deep(DeclaredView):
            fields: ClassVar[Mapping[str, Reduction]] = {"x": Last("payload.a.")}

    with pytest.raises(InvalidField, match="has a field _"):

        class Taken(DeclaredView):
            fields: ClassVar[Mapping[str, Reduction]] = {"_": Count()}

    with pytest.raises(InvalidField, match="is the top 0"):

        class Nothing(DeclaredView):
            fields: ClassVar[Mapping[str, Reduction]] = {"x": Top("payload.value", 0)}

    with pytest.raises(InvalidField, match="is of 'salt'"):

        class Salt(DeclaredView):
            fields: ClassVar[Mapping[str, Reduction]] = {"x": Last("salt")}


def test_a_view_by_stream_knows_that_it_is_one() -> None:
    assert Said().by_stream
    assert not ByActor().by_stream


class Amounts(DeclaredView):
    name = "declared-amounts"
    order = CAUSAL
    fields: ClassVar[Mapping[str, Reduction]] = {
        "total": Sum("payload.value"),
        "mean": Mean("payload.value"),
        "least": Min("payload.value"),
        "most": Max("payload.value"),
        "top": Top("payload.value", 3),
    }


NUMBERS = st.one_of(
    st.integers(-(2**40), 2**40), st.floats(-1e12, 1e12, allow_nan=False), st.sampled_from([0.1, 1e-320, -0.0])
)


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_sums_are_exact_and_do_not_depend_on_the_order(values: list[float], chance: random.Random) -> None:
    events = [event("thing.said", payload={"value": value}) for value in values]
    exact = sum(map(Fraction, values))
    states = []
    for turn in range(3):
        state: dict[str, Any] = {}
        for one in events:
            state = Amounts().apply(state, one)
            if turn == 2:  # as a row that is stored between two events
                state = msgspec.json.decode(canonical(state))
        states.append(canonical(state))
        assert state["total"] == float(exact)
        assert state["mean"] == float(exact / len(values))
        assert (state["least"], state["most"]) == (min(values), max(values))
        assert state["top"] == sorted(values, reverse=True)[:3]
        if turn == 0:
            chance.shuffle(events)
    assert states[0] == states[1] == states[2]


def test_what_a_reduction_cannot_take_is_a_dead_letter(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        for stream, wrong in (("thing/text", "12"), ("thing/bool", True), ("thing/list", [1])):
            for value in (1.5, None, wrong):
                log.append("thing.said", stream=stream, payload={"value": value})
        log.append("thing.said", stream="thing/large", payload={"value": 2**53 - 1})
        log.append("thing.said", stream="thing/large", payload={"value": 1})
        handle = log.view(Amounts)
        assert {key: state["total"] for key, state in handle.items()} == {
            "thing/text": 1.5,
            "thing/bool": 1.5,
            "thing/list": 1.5,
            "thing/large": 2**53 - 1,
        }
        assert [letter.what for letter in handle.dead_letters()] == ["failed"] * 4


def test_a_key_and_a_value_may_be_deep_in_the_payload(make_log: Callable[..., Log]) -> None:
    class Shops(DeclaredView):
        name = "shops"
        by = "payload.value.shop"
        fields: ClassVar[Mapping[str, Reduction]] = {"total": Sum("payload.value.paid.amount"), "last": Max("actor")}

    with make_log("memory") as log:
        for value in ({"shop": "a", "paid": {"amount": 2}}, {"shop": "a", "paid": 3}, {"shop": 7}, {"shop": None}, 4):
            log.append("thing.said", stream="thing/1", payload={"value": value}, actor="user:ada")
        assert dict(log.view(Shops).items()) == {"7": {"last": "user:ada"}, "a": {"last": "user:ada", "total": 2}}


def test_columns_follow_from_the_reductions_and_may_be_declared() -> None:
    class Typed(DeclaredView):
        name = "typed"
        fields: ClassVar[Mapping[str, Reduction]] = {
            "times": Count(),
            "total": Sum("payload.value"),
            "who": Distinct("actor"),
            "at": Last("occurred_at"),
            "latest": Top("occurred_at", 2),
            "value": Last("payload.value"),
            "other": First("payload.value"),
        }
        columns: ClassVar[Mapping[str, Any]] = {"other": str}

    columns = {"times": int, "total": float, "who": list[str], "at": datetime, "latest": list[datetime], "other": str}
    assert dict(view_of(Typed).columns) == columns


@pytest.mark.parametrize("columns", [{"key": str}, {"_x": str}, {"a b": str}, {"a": int, "A": int}, {"a": object()}])
def test_columns_that_no_table_could_have_are_refused(columns: dict[str, Any]) -> None:
    made = type("Wrong", (View,), {"name": "wrong", "columns": columns})
    with pytest.raises(InvalidField, match=r"wrong has (the|a) column"):
        view_of(made)
