"""A Hypothesis machine that drives a store and the reference store side by side and compares everything visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from everlog.core.codec import Packed
from everlog.core.event import Position
from everlog.core.query import Query
from everlog.errors import EverlogError
from everlog.stores.contract import Encoded, Store
from everlog.stores.memory import MemoryStore
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import read_claim, read_notes
from everlog.testing.builders import Boom, Chain, put_claim, put_note

CLAIMS = [bytes([number]) * 16 for number in range(3)]
STREAMS = ["note/1", "note/2", "issue/1"]
TYPES = ["note.added", "issue.opened"]
SCOPES = ["", "acme", "acme/shop"]

drafts = st.fixed_dictionaries(
    {"stream": st.sampled_from(STREAMS), "type": st.sampled_from(TYPES), "scope": st.sampled_from(SCOPES)}
)
queries = st.builds(
    Query,
    types=st.frozensets(st.sampled_from(TYPES), max_size=1),
    stream=st.sampled_from(["", *STREAMS]),
    scope=st.sampled_from(SCOPES),
    kind=st.sampled_from(["", "note"]),
)


class StoreMachine(RuleBasedStateMachine):
    """Define `open_store` in a subclass and give `.TestCase` to pytest. The factory creates a *new* log if
    `fresh=True`."""

    open_store: Callable[[bool], Store]
    reopens = True

    @initialize()
    def begin(self) -> None:
        self.store = self.open_store(True)
        self.model = MemoryStore(now_us=lambda: 1)
        self.chain = Chain()
        self.made: list[Encoded] = []

    def both(self, work: Callable[[OpenWrite], Any]) -> None:
        """Do the same write on both, and expect the same answer or the same refusal."""
        outcomes = []
        for store in (self.store, self.model):
            try:
                with store.open_write() as writer:
                    outcomes.append(work(writer))
            except (EverlogError, Boom) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule(batch=st.lists(drafts, min_size=1, max_size=5))
    def append(self, batch: list[dict[str, str]]) -> None:
        made = [self.chain.next(**fields) for fields in batch]
        self.made += made
        self.both(lambda writer: places(writer.append(made)))

    @rule(batch=st.lists(drafts, min_size=1, max_size=3))
    def append_and_fail(self, batch: list[dict[str, str]]) -> None:
        lost = Chain("01TESTLOST0000000000000000")
        made = [lost.next(**fields) for fields in batch]

        def work(writer: OpenWrite) -> None:
            writer.append(made)
            writer.tick()
            raise Boom

        self.both(work)

    @rule(batch=st.lists(drafts, min_size=1, max_size=3), kept=drafts)
    def attempt_and_go_on(self, batch: list[dict[str, str]], kept: dict[str, str]) -> None:
        lost = Chain("01TESTLOST0000000000000000")
        made, last = [lost.next(**fields) for fields in batch], self.chain.next(**kept)
        self.made.append(last)

        def work(writer: OpenWrite) -> Any:
            try:
                with writer.attempt():
                    writer.append(made)
                    put_note(writer, "note", "lost")
                    raise Boom
            except Boom:
                return places(writer.append([last])), writer.head(), read_notes(writer, "")

        self.both(work)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        again = data.draw(st.sampled_from(self.made))
        self.both(lambda writer: places(writer.append([again])))

    @rule(stream=st.sampled_from(STREAMS))
    def purge(self, stream: str) -> None:
        def work(writer: OpenWrite) -> Any:
            purge = writer.purge(stream, actor="user:ada", reason="asked to")
            return purge.reserved, purge.scopes, purge.sequence, purge.count

        self.both(work)

    @rule(seen=st.integers(0, 50))
    def tick(self, seen: int) -> None:
        self.both(lambda writer: writer.tick(seen=seen))

    @rule(key=st.sampled_from("abc"), value=st.none() | st.text(max_size=3))
    def note(self, key: str, value: str | None) -> None:
        self.both(lambda writer: put_note(writer, key, value))

    @rule(name=st.sampled_from(CLAIMS), batch=st.lists(drafts, min_size=1, max_size=3))
    def append_and_claim(self, name: bytes, batch: list[dict[str, str]]) -> None:
        made = [self.chain.next(**fields) for fields in batch]
        self.made += made

        def work(writer: OpenWrite) -> Any:
            first = writer.append(made)[0].position
            put_claim(writer, name, first, len(made))
            return read_claim(writer, name)

        self.both(work)

    @precondition(lambda self: self.reopens)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open_store(False)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.made)).event.id
        one, other = self.store.get(asked), self.model.get(asked)
        assert (one and (one.position, one.event)) == (other and (other.position, other.event))

    @rule(
        query=queries,
        after=st.integers(0, 30),
        upto=st.none() | st.integers(0, 30),
        limit=st.none() | st.integers(1, 5),
        newest_first=st.booleans(),
    )
    def read(self, query: Query, after: int, upto: int | None, limit: int | None, newest_first: bool) -> None:
        one, other = (
            places(
                store.read(
                    query,
                    after=Position(after),
                    upto=None if upto is None else Position(upto),
                    limit=limit,
                    newest_first=newest_first,
                )
            )
            for store in (self.store, self.model)
        )
        assert one == other

    @invariant()
    def both_look_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.head() == self.model.head()
        assert stored(self.store) == stored(self.model)
        assert read_notes(self.store.small_state, "") == read_notes(self.model.small_state, "")
        claims = [[read_claim(store.small_state, name) for name in CLAIMS] for store in (self.store, self.model)]
        assert claims[0] == claims[1]
        assert [purge.reserved for purge in self.store.purges()] == [purge.reserved for purge in self.model.purges()]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            assert list(self.store.check()) == []
            self.store.close()


def places(records: Any) -> list[Any]:
    return [(recorded.position, recorded.sequence, recorded.event) for recorded in records]


def stored(store: Store) -> list[Any]:
    return [
        (place.position, place.sequence, place.header, place.payload) if isinstance(place, Packed) else place
        for place in store.slots()
    ]
