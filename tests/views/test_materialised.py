"""The seed's own tests, by its names, on every store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.views.conftest import Said
from tests.views.snapshots.logs import forget_states, reopened, with_snapshots

from everlog.core.event import Event
from everlog.errors import NotFound
from everlog.log.log import Log
from everlog.testing.builders import event
from everlog.views.materialised import ONE_KEY, Materialised, ReplayEngine


class Market:
    """A view as the seed writes it: posts by the greatest (lamport, id), under the seed's names of fields."""

    def __init__(self) -> None:
        self.posts: dict[str, Any] = {}
        self.history: list[str] = []

    def reset(self) -> None:
        self.posts, self.history = {}, []

    def apply(self, event: Any) -> None:
        assert event.schema_version == 1
        assert event.wall_clock.endswith("Z")
        self.posts[event.data["value"]] = [event.lamport, event.author, event.event_type, event.community_id]
        self.history = [*self.history, event.event_id][-3:]

    def snapshot_state(self) -> dict[str, Any]:
        return {"posts": dict(self.posts), "history": list(self.history)}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.posts, self.history = dict(state["posts"]), list(state["history"])


def filled(log: Log, count: int = 12) -> None:
    for number in range(count):
        log.append("thing.said", stream=f"note/{number % 3}", payload={"value": f"post {number % 5}"})
    log.append("note.added", stream="note/1", payload={"text": "for others"})


def engine_of(log: Log) -> ReplayEngine:
    engine = ReplayEngine(log)
    engine.register("market", Market(), ["thing.said"])
    return engine


def test_replay_idempotent(log: Log) -> None:
    filled(log)
    engine = engine_of(log)
    engine.rebuild_all()
    first = engine.digest()
    engine.rebuild("market")
    assert engine.digest() == first
    for recorded in log.read():
        engine.on_event(recorded)
    assert engine.digest() == first
    assert len(engine.views["market"].snapshot_state()["posts"]) == 5


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_replay_order_independence(make_log: Any, kind: str, data: st.DataObject) -> None:
    made = [
        event(
            "thing.said",
            payload={"value": f"post {number % 4}"},
            lamport=data.draw(st.integers(1, 6)),
            origin=_origin(),
        )
        for number in range(8)
    ]
    shown = set()
    for _ in range(2):
        with make_log(kind) as log:
            live = engine_of(log)
            for one in data.draw(st.permutations(made)):
                for recorded in log.admit([one]):
                    live.on_event(recorded)
            replayed = engine_of(log)
            replayed.rebuild_all()
            as_view = log.view(Materialised("market", Market(), ["thing.said"]))
            assert live.views["market"].snapshot_state() == as_view.get(ONE_KEY).state
            shown |= {live.digest(), replayed.digest()}
    assert len(shown) == 1


def _origin() -> str:
    return "01PEER" + event().id[6:]


def test_snapshot_roundtrip(log: Log) -> None:
    filled(log)
    engine = engine_of(log)
    engine.rebuild_all()
    state = engine.views["market"].snapshot_state()
    other = Market()
    other.restore_state(state)
    assert other.snapshot_state() == state


def test_snapshot_assisted_join(make_log: Callable[..., Log], kind: str, tmp_path: Path) -> None:
    """Who comes without any state begins at the snapshot and takes only what came after it."""
    taken: list[str] = []

    class Taking(Said):
        name = "taking"

        def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
            taken.append(event.id)
            return super().apply(state, event)

    with make_log(kind, **with_snapshots(tmp_path / "snapshots")) as log:
        filled(log, 40)
        log.view(Taking).snapshot()
        filled(log, 6)
        expected = log.view(Taking).digest()
        forget_states(log)
        taken.clear()
        joined = reopened(log._store, tmp_path / "snapshots")
        assert joined.view(Taking).digest() == expected
        assert len(taken) == 6
        taken.clear()
        assert joined.view(Taking).rebuild().digest == expected
        assert len(taken) == 46, "and without it, everything"


def test_duplicate_event_id_is_noop(log: Log) -> None:
    engine = engine_of(log)
    one = event("thing.said", payload={"value": "once"})
    for recorded in log.admit([one]):
        engine.on_event(recorded)
    before = engine.digest()
    assert log.admit([one]) == []
    engine.on_event(one)
    assert engine.digest() == before


def test_a_rebuild_may_begin_at_a_clock_value(log: Log) -> None:
    filled(log, 6)
    engine = engine_of(log)
    engine.rebuild("market", from_lamport=5)
    assert len(engine.views["market"].snapshot_state()["posts"]) == 2


def test_a_view_that_was_not_registered_cannot_be_rebuilt(log: Log) -> None:
    with pytest.raises(NotFound):
        engine_of(log).rebuild("other")


def test_a_view_of_the_seed_is_kept_like_any_other(log: Log) -> None:
    filled(log)
    handle = log.views.register(Materialised("market", Market(), ["thing.said"]), mode="inline")
    log.append("thing.said", stream="note/9", payload={"value": "new"})
    engine = engine_of(log)
    engine.rebuild_all()
    assert handle.get(ONE_KEY, fresh=False).state == engine.views["market"].snapshot_state()
    assert handle.rebuild().same
    assert handle.audit().ok


class Heard:
    """Keeps the types of what it was given."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def reset(self) -> None:
        self.types = []

    def apply(self, event: Any) -> None:
        self.types.append(event.event_type)

    def snapshot_state(self) -> dict[str, Any]:
        return {"types": self.types}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.types = list(state["types"])


def test_a_view_gets_the_types_that_it_was_registered_for_and_no_others(log: Log) -> None:
    engine = ReplayEngine(log)
    some, every = Heard(), Heard()
    engine.register("some", some, ["note.added"])
    engine.register("every", every)
    for event_type, payload in (("thing.said", {"value": 1}), ("note.added", {"text": "a"})):
        engine.on_event(log.append(event_type, stream="thing/1", payload=payload))
    assert (some.types, every.types) == (["note.added"], ["thing.said", "note.added"])
    engine.rebuild_all()
    assert (some.types, every.types) == (["note.added"], ["thing.said", "note.added"])
    kept = log.view(Materialised("kept", Heard(), ["note.added"]))
    assert kept.get(ONE_KEY).state == {"types": ["note.added"]}


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_two_handles_go_on_with_one_view_in_turn(make_log: Callable[..., Log], tmp_path: Path, kind: str) -> None:
    """Each has an object of its own, which takes the stored state before it goes on."""
    with make_log(kind, tmp_path / "log") as one, make_log(kind, tmp_path / "log") as other:
        views = [log.view(Materialised("market", Market(), ["thing.said"])) for log in (one, other)]
        for number in range(6):
            one.append("thing.said", stream="note/1", payload={"value": f"post {number}"})
            assert len(views[number % 2].get(ONE_KEY).state["posts"]) == number + 1
        replayed = engine_of(one)
        replayed.rebuild_all()
        assert [view.get(ONE_KEY).state for view in views] == [replayed.views["market"].snapshot_state()] * 2
        assert views[0].audit().ok
