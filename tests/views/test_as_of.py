"""Time travel on every store: any stream and any view at any moment, what changed, and why."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.views.conftest import ALL, ByActor, Causal, Picky, Said

from everlog.core.differences import differences, leaves, same, value_at
from everlog.core.event import Event, Position
from everlog.core.query import EVERYTHING, Query
from everlog.core.text import parse_path, path_of
from everlog.errors import InvalidField, NotFound
from everlog.log.log import Log
from everlog.testing.builders import Chain
from everlog.views.as_of import Lamport, Version, cut, of_key, state_at, states_at, why
from everlog.views.builtin import Fields, merged
from everlog.views.fold import fold_all
from everlog.views.view import View


def say(log: Log, value: Any, *, stream: str = "thing/1", actor: str = "user:ada", **fields: Any) -> Any:
    return log.append("thing.said", stream=stream, payload={"value": value}, actor=actor, **fields)


def fields_at(log: Log, stream: str, moment: Any) -> Any:
    return log.view(Fields).get(stream, as_of=moment).state


# ---- moments


def test_a_position_is_the_state_after_its_event(log: Log) -> None:
    for number in range(1, 6):
        say(log, number, stream=f"thing/{number % 2}")
    assert fields_at(log, "thing/1", 3) == {"value": 3}
    assert fields_at(log, "thing/1", 4) == {"value": 3}
    assert fields_at(log, "thing/1", 5) == {"value": 5}
    assert fields_at(log, "thing/1", 0) is None


@pytest.mark.parametrize("moment", [-1, 3, True, 10**12])
def test_a_position_that_is_not_there_is_refused(log: Log, moment: int) -> None:
    say(log, 1)
    say(log, 2)
    with pytest.raises(InvalidField):
        fields_at(log, "thing/1", moment)


def test_a_time_is_the_state_before_the_first_event_at_or_after_it(log: Log) -> None:
    first, second, third = (say(log, number) for number in (1, 2, 3))
    head = third.position
    edge = second.received_at
    at = cut(log, edge)
    # Events may share a microsecond: then the first of them is meant.
    expected = next(r.position for r in (first, second, third) if r.received_at >= edge)
    assert (at.next, at.upto) == (expected, expected - 1)
    later = cut(log, third.received_at + timedelta(microseconds=1))
    assert (later.next, later.upto) == (None, head)
    assert cut(log, first.received_at).upto == 0
    assert cut(log, first.received_at + timedelta(microseconds=1)).upto >= first.position
    with pytest.raises(InvalidField):
        cut(log, datetime(2026, 1, 1))


def test_what_was_and_what_came_since_meet_without_a_gap(log: Log) -> None:
    records = [say(log, number, stream=f"thing/{number % 3}") for number in range(12)]
    for edge in [record.received_at for record in records]:
        at = cut(log, edge)
        before = {r.position for r in log._store.read(EVERYTHING, upto=at.upto)}
        since = {r.position for r in log._store.read(Query(since=edge))}
        assert not before & since
        assert before | since == {record.position for record in records}


def test_a_lamport_value_is_the_same_cut_on_every_node(log: Log) -> None:
    mine = [say(log, number) for number in range(3)]
    chain = Chain()
    foreign = chain.next(type="thing.said", stream="thing/1", payload={"value": "foreign"}, lamport=2)
    log.admit([foreign.event])
    at = cut(log, Lamport(2))
    found = [r.event.lamport for r in log._store.read(EVERYTHING, upto=at.upto) if at.holds(r)]
    assert max(found) == 2
    assert len(found) == sum(r.event.lamport <= 2 for r in mine) + 1
    # In causal order the foreign event stands among those with its value, whenever it arrived.
    state = log.view(Causal).get("user:ada", as_of=Lamport(2)).state
    wanted = sorted(
        [r.event for r in mine if r.event.lamport <= 2] + [foreign.event], key=lambda event: event.causal_order
    )
    assert state["values"] == [event.payload["value"] for event in wanted]


def test_a_version_is_a_place_in_one_stream(log: Log) -> None:
    for number in range(3):
        say(log, number, stream="thing/0")
    say(log, "a")
    say(log, "other", stream="thing/2")
    say(log, "b")
    assert fields_at(log, "thing/1", Version(1)) == {"value": "a"}
    assert fields_at(log, "thing/1", Version(2)) == {"value": "b"}
    assert fields_at(log, "thing/1", Version(0)) is None
    with pytest.raises(NotFound):
        fields_at(log, "thing/1", Version(3))
    with pytest.raises(NotFound):
        log.view(ByActor).get("user:ada", as_of=Version(1))


# ---- the states


@pytest.mark.parametrize("view", ALL)
def test_a_view_as_of_a_position_is_what_it_was_then(
    make_log: Callable[..., Log], tmp_path: Path, view: type[View]
) -> None:
    chance = random.Random(5)
    with make_log("sqlite", tmp_path / "log") as log:
        handle = log.view(view)
        lived: dict[int, dict[str, Any]] = {}
        for number in range(40):
            say(log, number, stream=f"thing/{chance.randrange(4)}", actor=f"user:u{chance.randrange(3)}")
            lived[log.head()] = dict(handle.items())
        for position, states in lived.items():
            at = cut(log, position)
            assert states_at(log, handle.view, at).states() == states
            for key, state in states.items():
                assert handle.get(key, as_of=position).state == state


def test_a_poison_event_stops_its_key_then_as_it_does_now(log: Log) -> None:
    say(log, 1)
    bad = say(log, "poison").position
    say(log, 3)
    say(log, 4, stream="thing/2")
    handle = log.view(Said)
    now = handle.get("thing/1")
    assert (now.state["values"], now.parked) == ([1], True)
    then = handle.get("thing/1", as_of=log.head())
    assert (then.state["values"], then.parked) == ([1], True)
    assert handle.get("thing/2", as_of=log.head()).state["values"] == [4]
    assert not handle.get("thing/1", as_of=bad - 1).parked
    handle.skip(bad, reason="a test")
    assert handle.get("thing/1", as_of=log.head()).state == handle.get("thing/1").state
    assert handle.get("thing/1").state["values"] == [1, 3]


@pytest.mark.parametrize("view", [Said, ByActor])
def test_a_poison_event_far_into_a_history_takes_nothing_back(
    log: Log, view: type[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlog.views.as_of.AT_ONCE", 4)
    for number in range(10):
        say(log, number)
    say(log, "poison")
    say(log, "behind it")
    say(log, "elsewhere", stream="thing/2", actor="user:eve")
    handle = log.view(view)
    for key in ("thing/1", "thing/2") if view is Said else ("user:ada", "user:eve"):
        now, then = handle.get(key), handle.get(key, as_of=log.head())
        assert (then.state, then.parked) == (now.state, now.parked)
    assert states_at(log, handle.view, cut(log, None)).states() == dict(handle.items())


class Unsayable(Said):
    """JSON cannot express its state after the value "nan"."""

    name = "unsayable"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        value = event.payload["value"]
        return {"values": [*state["values"], float("nan") if value == "nan" else value], "count": state["count"] + 1}


@pytest.mark.parametrize("before", [0, 2, 3])
@pytest.mark.parametrize("behind", [False, True])
def test_a_state_that_json_cannot_express_takes_nothing_back_and_is_never_shown(
    log: Log, before: int, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first event of a key, at the beginning of a page and within one."""
    monkeypatch.setattr("everlog.views.as_of.AT_ONCE", 2)
    for number in range(before):
        say(log, number)
    say(log, "nan")
    say(log, "elsewhere", stream="thing/2")
    if behind:
        say(log, "behind it")
    handle = log.view(Unsayable)
    for key in ("thing/1", "thing/2"):
        now, then = handle.get(key), handle.get(key, as_of=log.head())
        assert (then.state, then.parked) == (now.state, now.parked)
    assert states_at(log, handle.view, cut(log, None)).states() == dict(handle.items())


