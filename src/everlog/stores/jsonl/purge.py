"""Purge: remove the bytes of a stream's events from the day files, and leave one line per event in its place.

    1  local/purge.json lists what will be removed           durable, but nothing has changed yet
    2  the purge's own line is appended                      from here on the purge is committed
    3  each file that holds such events is rewritten to a new file, which is renamed over the old one
    4  the notes are rewritten without expired and replaced ones: they may hold text of the events
    5  local/purge.json is removed

After a crash, the next process that opens the log finishes steps 3 to 5 if the purge's line exists; otherwise it
removes local/purge.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from everlog.core.event import Purged
from everlog.core.ids import EventId
from everlog.files import Files, replace_file
from everlog.stores.jsonl.day_files import day_names, read_from, scan
from everlog.stores.jsonl.lines import EventLine, PurgedLine, PurgeLine, purged_line


class Plan(msgspec.Struct, frozen=True):
    """What a purge will remove."""

    purges: list[PurgeLine]
    purged: list[PurgedLine]


def plan_of(purges: list[tuple[PurgeLine, list[Purged]]]) -> Plan:
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
    )


def write_plan(files: Files, path: Path, plan: Plan) -> None:
    replace_file(files, path, msgspec.json.encode(plan))


def read_plan(files: Files, path: Path) -> Plan | None:
    """Return the plan that a crash may have left."""
    return msgspec.json.decode(files.read_all(path), type=Plan) if files.exists(path) else None


def pending_lines(files: Files, path: Path) -> list[PurgedLine]:
    """Return the purged lines of an interrupted purge."""
    plan = read_plan(files, path)
    return [] if plan is None else plan.purged


def carry_out(files: Files, events: Path, plan: Plan) -> None:
    """Rewrite every file that still holds one of the events."""
    going = {line.id: line for line in plan.purged}
    for name in day_names(files, events):
        data = read_from(files, events / name)
        if any(event_id.encode() in data for event_id in going):
            rest = _without(data, going)
            if rest != data:
                replace_file(files, events / name, rest)


def _without(data: bytes, going: Mapping[EventId, PurgedLine]) -> bytes:
    kept: list[bytes] = []
    for found in scan(data):
        line = found.line
        gone = going.get(line.id) if isinstance(line, EventLine) else None
        if gone is None or not isinstance(line, EventLine):
            kept.append(data[found.at : found.end])
        else:
            kept.append(
                purged_line(
                    msgspec.structs.replace(gone, claims=line.claims, via=line.via),
                    batch=found.batch,
                )
            )
    return b"".join(kept)
