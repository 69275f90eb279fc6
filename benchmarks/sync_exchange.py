"""What it takes to find the differences of two large logs: round trips and bytes, by heads and by ranges.

Two logs have the same events of many origins, except for 100 that one of them lacks. The events that are missing are
not counted, only what is exchanged to find them. Bytes and round trips do not depend on the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from benchmarks.rows import Row, Setup

from everlog import wiring
from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.log.log import Log
from everlog.stores.contract import Identity, encode_event
from everlog.stores.identity import new_identity
from everlog.sync import ranges
from everlog.sync.exchange import Node
from everlog.sync.wire import Heads, Span, Wants, decode, encode
from everlog.testing.builders import event

STORE = "sqlite"
DIFFERENT = 100
SHARE_MAX, HEADS_TRIPS_MAX, RANGES_TRIPS_MAX, EQUAL_BYTES_MAX = 0.06, 2, 4, 2_000


def exchange(setup: Setup) -> Iterator[Row]:
    """Two logs of one million events that differ in 100 scattered ones."""
    origins, each = (20, 500) if setup.quick else (1_000, 1_000)
    nodes = [_node(setup.directory / name) for name in ("exchange-one", "exchange-other")]
    lacking = _lacking(origins, each)
    for place, node in enumerate(nodes):
        setup.progress(f"exchange: filling log {place + 1} with {origins * each:,} events of {origins:,} origins")
        _fill(node.log, origins, each, without=lacking[place])
    one, other = nodes
    full = _full_transfer(one, origins, each)
    note = f"{origins * each:,} events, {DIFFERENT} different"
    demanded = None if setup.quick else SHARE_MAX

    setup.progress("exchange: by heads")
    heads, trips = _by_heads(one, other)
    yield Row("differences by heads: round trips", STORE, trips, "trips", HEADS_TRIPS_MAX, note=note)
    yield Row("differences by heads: share of a full transfer", STORE, heads * 100 / full, "%", demanded, note=note)
    yield Row("differences by heads: bytes", STORE, heads, "bytes", note=f"a full transfer has {full:,} bytes")

    setup.progress("exchange: by ranges")
    sums, found, moved, trips, seconds = _by_ranges(one, other)
    assert found == DIFFERENT, found
    yield Row("differences by ranges: round trips", STORE, trips, "trips", RANGES_TRIPS_MAX, note=note)
    yield Row("differences by ranges: share of a full transfer", STORE, moved * 100 / full, "%", demanded, note=note)
    yield Row("differences by ranges: time", STORE, seconds, "s", note=f"after {sums:.2f} s to read one log")
    for node in nodes:
        node.log.close()

    few = [_node(setup.directory / name) for name in ("equal-one", "equal-other")]
    for node in few:
        _fill(node.log, 5, 100, without=set())
    equal, trips = _by_heads(*few)
    yield Row(
        "equal logs of 5 origins: bytes",
        STORE,
        equal,
        "bytes",
        EQUAL_BYTES_MAX,
        note=f"{trips} round trip, both sides",
    )
    for node in few:
        node.log.close()


def _node(path: Path) -> Node:
    store = wiring.open_store(f"{STORE}:{path}", base=Path(), identity=_identity(path.name))
    return Node(Log(store, Catalog(), actor="service:bench"))


def _identity(name: str) -> Identity:
    made = new_identity(1_700_000_000_000_000)
    return msgspec.structs.replace(made, log_id="01JBENCH000000000000000000", epoch=name[-8:])


def _lacking(origins: int, each: int) -> list[set[tuple[int, int]]]:
    """Return which events each of the logs lacks: half of the different ones, scattered."""
    chance = random.Random(7)
    places = chance.sample(
        [(origin, number) for origin in range(origins) for number in range(1, each + 1)], DIFFERENT
    )
    return [set(places[: DIFFERENT // 2]), set(places[DIFFERENT // 2 :])]


def _fill(log: Log, origins: int, each: int, *, without: set[tuple[int, int]]) -> None:
    for origin in range(origins):
        made: list[Event] = []
        previous = b""
        for number in range(1, each + 1):
            made.append(_event(origin, number, previous))
            previous = encode_event(made[-1]).hash
        log.admit([one for one in made if (origin, one.origin_seq) not in without], jump_max=2**40)


def _event(origin: int, number: int, previous: bytes) -> Event:
    return event(
        id=f"01K9{origin:08d}00{number:012d}",
        stream=f"note/{number % 500}",
        payload={"text": f"note number {number}", "topic": "x" * 80},
        lamport=number,
        origin=f"01BENCHRGN{origin:016d}",
        origin_seq=number,
        previous=previous,
    )


def _full_transfer(node: Node, origins: int, each: int) -> int:
    """Return the bytes of all events as they travel, from those of some origins."""
    some = min(origins, 10)
    spans: Sequence[Span] = [Span(f"01BENCHRGN{origin:016d}", 1, each) for origin in range(some)]
    return sum(len(encode(batch)) for batch in node.batches(spans)) * origins // some


def _by_heads(one: Node, other: Node) -> tuple[int, int]:
    """Return the bytes of both heads and of what is asked for then, and the round trips that find the differences."""
    theirs = decode(other.answer("heads", b""), Heads)
    _, wants, gives, unclear = one.plan(theirs, peer="peer:bench")
    assert not unclear
    moved = len(encode(one.heads())) + len(encode(theirs))
    if not wants and not gives:
        return moved, 1
    return moved + len(encode(Wants(community_id=one.log_id, wants=wants))), 2


def _by_ranges(one: Node, other: Node) -> tuple[float, int, int, int, float]:
    started = time.perf_counter()
    items = one._items()
    sums = time.perf_counter() - started
    other._items()
    started = time.perf_counter()
    message: bytes | None = ranges.first_message(items)
    found, moved, trips = 0, 0, 0
    while message is not None:
        reply = other.answer("ranges", message)
        moved += len(message) + len(reply)
        trips += 1
        step = ranges.next_message(items, reply)
        found += len(step.have) + len(step.need)
        message = step.message
    return sums, found, moved, trips, time.perf_counter() - started
