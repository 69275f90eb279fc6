"""Remove bytes from the day files: the events of a purge, and the payloads of an erasure.

    1  local/purge.json lists what will be removed           durable, but nothing has changed yet
    2  the lines of the write are appended                   from here on the removal is committed
    3  each file that holds such events is rewritten to a new file, which is renamed over the old one
    4  the notes are rewritten without expired and replaced ones: they may hold text of the events
    5  local/purge.json is removed

A purged event leaves a line in its place; an erased one keeps its line, without payload and salt. An erasure that
appends no line is committed by step 1. After a crash, the next process that opens the log finishes steps 3 to 5 if
the removal is committed; otherwise it removes local/purge.json.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from everlog.core.event import Purged
from everlog.core.ids import EventId
from everlog.files import Files, replace_file
from everlog.stores.contract import Erasure
from everlog.stores.jsonl.day_files import day_names, read_from, scan
from everlog.stores.jsonl.lines import EventLine, PurgedLine, PurgeLine, erased_line, purged_line


class Plan(msgspec.Struct, frozen=True):
    """What will be removed. It is committed when the log has the line `first` of the write, if that has any."""

    purges: list[PurgeLine]
    purged: list[PurgedLine]
    erased: dict[EventId, EventId] = {}  # the event that allowed each erasure
    first: str = ""

    def is_committed(self, knows: Callable[[str], bool]) -> bool:
        return not self.first or knows(self.first)


NOTHING = Plan([], [])


def plan_of(purges: list[tuple[PurgeLine, list[Purged]]], erasures: Collection[Erasure], first: str) -> Plan:
    return Plan(
        [line for line, _ in purges],
        [
            PurgedLine(
                hash=gone.hash,
                id=gone.id,
                origin=gone.origin,
                origin_seq=gone.origin_seq,
                previous=gone.previous,
                purge=line.id,
                stream=line.stream,
                lamport=gone.lamport,
            )
            for line, removed in purges
            for gone in removed
        ],
        {erasure.id: erasure.by for erasure in erasures},
        first,
    )


def write_plan(files: Files, path: Path, plan: Plan) -> None:
    replace_file(files, path, msgspec.json.encode(plan))


def read_plan(files: Files, path: Path) -> Plan | None:
    """Return the plan that a crash may have left."""
    return msgspec.json.decode(files.read_all(path), type=Plan) if files.exists(path) else None


def unfinished(files: Files, path: Path) -> Plan:
    """Return what an interrupted purge or erasure was to remove."""
    return read_plan(files, path) or NOTHING


def carry_out(files: Files, events: Path, plan: Plan) -> None:
    """Rewrite every file that still holds one of the events."""
    going = {line.id: line for line in plan.purged}
    for name in day_names(files, events):
        data = read_from(files, events / name)
        if any(event_id.encode() in data for event_id in (*going, *plan.erased)):
            rest = _without(data, going, plan.erased)
            if rest != data:
                replace_file(files, events / name, rest)


def _without(data: bytes, going: Mapping[EventId, PurgedLine], erased: Mapping[EventId, EventId]) -> bytes:
    kept: list[bytes] = []
    for found in scan(data):
        line = found.line
        if isinstance(line, EventLine) and line.id in going:
            left = msgspec.structs.replace(going[line.id], claims=line.claims, via=line.via, group=line.group)
            kept.append(purged_line(left, batch=found.batch))
        elif isinstance(line, EventLine) and line.id in erased and line.salt:
            kept.append(erased_line(line, erased[line.id]))
        else:
            kept.append(data[found.at : found.end])
    return b"".join(kept)