def test_what_was_purged_was_never_there(log: Log) -> None:
    say(log, "a")
    say(log, "b", stream="thing/2")
    log.purge("thing/1", reason="a test")
    assert fields_at(log, "thing/1", 1) is None
    assert fields_at(log, "thing/2", 2) == {"value": "b"}
    assert state_at(log, ByActor(), "user:ada", cut(log, 2)).rows["user:ada"].state["values"] == ["b"]


def test_looking_back_writes_nothing(make_log: Callable[..., Log], tmp_path: Path) -> None:
    with make_log("sqlite", tmp_path / "log") as log:
        say(log, 1)
        log.view(Said).get("thing/1", as_of=1)
        assert log.view(Said).build() is None


# ---- the fields of a stream


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(st.text(max_size=3), json_values, max_size=4)


def test_objects_are_merged_and_everything_else_is_replaced() -> None:
    before = {"lane": "doing", "owner": {"name": "ada"}, "tags": [1, 2], "gone": {"a": 1}}
    said = {"lane": "done", "owner": {"mail": "a@b"}, "tags": [3], "gone": None}
    assert merged(before, said) == {
        "lane": "done",
        "owner": {"name": "ada", "mail": "a@b"},
        "tags": [3],
        "gone": None,
    }
    assert before["owner"] == {"name": "ada"}


