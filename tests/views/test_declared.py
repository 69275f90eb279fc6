"""Views that are said and not written: each reduction, and what cannot be said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from everlog.errors import InvalidField
from everlog.log.log import Log
from everlog.testing.builders import event
from everlog.testing.view_contract import ViewContract
from everlog.views.declared import Count, DeclaredView, Distinct, First, Last, Reduction
from everlog.views.view import CAUSAL


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

    with pytest.raises(InvalidField, match=r"is of 'payload\.a\.b'"):

        class Deep(DeclaredView):
            fields: ClassVar[Mapping[str, Reduction]] = {"x": Last("payload.a.b")}

    with pytest.raises(InvalidField, match="is of 'salt'"):

        class Salt(DeclaredView):
            fields: ClassVar[Mapping[str, Reduction]] = {"x": Last("salt")}


def test_a_view_by_stream_knows_that_it_is_one() -> None:
    assert Said().by_stream
    assert not ByActor().by_stream
