"""What a log knows of other origins: the first own write after something arrived begins with `origin.knows`.

A lamport does not show what its author knew. So the log records the contiguous ends of other chains that grew since
its last `origin.knows`, in the write of its next own event, before that event: see docs/how-to/nodes/conflicts.md.

A log takes part from the first time that it admits what another node sent (`admit_each`): then it has the note
`knows`, with all ends that it stated. If it had events of others before, as a copy has, it is read once, and its
first statement has what it knew at each own event. From then on whatever arrived counts, in whatever way.
The note names the event that stated it last. In a copy, on another branch, after a purge or after a restore that
event is missing or of another origin, and everything is stated again.

The note is not read if nothing arrived: the end of the own chain has its position, which every append knows anyway,
and if that is the head of the log, nothing came after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from everlog.catalog.builtin import KNOWS, NODE
from everlog.core.codec import unpack
from everlog.core.event import Purged
from everlog.core.ids import EventId
from everlog.log.write.draft import Draft, Limits, Prepared
from everlog.log.write.prepare import prepare
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, read_note

STREAMS = "origin/"
"""The statements of an origin are on the stream `origin/ORIGIN`."""

_NOTE = "knows"
_ENDS_MAX = 1_000  # per event, so that it stays small
_EARLIER_MAX = 1_000


class Known(NamedTuple):
    """The ends of chains, and the own number from which on they were known; 0 is that of the statement."""

    ends: dict[str, int]
    since: int = 0


class _Stated(msgspec.Struct, frozen=True):
    """What an origin stated: the last event that did, and all ends. `earlier` is still to be stated."""

    origin: str
    event: EventId = EventId("")
    ends: dict[str, int] = {}
    earlier: list[Known] = []


_stated = msgspec.json.Decoder(_Stated)


def take_part(write: OpenWrite) -> None:
    """Have the log state from now on what it knows, because it admits what another node sent."""
    if read_note(write, _NOTE) is None:
        origin = write.own_origin()
        _put(write, _Stated(origin, earlier=_earlier(write, origin)))


def news(write: OpenWrite, origin: str) -> list[Known]:
    """Return what this origin has to state, if the log takes part: the ends of other chains that grew since."""
    stated = _read(write, origin)
    if stated is None:
        return []
    found, before = list(stated.earlier), _all_ends([Known(stated.ends), *stated.earlier])
    chains = {**write.stored.chains(), **write.chains}
    ends = {other: chain.end.origin_seq for other, chain in sorted(chains.items()) if other != origin}
    grown = [(other, end) for other, end in ends.items() if end > before.get(other, 0)]
    found += [Known(dict(grown[start : start + _ENDS_MAX])) for start in range(0, len(grown), _ENDS_MAX)]
    return found


def statement(origin: str, news: Sequence[Known]) -> Prepared:
    """Return the events that state the news: one, unless there are very many ends, or it is the first statement."""
    drafts = [Draft(KNOWS, STREAMS + origin, known._asdict()) for known in news]
    return prepare(drafts, NODE, actor="system", limits=Limits())


def remember(write: OpenWrite, origin: str, news: Sequence[Known], stated_by: EventId) -> None:
    """Keep what was stated, in the write that states it."""
    before = _read(write, origin) or _Stated(origin)
    _put(write, _Stated(origin, stated_by, _all_ends([Known(before.ends), *news])))


def _all_ends(known: Sequence[Known]) -> dict[str, int]:
    return {other: end for each in known for other, end in each.ends.items()}


def _read(write: OpenWrite, origin: str) -> _Stated | None:
    """Return what this origin stated; None if the log never took part."""
    text = read_note(write, _NOTE)
    if text is None:
        return None
    stated = _stated.decode(text)
    holds = stated.origin == origin and (not stated.event or write.get(stated.event) is not None)
    return stated if holds else _Stated(origin)


def _put(write: OpenWrite, stated: _Stated) -> None:
    write.put(NOTES, {_NOTE: msgspec.json.encode(stated)})


def _earlier(write: OpenWrite, origin: str) -> list[Known]:
    """Return what the log knew when it made its own events, from the order of their positions."""
    chains: Mapping[str, object] = write.stored.chains()
    if origin not in chains or len(chains) == 1:
        return []
    found: list[Known] = []
    ends: dict[str, int] = {}
    grown: dict[str, int] = {}
    for slot in write.stored.slots():
        event = slot if isinstance(slot, Purged) else unpack(slot).event
        if event.origin != origin:
            if event.origin_seq == ends.get(event.origin, 0) + 1:
                ends[event.origin] = grown[event.origin] = event.origin_seq
        elif grown:
            found.append(Known(grown, event.origin_seq))
            grown = {}
    return found[-_EARLIER_MAX:]