@given(st.lists(payloads, max_size=5))
def test_the_last_value_of_every_path_wins(said: list[dict[str, Any]]) -> None:
    state: dict[str, Any] = {}
    for payload in said:
        state = merged(state, payload)
        for path, value in leaves(payload):
            if path != "$" and not (isinstance(value, dict) and not value):
                assert same(value_at(state, parse_path(path)), value), path


# ---- differences and paths


@given(json_values, json_values)
def test_there_is_a_difference_exactly_where_two_states_differ(was: Any, now: Any) -> None:
    found = list(differences(was, now))
    assert bool(found) != same(was, now)
    for difference in found:
        assert same(value_at(was, difference.parts), difference.was)
        assert same(value_at(now, difference.parts), difference.now)
        assert parse_path(difference.path) == difference.parts


def test_true_is_not_one() -> None:
    assert [difference.path for difference in differences({"a": [True]}, {"a": [1]})] == ["$.a[0]"]
    assert list(differences({"a": 1}, {"a": 1.0})) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("$", ()),
        ("", None),
        ("lane", ("lane",)),
        ("$.lane", ("lane",)),
        ("owner.name", ("owner", "name")),
        ("items[3].a", ("items", 3, "a")),
        ('$["odd name"].b', ("odd name", "b")),
        ('["a\\"b"]', ('a"b',)),
        ("a..b", None),
        (".a", None),
        ("a.", None),
        ("a[x]", None),
        ("a b", None),
    ],
)
def test_a_path_is_read_as_it_is_written(text: str, parts: tuple[str | int, ...] | None) -> None:
    if parts is None:
        with pytest.raises(InvalidField):
            parse_path(text)
    else:
        assert parse_path(text) == parts
        assert parse_path(path_of(parts)) == parts


# ---- why


def test_why_names_the_events_that_changed_a_value_newest_first_with_their_causes(log: Log) -> None:
    cause = log.append("note.added", stream="note/1", payload={"text": "do it"}, causation_id="request-7")
    first = say(log, {"lane": "a", "other": 1})
    say(log, {"lane": "a", "other": 2})
    last = say(log, {"lane": "b"}, causation_id=cause.event.id)
    made = why(log, Fields(), "thing/1", ("value", "lane"), cut(log, None))
    assert [(one.recorded.position, one.now) for one in made] == [(last.position, "b"), (first.position, "a")]
    assert made[0].was == "a"
    assert [record.position for record in made[0].causes] == [cause.position]
    assert made[0].unknown == "request-7"
    assert (made[1].causes, made[1].unknown) == ((), "")
    earlier = why(log, Fields(), "thing/1", ("value", "lane"), cut(log, last.position - 1))
    assert [one.recorded.position for one in earlier] == [first.position]
    assert len(why(log, Fields(), "thing/1", ("value", "lane"), cut(log, None), limit=1)) == 1
    assert why(log, Fields(), "thing/1", ("value", "nothing"), cut(log, None)) == []


def test_why_works_for_a_view_that_changes_its_state_in_place(log: Log) -> None:
    positions = [say(log, number, stream=f"thing/{number}").position for number in range(3)]
    made = why(log, ByActor(), "user:ada", ("count",), cut(log, None))
    assert [(one.recorded.position, one.was, one.now) for one in made][:2] == [
        (positions[2], 2, 3),
        (positions[1], 1, 2),
    ]


def test_the_measure_of_all_of_this_is_the_fold_from_nothing(log: Log) -> None:
    for number in range(10):
        say(log, {"n": number, "keep": {str(number): True}}, stream=f"thing/{number % 2}")
    for upto in range(11):
        records = list(log._store.read(EVERYTHING, upto=Position(upto)))
        expected = fold_all(Fields(), records, upcast=log.catalog.upcast)
        assert {key: fields_at(log, key, upto) for key in expected} == expected


def test_a_moment_in_utc_and_one_elsewhere_are_the_same_moment(log: Log) -> None:
    record = say(log, 1)
    from datetime import timezone

    elsewhere = record.received_at.astimezone(timezone(timedelta(hours=5)))
    assert cut(log, elsewhere).upto == cut(log, record.received_at.astimezone(UTC)).upto == 0


def test_an_event_whose_key_cannot_be_determined_concerns_every_key(log: Log) -> None:
    say(log, {"key": "a"})
    say(log, {"key": "b"})
    say(log, "no key")
    assert [recorded.position for recorded in of_key(log, Picky(), "a", log.read())] == [1, 3]
