"""Any history: what is kept live, what is rebuilt and what is folded from nothing are the same, on every store.

Hypothesis finds the small histories; `test_same_digest` goes through hundreds, with snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.views.conftest import ALL, ByActor, Causal, CausalByStream

from everlog.core.event import Event
from everlog.core.query import EVERYTHING, Query
from everlog.log.log import Log
from everlog.testing.builders import event
from everlog.views.as_of import fold_to
from everlog.views.fold import fold_all
from everlog.views.view import View, digest

STREAMS = [f"thing/{number}" for number in range(4)]
ACTORS = [f"user:u{number}" for number in range(3)]

say = st.tuples(st.just("say"), st.sampled_from(STREAMS), st.sampled_from(ACTORS), st.integers(0, 9))
poison = st.tuples(st.just("say"), st.sampled_from(STREAMS), st.sampled_from(ACTORS), st.just("poison"))
admit = st.tuples(st.just("admit"), st.sampled_from(STREAMS), st.sampled_from(ACTORS), st.integers(1, 60))
admit_poison = st.tuples(
    st.just("admit poison"), st.sampled_from(STREAMS), st.sampled_from(ACTORS), st.integers(1, 60)
)
purge = st.tuples(st.just("purge"), st.sampled_from(STREAMS), st.none(), st.none())
look = st.tuples(st.just("look"), st.none(), st.none(), st.integers(1, 4))
rebuild = st.tuples(st.just("rebuild"), st.none(), st.none(), st.none())


def from_nothing(log: Log, view: type[View]) -> str:
    return digest(fold_all(view(), log._store.read(EVERYTHING), upcast=log.catalog.upcast).items())


class History:
    """Carries out the steps of a history on a log, with every view looking on."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.views = [log.view(view) for view in ALL]
        self.seen = 0

    def do(self, what: str, stream: Any, actor: Any, value: Any) -> None:
        if what == "say":
            self.log.append("thing.said", stream=stream, payload={"value": value}, actor=actor)
        elif what in ("admit", "admit poison"):
            # An event of a peer, whose clock may lie before or after all that is here.
            self.seen += 1
            payload = {"value": f"of a peer, {self.seen}" if what == "admit" else "poison"}
            made = event("thing.said", stream=stream, actor=actor, payload=payload, lamport=value, origin=_origin())
            self.log.admit([made])
        elif what == "purge":
            if next(self.log._store.read(Query(stream=stream)), None) is not None:
                self.log.purge(stream, reason="a request")
        elif what == "rebuild":
            for handle in self.views:
                assert handle.rebuild(limit=3).same is not False, handle.view.name
        else:
            for handle in self.views[:: value % 2 + 1]:
                handle.catch_up(limit=value)


def _origin() -> str:
    return "01PEER" + event().id[6:]


HISTORIES = st.lists(st.one_of(say, say, admit, purge, look, look, rebuild), max_size=40)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_live_rebuilt_and_from_nothing_are_the_same(
    make_log: Callable[..., Log], kind: str, history: list[tuple[Any, ...]]
) -> None:
    require_the_same(make_log, kind, history)


def require_the_same(make_log: Callable[..., Log], kind: str, history: list[tuple[Any, ...]]) -> None:
    with make_log(kind) as log:
        run = History(log)
        for step in history:
            run.do(*step)
        for handle in run.views:
            expected = from_nothing(log, type(handle.view))
            assert handle.digest() == expected, handle.view.name
            audit = handle.audit()
            assert audit.ok, audit
            assert handle.rebuild(limit=7).same is not False, handle.view.name
            assert handle.digest() == expected


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(st.one_of(say, say, poison, admit, purge, look), max_size=30))
def test_poison_never_makes_a_live_view_differ_from_a_rebuilt_one(
    make_log: Callable[..., Log], kind: str, history: list[tuple[Any, ...]]
) -> None:
    with make_log(kind) as log:
        run = History(log)
        for step in history:
            run.do(*step)
        for handle in run.views:
            live = handle.digest()
            letters = [(letter.position, letter.what) for letter in handle.dead_letters()]
            rebuilt = handle.rebuild(limit=2)
            assert rebuilt.same, (handle.view.name, rebuilt)
            assert handle.digest() == live
            assert [(letter.position, letter.what) for letter in handle.dead_letters()] == letters
            assert handle.audit().ok


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(st.one_of(say, poison, admit, admit_poison, look), max_size=20))
def test_what_waits_behind_poison_in_a_causal_view_does_not_depend_on_what_arrived_first(
    make_log: Callable[..., Log], history: list[tuple[Any, ...]]
) -> None:
    with make_log("memory") as log:
        run = History(log)
        for step in history:
            run.do(*step)
        for view in (Causal, CausalByStream):
            handle = log.view(view)
            was = fold_to(log, view(), log._store.read(EVERYTHING))
            assert handle.digest() == digest(was.states().items()), view.name
            waiting = {letter.key for letter in handle.dead_letters()}
            assert waiting == was.parked.keys()
            assert handle.audit().ok


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), count=st.integers(1, 12))
def test_the_order_of_arrival_and_duplicates_never_show_in_a_causal_view(
    make_log: Callable[..., Log], data: st.DataObject, count: int
) -> None:
    events = [_made(number, data) for number in range(count)]
    digests = set()
    for _ in range(2):
        with make_log("memory") as log:
            arriving = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=5))))
            handles = [log.view(Causal), log.view(CausalByStream)]
            for one in arriving:
                log.admit([one])
                if data.draw(st.booleans()):
                    for handle in handles:
                        handle.catch_up(limit=data.draw(st.integers(1, 3)))
            digests.add(tuple(handle.digest() for handle in handles))
            assert handles[0].digest() == from_nothing(log, Causal)
    assert len(digests) == 1


def _made(number: int, data: st.DataObject) -> Event:
    return event(
        "thing.said",
        stream=data.draw(st.sampled_from(STREAMS)),
        actor=data.draw(st.sampled_from(ACTORS)),
        payload={"value": number},
        lamport=data.draw(st.integers(1, 5)),
        origin=_origin(),
    )


def test_a_view_in_order_of_arrival_does_show_it(make_log: Callable[..., Log]) -> None:
    """Otherwise the test above would prove nothing."""
    events = [
        event("thing.said", payload={"value": number}, lamport=number, origin=_origin(), actor="user:ada")
        for number in (1, 2)
    ]
    digests = set()
    for arriving in (events, events[::-1]):
        with make_log("memory") as log:
            log.admit(arriving)
            digests.add(log.view(ByActor).digest())
    assert len(digests) == 2
