"""The leaves of the tree of a log: one hash per position, in order.

    an event                          its hash
    an event that was purged          its hash, which the purge left
    a position reserved by a purge    the hash of the record of the purge (`everlog.core.codec.purge_hash`)

So a purge or an erasure changes no leaf, and every earlier checkpoint and proof stays valid.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from everlog.core.codec import Packed, header_hash, purge_hash
from everlog.core.event import Position, Purged
from everlog.core.group import GROUP_MAX, Group
from everlog.errors import Damaged, ReadOnly
from everlog.stores.contract import Grouped, HidesEvents, Stored

PIECE = 4096
"""How many hashes a list has at the least, but for the last one."""


def leaves(store: Stored, *, after: int, upto: int) -> Iterator[list[bytes]]:
    """Return the leaves of the positions above `after` up to `upto`, in order, in lists.

    They are computed from what is stored. Raise Damaged at the first position that nothing accounts for, and at a
    group that is not as it was recorded.
    """
    if isinstance(store, HidesEvents) and store.hides_events:
        raise ReadOnly(
            "this reader sees only some of the events",
            why="the tree of a log is made of all positions",
            hint="use a role that sees the whole log",
        )
    start = Position(after)
    waiting = {purge.reserved: purge_hash(purge) for purge in store.purges(after=start)}
    found: list[bytes] = []
    following = after + 1
    source = store.groups(after=start) if isinstance(store, Grouped) else store.slots(after=start)
    try:
        for item in source:
            if isinstance(item, Packed) and item.position == following <= upto:  # as nearly always, and cheap
                found.append(header_hash(item.header))
                following += 1
            else:
                hashes = _hashes(item)
                first = next(iter(hashes), following)
                # What a purge left of a group may come before or after it, but not farther away.
                if first > upto or (first > following + 2 * GROUP_MAX and following not in waiting):
                    break
                waiting.update(hashes)
                while following in waiting and following <= upto:
                    found.append(waiting.pop(Position(following)))
                    following += 1
            if len(found) >= PIECE:
                yield found
                found = []
    finally:
        if isinstance(source, Generator):
            source.close()  # it may hold a snapshot of the store
    while following in waiting and following <= upto:
        found.append(waiting.pop(Position(following)))
        following += 1
    if following <= upto:
        raise Damaged(
            f"position {following} has no hash",
            why="neither an event nor a purge accounts for it",
            hint="everlog verify",
            position=following,
            after=following,
        )
    if found:
        yield found


def _hashes(item: Group | Packed | Purged) -> dict[Position, bytes]:
    """Return the hashes of positions that begin after a start."""
    match item:
        case Purged():
            return {item.position: item.hash}
        case Packed():
            return {item.position: header_hash(item.header)}
    number, found, last = 0, {}, b""
    for (recorded, _), _, link in item.linked():
        found[recorded.position] = last = link.hash
        number = recorded.event.origin_seq
    facts = item.facts
    if number == facts.first_seq + facts.count - 1 and last != facts.hash:
        position = next(iter(found))
        raise Damaged(
            f"the events from position {position} on are not as they were recorded",
            why="their hashes do not lead to the one that was stored with them",
            hint="everlog verify",
            position=position,
            after=position,
        )
    return found
