"""Small logs for the suites, and values by which two of them are compared."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from everlog.core.codec import Packed, unpack
from everlog.core.event import Recorded
from everlog.core.query import Query
from everlog.stores.contract import Encoded, Store
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import read_claim, read_notes
from everlog.testing.builders import Boom, Chain


def append(store: Store, *sealed: Encoded) -> list[Recorded]:
    with store.open_write() as writer:
        return writer.append(sealed)


def fill(store: Store) -> None:
    """Append a few hundred events of several streams, types, scopes and actors, in writes of several sizes."""
    chain = Chain(store.identity.origin)
    made = [
        chain.next(
            type=("note.added", "issue.opened", "issue.commented")[n % 3],
            stream=(f"note/{n % 4}", f"issue/{n % 5}")[n % 2],
            scope=("", "acme", "acme/shop", "other")[n % 4],
            actor=("user:ada", "agent:builder")[n % 2],
            correlation_id=("", "deploy-1")[n % 10 == 0],
        )
        for n in range(300)
    ]
    for start, end in ((0, 1), (1, 100), (100, 101), (101, 300)):
        append(store, *made[start:end])
    with store.open_write() as writer:
        writer.tick(seen=chain.next().event.lamport)


def fill_two_streams(store: Store) -> list[Encoded]:
    chain = Chain()
    made = [chain.next(stream=f"note/{n}") for n in (1, 2, 1, 2)]
    append(store, *made)
    return made


def positions(records: Iterator[Recorded]) -> list[int]:
    return [recorded.position for recorded in records]


def scopes(store: Store, scope: str) -> list[str]:
    return [recorded.event.scope for recorded in store.read(Query(scope=scope))]


def state_of(store: Store) -> Any:
    """Return everything that must survive, as one comparable value."""
    with contextlib.suppress(Boom), store.open_write() as writer:
        inner = _inner_state(writer, store.identity.origin)
        raise Boom  # reading the clock must not change it
    places = [unpack(place) if isinstance(place, Packed) else place for place in store.slots()]
    return (
        store.identity,
        places,
        list(store.read()),
        store.purges(),
        read_notes(store.small_state, ""),
        read_claim(store.small_state, CLAIMED),
        store.head(),
        inner,
    )


CLAIMED = bytes(range(16))


def _inner_state(writer: OpenWrite, origin: str) -> Any:
    streams = [f"note/{n}" for n in range(4)] + [f"issue/{n}" for n in range(5)]
    return writer.link(origin), [writer.sequence(stream) for stream in streams], writer.tick(seen=1000)


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run the work in threads; a failure in any of them fails the test."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
