"""Verify groups in the form in which they are stored: each event is decoded once, and each hash is computed once.

The commitments and hashes of a group are computed from what is stored. The group also has the hash that its last
event had when it was recorded. If the two are equal, all of its events are as they were recorded; if not, one of them
was changed, and the group is reported as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

from everlog.core.event import START, Position, Purged
from everlog.core.group import GROUP_MAX, EventLink, Group, GroupFacts, StoredEvent
from everlog.errors import Damaged
from everlog.log.verify.audit import Verifier
from everlog.log.verify.signatures import Signatures
from everlog.stores.contract import Problem


class _Run(NamedTuple):
    """The events of one group."""

    position: Position  # of the first one
    last: Position
    facts: GroupFacts
    linked: list[tuple[StoredEvent, EventLink]]


_position = attrgetter("position")


def take_groups(audit: Verifier, found: Iterable[Group | Purged], *, upto: Position) -> Iterator[Position]:
    """Have every slot up to a position verified, in order, and yield the position that was reached after each group.

    What a purge left of a group may come before or after the group.
    """
    waiting: list[_Run | Purged] = []
    for item in found:
        if isinstance(item, Purged):
            waiting.append(item)
            start = Position(item.position - GROUP_MAX)  # it may be of a group that comes next
            if len(waiting) % GROUP_MAX == 0:
                waiting = _take_below(audit, waiting, start)
                yield start
            continue
        run, problems = _run(item, audit.signatures)
        if run is not None and run.position > upto:
            break  # it came while the rest was read
        for problem in problems:
            if problem.position <= upto:
                audit.report(problem)
        if run is None:
            continue
        if run.last > upto:
            linked = [pair for pair in run.linked if pair[0].recorded.position <= upto]
            run = run._replace(last=upto, linked=linked)
        waiting = [*_take_below(audit, waiting, run.position), run]
        yield run.position
    _take_below(audit, waiting, Position(upto + 1))


def _take_below(audit: Verifier, waiting: list[_Run | Purged], start: Position) -> list[_Run | Purged]:
    """Have what lies before a position verified, and return the rest."""
    if len(waiting) == 1 and isinstance(waiting[0], _Run) and waiting[0].last < start:
        audit.take_run(waiting[0].linked, waiting[0].facts)
        return []
    waiting.sort(key=_position)
    done = len(waiting)
    while done and _end(waiting[done - 1]) >= start:
        done -= 1
    slots: list[tuple[Position, Purged | tuple[StoredEvent, EventLink, GroupFacts]]] = []
    for item in waiting[:done]:
        if isinstance(item, Purged):
            slots.append((item.position, item))
        else:
            slots += [(stored.recorded.position, (stored, link, item.facts)) for stored, link in item.linked]
    slots.sort(key=itemgetter(0))
    for _, slot in slots:
        if isinstance(slot, Purged):
            audit.take(slot)
        else:
            audit.take_linked(*slot)
    return waiting[done:]


def _end(item: _Run | Purged) -> Position:
    return item.last if isinstance(item, _Run) else item.position


def _run(group: Group, signatures: Signatures | None) -> tuple[_Run | None, list[Problem]]:
    """Return the events of a group with their hashes, and what is wrong with the group as a whole."""
    facts = group.facts
    linked: list[tuple[StoredEvent, EventLink]] = []
    problems: list[Problem] = []
    try:
        linked.extend([(stored, link) for stored, _, link in group.linked()])
    except Damaged as error:
        problems.append(Problem(Position(error.details.get("position", 0)), "unreadable", error.why))
    if signatures is not None and not problems:
        problems += signatures.of_group(group, linked)
    if not linked:
        return None, problems
    changed = group_changed(facts, linked)
    if changed is not None:
        problems.append(changed)
        # The rest of the chain is compared with the hash that was recorded, so that one change is reported once.
        linked[-1] = (linked[-1][0], linked[-1][1]._replace(hash=facts.hash))
    first, last = linked[0][0].recorded.position, linked[-1][0].recorded.position
    return _Run(first, last, facts, linked), problems


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
