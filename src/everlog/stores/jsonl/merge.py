"""Merge two versions of one day file, such as those of two clones of a repository.

A day file is a set of lines, and the union of two sets depends on neither their order nor their grouping. So the
result is a function of the set alone, down to the byte: each id once, in the causal order `(lamport, id)`. In
whatever order clones merge, all end with the same file. The common ancestor is not used: no line is ever removed, and
if one was, the removal is not followed.

Two lines of one event may differ. A purged line wins over the event, and an erased one over one with its payload, if
it names what allowed it; else the complete event wins. Of two lines that differ only in how the event was recorded,
the one with the lesser bytes wins. The signature of a group stays, whichever line had it. One id with two contents is
refused, and so is an unreadable line: the caller must then leave both sides unchanged.

`batch` marks are removed from the merged file. They distinguish a torn write at the end of a file from a complete
one. Lines that two clones have committed are not torn, and a mark among lines of other writes would be misleading.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from everlog.core.text import counted
from everlog.errors import BadFile, IdConflict
from everlog.stores.jsonl.day_files import scan
from everlog.stores.jsonl.lines import (
    EventLine,
    Line,
    PurgedLine,
    PurgeLine,
    SignedGroup,
    causal_order,
    ended,
    purged_line,
)

PROBLEMS_MAX = 20

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class _Stated:
    """A line, its bytes without a batch mark and without the signature of a group, its file and number, and that
    signature."""

    line: Line
    data: bytes
    place: str
    group: SignedGroup | None = None

    @property
    def whole(self) -> bytes:
        """The bytes of the line, with the signature of a group."""
        if self.group is None:
            return self.data
        if isinstance(self.line, PurgedLine):
            return purged_line(msgspec.structs.replace(self.line, group=self.group))
        members = _members(self.data) | {"group": msgspec.Raw(msgspec.json.encode(self.group))}
        del members["xsum"]
        return ended(msgspec.json.encode(dict(sorted(members.items()))))


def merge_day_files(name: str, ours: bytes, theirs: bytes) -> bytes:
    """Return the day file with the lines of both sides. Raise BadFile or IdConflict if something would be lost."""
    problems: list[str] = []
    sides = [_lines_of(data, f"{name} ({side})", problems) for data, side in ((ours, "ours"), (theirs, "theirs"))]
    if problems:
        raise BadFile(
            f"{name} cannot be merged: {counted(len(problems), 'line is', 'lines are')} wrong",
            why="\n".join(problems[:PROBLEMS_MAX]),
            hint="repair the file in its branch, commit, and merge again; nothing was changed",
            path=name,
            problems=problems[:PROBLEMS_MAX],
        )
    united: dict[str, _Stated] = {}
    for side in sides:
        for stated in side:
            before = united.get(stated.line.id)
            united[stated.line.id] = stated if before is None else _one_of(before, stated)
    return b"".join(each.whole for each in sorted(united.values(), key=lambda each: causal_order(each.line)))


def _lines_of(data: bytes, name: str, problems: list[str]) -> list[_Stated]:
    stated = []
    for number, found in enumerate(scan(data), 1):
        if found.line is None:
            problems.append(f"{name}:{number}: {found.reason}")
            continue
        text = data[found.at : found.at + found.size]
        group = None if isinstance(found.line, PurgeLine) else found.line.group
        bare = text + b"\n" if found.batch is None and group is None else _bare(text, found.line)
        stated.append(_Stated(found.line, bare, f"{name}:{number}", group))
    return stated


def _bare(text: bytes, line: Line) -> bytes:
    """Return the line without its batch mark and its group. Every other member keeps its bytes."""
    if isinstance(line, PurgedLine):
        return purged_line(msgspec.structs.replace(line, group=None))
    members = _members(text)
    for name in ("batch", "group", "xsum"):
        members.pop(name, None)
    return ended(msgspec.json.encode(members))


def _one_of(one: _Stated, other: _Stated) -> _Stated:
    """Return which of two lines with the same id stays, in whichever order they are given."""
    if one.data != other.data and not _speak_of_the_same(one.line, other.line):
        raise IdConflict(
            f"the id {one.line.id} has two contents: {one.place} and {other.place}",
            why=f"an id identifies one event for ever. {_excerpt(one)}, and {_excerpt(other)}",
            hint="find out which one is right, remove the other line in its branch, commit, and merge again",
            id=one.line.id,
            lines=[one.place, other.place],
        )
    groups = [each.group for each in (one, other) if each.group is not None]
    return replace(min(one, other, key=_preference), group=min(groups, key=msgspec.structs.astuple, default=None))


def _speak_of_the_same(one: Line, other: Line) -> bool:
    if isinstance(one, PurgeLine) or isinstance(other, PurgeLine):
        return False  # a purge is written once, by one log
    if _hash(one) != _hash(other):
        return False
    if isinstance(one, EventLine) and isinstance(other, EventLine) and not (_erased(one) or _erased(other)):
        return (bytes(one.payload), one.salt) == (bytes(other.payload), other.salt)
    return True


def _hash(line: EventLine | PurgedLine) -> bytes:
    return line.hash if isinstance(line, PurgedLine) else line.hash()


def _erased(line: EventLine) -> bool:
    return not line.salt and bytes(line.payload) == b"{}"


def _preference(stated: _Stated) -> tuple[int, str, bytes]:
    """Prefer the line that holds less of the event: what was removed must not come back.

    But a line that lacks its payload, and names nothing that allowed it, loses against the complete event.
    """
    line = stated.line
    if isinstance(line, PurgedLine):
        return 0, line.purge, stated.data
    if isinstance(line, EventLine) and _erased(line):
        return (1 if line.erased_by else 3), "", stated.data
    return 2, "", stated.data


def _excerpt(stated: _Stated) -> str:
    line = stated.line
    match line:
        case EventLine():
            return f"{stated.place} says {line.type} on {line.stream} by {line.actor}"
        case PurgedLine():
            return f"{stated.place} says that it was purged by {line.purge}"
        case PurgeLine():
            return f"{stated.place} says that {line.stream} was purged by {line.actor}"
