"""Verify groups in the form in which they are stored: each event is decoded once, and each hash is computed once.

The commitments and hashes of a group are computed from what is stored. The group also has the hash that its last
event had when it was recorded. If the two are equal, all of its events are as they were recorded; if not, one of them
was changed, and the group is reported as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from everlog.core.event import START, Position, Purged
from everlog.core.group import GROUP_MAX, EventLink, Group, GroupFacts, StoredEvent
from everlog.errors import Damaged
from everlog.log.verify.audit import Verifier
from everlog.stores.contract import Problem

_Entry = tuple[Position, Purged | tuple[StoredEvent, EventLink, str]]
_first = itemgetter(0)


def take_groups(audit: Verifier, found: Iterable[Group | Purged], *, upto: Position) -> Iterator[Position]:
    """Have every slot up to a position verified, in order, and yield the position that was reached after each group.

    What a purge left of a group may come before or after the group.
    """
    waiting: list[_Entry] = []
    for item in found:
        if isinstance(item, Purged):
            waiting.append((item.position, item))
            start = Position(item.position - GROUP_MAX)  # it may be of a group that comes next
            if len(waiting) % GROUP_MAX:
                continue
            entries: list[_Entry] = []
        else:
            entries = _entries(audit, item)
            if not entries:
                continue
            start = entries[0][0]
            if start > upto:
                break  # it came while the rest was read
        waiting = _take_below(audit, waiting, start) + entries
        yield start
    _take_below(audit, waiting, Position(upto + 1))


def _take_below(audit: Verifier, waiting: list[_Entry], start: Position) -> list[_Entry]:
    """Have what lies before a position verified, and return the rest."""
    waiting.sort(key=_first)
    done = len(waiting)
    while done and waiting[done - 1][0] >= start:
        done -= 1
    for _, entry in waiting[:done]:
        if isinstance(entry, Purged):
            audit.take(entry)
        else:
            audit.take_linked(*entry)
    return waiting[done:]


def _entries(audit: Verifier, group: Group) -> list[_Entry]:
    facts = group.facts
    entries: list[_Entry] = []
    linked: list[tuple[StoredEvent, EventLink]] = []
    try:
        linked.extend((stored, link) for stored, _, link in group.linked())
    except Damaged as error:
        audit.report(Problem(Position(error.details.get("position", 0)), "unreadable", error.why))
    changed = group_changed(facts, linked)
    if changed is not None:
        audit.report(changed)
        # The rest of the chain is compared with the hash that was recorded, so that one change is reported once.
        linked[-1] = (linked[-1][0], linked[-1][1]._replace(hash=facts.hash))
    entries.extend((stored.recorded.position, (stored, link, facts.origin)) for stored, link in linked)
    return entries


def group_changed(facts: GroupFacts, linked: Sequence[tuple[StoredEvent, EventLink]]) -> Problem | None:
    """Return what is wrong if the events of a group do not lead to the hash that was recorded."""
    if not linked:
        return None
    (first, _), (last, link) = linked[0], linked[-1]
    if last.recorded.event.origin_seq != facts.first_seq + facts.count - 1 or link.hash == facts.hash:
        return None  # the last one was purged, and its stub has the hash; or all is well
    start, end = first.recorded.position, last.recorded.position
    reason = "what is stored here is not what was recorded: the hash of the last event is another one"
    return Problem(start, "group_changed", reason, upto=end if end > start else START)
