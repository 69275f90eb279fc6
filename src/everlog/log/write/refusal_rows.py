"""A refusal as it is kept: rows of the small state, and before that a line of the file in which it waits.

    refusal/<id>                the refusal
    refused/<minute>/<actor>    how many an actor had in a minute; the first 100 of them are recorded
    refusals/taken              which content of the file is in the rows already, and how many lines were damaged

The write that takes the lines of the file sets all these rows at once and then removes the lines. If it is killed
between the two, the next write finds the refusals in the rows. Some lines make no row: those that are only counted,
damaged, or about a stream that is purged. For these, `refusals/taken` shows that nothing is left to take.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from everlog.core.event import Purge
from everlog.core.ids import EventId
from everlog.log.forgotten import forgets_in
from everlog.stores.small_state import NOTES, Row, RowReader, StoreState, read_note
from everlog.stores.waiting_lines import WaitingLines

KEPT_US = 90 * 24 * 60 * 60 * 1_000_000
PER_MINUTE = 100
"""So many refusals of an actor are recorded in a minute; the rest are counted."""

MINUTE_US = 60_000_000
PREFIX = "refusal/"
COUNTED = "refused/"
_TAKEN = "refusals/taken"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded no."""

    id: EventId
    code: str
    stream: str
    type: str
    actor: str
    operation: str
    reason: str
    hint: str
    refused_at: datetime
    context: dict[str, Any] = {}
    scope: str | msgspec.UnsetType = msgspec.UNSET  # what the caller was limited to, or the scope of the event


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """How many refusals of an actor there were in a minute: the first of them are recorded, all are counted."""

    actor: str
    minute: int  # since 1970
    count: int

    @property
    def left_out(self) -> int:
        return max(0, self.count - PER_MINUTE)

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.minute * 60, UTC)


class Waiting(msgspec.Struct, omit_defaults=True):
    """A refusal that is not in a row yet; or, without its text, how many more there were than are recorded."""

    counted: str  # the row that counts it
    actor: str
    minute: int
    times: int = 1
    key: str = ""
    stream: str = ""
    expires_us: int = 0
    refusal: msgspec.Raw = msgspec.Raw(b"")  # the bytes of the row, if it has a key

    @property
    def refused_us(self) -> int:
        return self.expires_us - KEPT_US


class _Taken(msgspec.Struct, frozen=True):
    size: int = 0
    sha256: str = ""
    damaged: int = 0

    def covers(self, data: bytes) -> bool:
        return 0 < self.size <= len(data) and hashlib.sha256(data[: self.size]).hexdigest() == self.sha256


class NotTaken(NamedTuple):
    """The content of the file, and what of it is not in the rows yet."""

    data: bytes
    waiting: Sequence[Waiting]
    damaged: int  # lines of it that cannot be read, and all earlier ones
    taken: _Taken

    @property
    def newly_damaged(self) -> int:
        return self.damaged - self.taken.damaged


def counted_key(actor: str, minute: int) -> str:
    """Return the key of a count, by time. The actor may be the very thing that was wrong: a hash stands for it."""
    return f"{COUNTED}{minute:012d}/{hashlib.sha256(actor.encode(errors='backslashreplace')).hexdigest()[:16]}"


def counted_of(text: str | bytes) -> Counted:
    return msgspec.json.decode(text, type=Counted)


def not_taken(state: RowReader, lines: WaitingLines, data: bytes) -> NotTaken:
    """Return what a content of the file has that is not in the rows yet."""
    text = read_note(state, _TAKEN)
    taken = _Taken() if text is None else msgspec.json.decode(text, type=_Taken)
    good, damaged = lines.lines_of(data[taken.size :] if taken.covers(data) else data)
    waiting = []
    for line in good:
        one = _waiting_of(line)
        if one is None:
            damaged += 1
        else:
            waiting.append(one)
    return NotTaken(data, waiting, taken.damaged + damaged, taken)


def _waiting_of(line: bytes) -> Waiting | None:
    """Return what a line says, or None if it would not make rows that can be read."""
    try:
        one = msgspec.json.decode(line, type=Waiting)
        if one.key and one.key != PREFIX + msgspec.json.decode(one.refusal, type=Refusal).id:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return one if one.counted.startswith(COUNTED) else None


def are_all_rows(state: RowReader, found: NotTaken) -> bool:
    """Return whether every line has its own row now."""
    there = state.rows(NOTES, {one.key for one in found.waiting if one.key})
    return len(there) == len(found.waiting) and not found.newly_damaged


def taken_row(found: NotTaken, now_us: int) -> Row:
    """Return the row that remembers that a content is in the rows."""
    taken = _Taken(len(found.data), hashlib.sha256(found.data).hexdigest(), found.damaged)
    return Row(NOTES, _TAKEN, msgspec.json.encode(taken), now_us + KEPT_US)


def rows_of(state: RowReader, waiting: Sequence[Waiting]) -> list[Row]:
    """Return the rows that these refusals make in this state: at most 100 per actor and minute, and the counts."""
    if not waiting:
        return []
    there = state.rows(NOTES, {one.counted for one in waiting} | {one.key for one in waiting if one.key})
    counts: dict[str, Counted] = {}
    rows = []
    for one in waiting:
        if one.key in there:
            continue
        before = counts.get(one.counted)
        if before is None:
            text = there.get(one.counted)
            before = Counted(one.actor, one.minute, 0) if text is None else counted_of(text)
        if one.key and before.count < PER_MINUTE:
            rows.append(Row(NOTES, one.key, bytes(one.refusal), one.expires_us))
        counts[one.counted] = Counted(before.actor, before.minute, before.count + one.times)
    for name, counted in counts.items():
        rows.append(Row(NOTES, name, msgspec.json.encode(counted), counted.minute * MINUTE_US + KEPT_US))
    return rows


def without_purged(waiting: Sequence[Waiting], purges: Sequence[Purge], state: RowReader) -> list[Waiting]:
    """Leave out the refusals that a purge of their stream follows, or that somebody was forgotten after: neither may
    have seen where they waited."""
    newest = {purge.stream: purge.purged_us for purge in sorted(purges, key=lambda purge: purge.purged_us)}
    for forget in forgets_in(state):
        for stream in forget.streams:
            newest[stream] = max(forget.at_us, newest.get(stream, 0))
    return [one for one in waiting if not one.key or one.refused_us > newest.get(one.stream, -1)]


def every_note(state: StoreState, purges: Sequence[Purge]) -> list[Row]:
    """Return the notes of a log for a copy, as the next write would leave them: the waiting refusals included."""
    rows: list[Row] = []
    if state.waiting is not None and (data := state.waiting.read()):
        rows = rows_of(state, without_purged(not_taken(state, state.waiting, data).waiting, purges, state))
    notes = {row.key: row for row in state.every_row() if row.space == NOTES and row.key != _TAKEN}
    return [*{**notes, **{row.key: row for row in rows}}.values()]
