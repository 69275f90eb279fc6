"""Uniting two states of one day file, such as two clones of a repository have.

A day file is a set of lines, and the union of two sets depends on neither their order nor their grouping. So the
result is a function of the set alone, down to the byte: each id once, in the causal order `(lamport, id)`. Whoever
merges whom, and in which order, every clone ends with the same file. For the common ancestor there is no use: nobody
removes a line, and whoever did is not followed.

Two lines may speak of one event and differ. What a purge left of it wins over the event; of two lines that differ
only in how the event was recorded, the lesser bytes win. The same id with another content is refused, and so is a
line that cannot be read: the caller then has to leave both sides as they are.

`batch` marks are left out of what is united. They tell a torn write from a whole one at the end of a file, and lines
that two clones have committed are not torn; a mark among lines of others could only mislead.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from everlog.core.codec import header_bytes, header_hash
from everlog.core.counted import counted
from everlog.errors import BadFile, IdConflict
from everlog.stores.jsonl.day_files import scan
from everlog.stores.jsonl.lines import EventLine, Line, PurgedLine, PurgeLine, causal_order, ended

PROBLEMS_MAX = 20

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class _Stated:
    """A line, what it says without a batch mark, and where it stands."""

    line: Line
    data: bytes
    place: str


def merge_day_files(name: str, ours: bytes, theirs: bytes) -> bytes:
    """The day file with the lines of both sides; BadFile or IdConflict if they cannot be united without a loss."""
    problems: list[str] = []
    sides = [_lines_of(data, f"{name} ({side})", problems) for data, side in ((ours, "ours"), (theirs, "theirs"))]
    if problems:
        raise BadFile(
            f"{name} cannot be merged: {counted(len(problems), 'line is', 'lines are')} wrong",
            why="\n".join(problems[:PROBLEMS_MAX]),
            hint="mend the file in the branch that has it so, commit, and merge again; nothing was changed",
            path=name,
            problems=problems[:PROBLEMS_MAX],
        )
    united: dict[str, _Stated] = {}
    for side in sides:
        for stated in side:
            before = united.get(stated.line.id)
            united[stated.line.id] = stated if before is None else _one_of(before, stated)
    return b"".join(each.data for each in sorted(united.values(), key=lambda each: causal_order(each.line)))


def _lines_of(data: bytes, name: str, problems: list[str]) -> list[_Stated]:
    stated = []
    for number, found in enumerate(scan(data), 1):
        if found.line is None:
            problems.append(f"{name}:{number}: {found.reason}")
            continue
        text = data[found.at : found.at + found.size]
        whole = text + b"\n" if found.batch is None else _without_mark(text)
        stated.append(_Stated(found.line, whole, f"{name}:{number}"))
    return stated


def _without_mark(text: bytes) -> bytes:
    """The line as if it had been written alone. Every other member keeps its bytes."""
    members = _members(text)
    del members["batch"], members["whole"]
    return ended(msgspec.json.encode(members))


def _one_of(one: _Stated, other: _Stated) -> _Stated:
    """Which of two lines of the same id stays: the same answer whichever comes first."""
    if one.data == other.data:
        return one
    if not _speak_of_the_same(one.line, other.line):
        raise IdConflict(
            f"the id {one.line.id} stands for two things: {one.place} and {other.place}",
            why=f"an id names one event for ever. {_excerpt(one)}, and {_excerpt(other)}",
            hint="find out which one is right, remove the other line in its branch, commit, and merge again",
            id=one.line.id,
            lines=[one.place, other.place],
        )
    return min(one, other, key=_preference)


def _speak_of_the_same(one: Line, other: Line) -> bool:
    if isinstance(one, PurgeLine) or isinstance(other, PurgeLine):
        return False  # a purge is written once, by one log
    if _hash(one) != _hash(other):
        return False
    if isinstance(one, EventLine) and isinstance(other, EventLine) and not (_erased(one) or _erased(other)):
        return (one.payload, one.salt) == (other.payload, other.salt)
    return True


def _hash(line: EventLine | PurgedLine) -> bytes:
    return line.hash if isinstance(line, PurgedLine) else header_hash(header_bytes(line.event()))


def _erased(line: EventLine) -> bool:
    return not line.salt and not line.payload


def _preference(stated: _Stated) -> tuple[int, str, bytes]:
    """The less is left of an event, the better: what was removed must not come back."""
    line = stated.line
    if isinstance(line, PurgedLine):
        return 0, line.purge, stated.data
    return 1 if isinstance(line, EventLine) and _erased(line) else 2, "", stated.data


def _excerpt(stated: _Stated) -> str:
    line = stated.line
    match line:
        case EventLine():
            return f"{stated.place} says {line.type} on {line.stream} by {line.actor}"
        case PurgedLine():
            return f"{stated.place} says that it was purged by {line.purge}"
        case PurgeLine():
            return f"{stated.place} says that {line.stream} was purged by {line.actor}"
