"""The views that every log has: streams, types, actors, and the fields of a stream."""

from __future__ import annotations

from collections.abc import Callable

from everlog.log.log import Log
from everlog.views.builtin import Actors, Fields, Streams, Types, merged


def _log(make_log: Callable[..., Log]) -> Log:
    log = make_log("memory")
    log.append("thing.said", stream="thing/1", payload={"value": 1}, actor="user:ada")
    log.append("thing.said", stream="thing/2", payload={"value": {"a": 1}}, actor="user:bob")
    log.append("thing.said", stream="thing/2", payload={"value": {"b": 2}}, actor="user:ada")
    return log


def test_streams_types_and_actors_have_one_row_per_stream_type_and_actor(make_log: Callable[..., Log]) -> None:
    log = _log(make_log)
    counts = {
        view.name: {key: state["events"] for key, state in log.view(view).items()}
        for view in (Streams, Types, Actors)
    }
    assert counts == {
        "streams": {"thing/1": 1, "thing/2": 2},
        "types": {"thing.said": 3},
        "actors": {"user:ada": 2, "user:bob": 1},
    }
    assert log.view(Streams).get("thing/2").state["last_actor"] == "user:ada"
    assert log.view(Actors).get("user:ada").state["last_stream"] == "thing/2"


def test_the_fields_of_a_stream_are_the_last_values_and_objects_are_merged(make_log: Callable[..., Log]) -> None:
    log = _log(make_log)
    assert "fields" not in log.views.names(), "every stream has it, so it is not listed"
    assert log.view(Fields).get("thing/2").state == {"value": {"a": 1, "b": 2}}


def test_merging_changes_neither_argument_and_replaces_everything_but_objects() -> None:
    old, new = {"a": {"x": 1}, "b": [1, 2], "c": 3}, {"a": {"y": 2}, "b": [3], "c": None}
    assert merged(old, new) == {"a": {"x": 1, "y": 2}, "b": [3], "c": None}
    assert old == {"a": {"x": 1}, "b": [1, 2], "c": 3}
    assert merged({"a": 1}, {"a": {"y": 2}}) == {"a": {"y": 2}}
