"""Branches of chains that forked: which events of one are here, and what a branch is named by.

A node may have recorded another branch before the named one arrives. Then both are in its log: the events of the
other one stay at their positions and do not count, and those of the named one come after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from everlog.core.codec import header_hash, unpack
from everlog.core.event import Link, Purged
from everlog.errors import Conflict, NotFound
from everlog.log.admit.quarantine import Quarantine
from everlog.log.read.accounting import Places
from everlog.stores.open_write import OpenWrite
from everlog.trust.keys import is_key
from everlog.trust.standing import Branch, Limit
from everlog.trust.verdicts import Verdicts, forks_in

NAMED_MAX = 1_000
"""So many events of a branch are named at once."""


class OnChain(NamedTuple):
    """One event of a chain that is recorded, or waits."""

    number: int
    hash: bytes
    previous: bytes
    id: str


def recorded_from(write: OpenWrite, origin: str, first: int) -> Iterator[OnChain]:
    """Return the events of a chain from a number on, on whichever branch, and what purges left of them."""
    for slot in Places(write.stored):
        event = slot if isinstance(slot, Purged) else unpack(slot).event
        if event.origin == origin and event.origin_seq >= first:
            hash = slot.hash if isinstance(slot, Purged) else header_hash(slot.header)
            yield OnChain(event.origin_seq, hash, event.previous, event.id)
    for _, encoded in write.records:
        event = encoded.event
        if event.origin == origin and event.origin_seq >= first:
            yield OnChain(event.origin_seq, encoded.hash, event.previous, event.id)
    for gone in write.placed_purged:
        if gone.origin == origin and gone.origin_seq >= first:
            yield OnChain(gone.origin_seq, gone.hash, gone.previous, gone.id)


def end_on(write: OpenWrite, origin: str, branch: Branch) -> Link:
    """Return how far a named branch is recorded."""
    end = write.link(origin)
    if end.origin_seq < branch.first:
        return end
    here = {one.hash: one for one in recorded_from(write, origin, branch.first)}
    number, before = branch.first - 1, b""
    for hash in branch.hashes:
        if hash not in here:
            before = before or _previous_of(branch, here, write, origin)
            break
        number, before = number + 1, hash
    return Link(number, before)


def _previous_of(branch: Branch, here: dict[bytes, OnChain], write: OpenWrite, origin: str) -> bytes:
    """Return the hash of the event before a branch of which nothing is here: another branch follows it, too."""
    if branch.first == 1:
        return b""
    return next((one.previous for one in here.values() if one.number == branch.first), write.link(origin).hash)


def judged(
    write: OpenWrite, limit_of: Callable[[str], Limit | None], branch_of: Callable[[str], Branch | None]
) -> Verdicts:
    """Return the chains of which more was recorded than counts, and the events on branches that were not named."""
    limits: dict[str, Limit] = {}
    lost: list[str] = []
    for origin, chain in {**write.stored.chains(), **write.chains}.items():
        limit = limit_of(origin) if is_key(origin) else None
        if limit is None:
            continue
        branch, elsewhere = branch_of(origin), list[str]()
        if branch is not None and branch.first <= min(limit.upto, chain.greatest.origin_seq):
            elsewhere = [
                one.id for one in recorded_from(write, origin, branch.first) if not branch.has(one.number, one.hash)
            ]
        if elsewhere or chain.greatest.origin_seq > limit.upto:
            limits[origin] = limit
            lost += elsewhere
    return Verdicts(limits, frozenset(lost))


def branch_here(write: OpenWrite, origin: str, upto: str) -> Branch:
    """Return the branch of a chain that ends with an event, by its id; without one, the branch that is recorded here.

    Its events must be here: recorded, or waiting.
    """
    fork = forks_in(write).get(origin)
    if fork is None:
        raise NotFound(
            f"the chain of {origin} did not fork",
            why="this log has no proof of it",
            hint="everlog verify lists the chains that forked",
            origin=origin,
        )
    first = fork.origin_seq
    quarantine = Quarantine(write)
    waiting = [(held, quarantine.event(origin, held)) for held in list(quarantine.of(origin))]
    found = [*recorded_from(write, origin, first)]
    found += [
        OnChain(held.origin_seq, held.hash, encoded.event.previous, held.id)
        for held, encoded in waiting
        if encoded is not None and held.origin_seq >= first
    ]
    by_hash = {one.hash: one for one in found}
    last = _last(found, write.link(origin), upto)
    hashes: list[bytes] = []
    one: OnChain | None = last
    while one is not None and one.number >= first:
        hashes.insert(0, one.hash)
        one = by_hash.get(one.previous)
    if last is None or len(hashes) != last.number - first + 1 or len(hashes) > NAMED_MAX:
        raise Conflict(
            f"that branch of {origin} cannot be named",
            why=f"not all of its events from number {first} on are here, or there are more than {NAMED_MAX:,}",
            hint="everlog sync with a node that has them; --upto ID names the last event that shall count",
            origin=origin,
        )
    return Branch(first, tuple(hashes))


def _last(found: list[OnChain], end: Link, upto: str) -> OnChain | None:
    if not upto:
        return next((one for one in found if (one.number, one.hash) == (end.origin_seq, end.hash)), None)
    return next((one for one in found if one.id == upto), None)
