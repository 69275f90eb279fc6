"""The conflicts of a log: list them, record those that this log lost, and decide one otherwise."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from everlog.catalog.builtin import DETECTED, RESOLVED, ConflictDetected, ConflictResolved
from everlog.core.event import Recorded
from everlog.core.ids import parse_id
from everlog.core.query import Query
from everlog.errors import InvalidField, NotFound, WrongSequence
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect
from everlog.log.write.knows import STREAMS
from everlog.views.conflicts import PAIRS, Conflict, Conflicts, changes_in, conflicts_of, with_records


def conflicts(log: Log, streams: Collection[str] | None = None) -> list[Conflict]:
    """Return the conflicts of a log, or of some streams, in order of the streams."""
    view = log.view(Conflicts)
    rows = view.items() if streams is None else sorted(view.get_many(streams).items())
    merge_of = log.catalog.merge_of
    several = {stream: changes for stream, row in rows if len(changes := changes_in(row, merge_of)) > 1}
    origins = {STREAMS + origin for changes in several.values() for origin in changes}
    stated = view.get_many(origins, fresh=False)
    knows = {stream.removeprefix(STREAMS): row.get("knows", {}) for stream, row in stated.items()}
    found = [one for stream, changes in several.items() for one in conflicts_of(stream, changes, knows)]
    pairs = view.get_many([PAIRS + one.conflict for one in found], fresh=False)
    return [with_records(one, pairs.get(PAIRS + one.conflict, {}).get("pair", {})) for one in found]


def record_detected(log: Log, streams: Collection[str] | None = None) -> list[Recorded]:
    """Record the conflicts that changes of this log lost, each once. To be called when something has arrived."""
    recorded: list[Recorded] = []
    for one in conflicts(log, streams):
        if one.detected or one.resolved or not log.identity.made(one.loser_origin):
            continue
        payload = ConflictDetected(stream=one.stream, winner=one.winner, loser=one.loser)
        draft = Draft(DETECTED, PAIRS + one.conflict, payload, expect=Expect.NONE, causation_id=one.winner)
        with suppress(WrongSequence):  # another process was faster, or somebody resolved it
            recorded += log.writer.commit([draft], operation=DETECTED, retried=(WrongSequence,)).records
    return recorded


def resolve(log: Log, conflict: str, *, winner: str = "", reason: str = "", actor: str = "") -> Recorded:
    """Record which change of a conflict counts; without `winner`, the one that loses now. If that was decided before,
    return that decision: without `winner`, the last one."""
    one = next((each for each in conflicts(log) if each.conflict == conflict), None)
    if one is None:
        raise NotFound(
            f"there is no conflict {conflict}",
            why="no two concurrent changes of a stream have these ids",
            hint="everlog conflicts",
        )
    chosen = parse_id(winner) if winner else one.loser
    if chosen not in (one.winner, one.loser):
        raise InvalidField(
            f"the winner {chosen} is not part of the conflict",
            why=f"its changes are {one.winner} and {one.loser}",
            hint=f"everlog conflicts resolve {conflict} --winner {one.loser}",
            field="winner",
        )
    if one.resolved and (not winner or chosen == one.winner):
        stream = Query(stream=PAIRS + conflict, types=frozenset((RESOLVED,)))
        decided = (done for done in log.read(stream, newest_first=True) if done.event.payload["winner"] == one.winner)
        return next(decided)
    lost = one.winner if chosen == one.loser else one.loser
    payload = ConflictResolved(stream=one.stream, winner=chosen, loser=lost, reason=reason)
    return log.append(RESOLVED, stream=PAIRS + conflict, payload=payload, actor=actor, causation_id=lost)
