"""Why a log of day files is read-only, and what to do about it.

An unreadable line may be the last event of this copy, whose number must not be assigned again (G10).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from everlog.core.text import counted
from everlog.errors import Damaged
from everlog.files import Files
from everlog.stores.jsonl.day_files import read_from
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.bad_lines import BAD, MARKER, UNREADABLE, WINDOWS, code_of
from everlog.stores.jsonl.index.schema import Damage, Index
from everlog.stores.jsonl.lines import CRLF, BadLine, read_line

WITHOUT_MARKERS = (
    "delete only the lines that begin with <<<<<<<, |||||||, ======= or >>>>>>>; every other line is an event, and"
    " both sides stay; then: everlog verify"
)
AROUND = (
    "everlog verify lists all damage; restore the file, with git or from a backup, or read what is left with"
    " --past-damage"
)
_NAMED_MAX = 9


def refuse_damage(folder: Folder, index: Index) -> None:
    """Raise Damaged if a line is unreadable, or a recorded event is in no file any more."""
    bad = [each for each in index.bad_lines() if each[2] in BAD]
    for name, at, code, _ in bad:
        if code == WINDOWS:
            raise _windows_error(
                folder.events, name, line_numbers(folder, name, [at])[0], "and the log takes no writes"
            )
    unreadable = [each for each in bad if each[2] == UNREADABLE]
    for name, at, _, reason in unreadable:
        raise Damaged(
            f"{folder.events / name} is damaged, and the log takes no writes",
            why=f"line {line_numbers(folder, name, [at])[0]}: {reason}",
            hint="everlog verify lists every such line; restore the file, with git or from a backup",
            path=str(folder.events / name),
        )
    if bad:
        name = bad[0][0]
        numbers = line_numbers(folder, name, [at for other, at, _, _ in bad if other == name])
        listed = ", ".join(map(str, numbers[:_NAMED_MAX])) + (" and more" if len(numbers) > _NAMED_MAX else "")
        raise Damaged(
            f"{folder.events / name} has conflict markers of git, and the log takes no writes",
            why=f"a merge was not finished; they are in {'line' if len(numbers) == 1 else 'lines'} {listed}",
            hint=WITHOUT_MARKERS,
            path=str(folder.events / name),
            lines=numbers,
        )
    missing = index.missing()
    if missing:
        raise missing_error(folder, len(missing))


def missing_error(folder: Folder, count: int) -> Damaged:
    return Damaged(
        f"{counted(count, 'event that was', 'events that were')} recorded in {folder.path}"
        f" {'is' if count == 1 else 'are'} in no file any more, and the log takes no writes",
        why="a file was removed or cut, and not by git",
        hint="restore the files, with git or from a backup; or continue without them: everlog index rebuild"
        " --accept-missing",
        count=count,
    )


def damage_error(files: Files, events: Path, damage: Damage) -> Damaged:
    """Return the error of a read at positions that nothing accounts for."""
    file = f"events/{damage.name}"
    where = f"position {damage.first}"
    if damage.last > damage.first:
        where = f"positions {damage.first} to {damage.last}"
    details: dict[str, Any] = {"position": damage.first, "after": damage.last, "file": file}
    what, hint = f"{events.parent} is damaged at {where}", AROUND
    if not damage.name:
        del details["file"]
        why = "a line that could not be read was there"
        hint = "everlog index rebuild closes the gap"
    elif not files.exists(events / damage.name):
        why = f"{file} is missing, with its events"
    else:
        data = read_from(files, events / damage.name)
        number = data.count(b"\n", 0, damage.at) + 1
        if damage.code or damage.at < len(data):
            details["line"] = number
        reason = damage.reason or _what_is_there(data, damage.at)
        why = f"{file} line {number}: {reason}" if reason else f"{file} lacks what was recorded in it"
        if code_of(reason) == WINDOWS:
            return _windows_error(events, damage.name, number, where=where, details=details)
    if damage.code == MARKER:
        what, hint = f"{events / damage.name} has conflict markers of git", WITHOUT_MARKERS
        why = f"a merge was not finished: {why}"
    return Damaged(what, why=why, hint=hint, **details)


def _what_is_there(data: bytes, at: int) -> str:
    """Return what is wrong with the line at the offset of an event, or nothing if there is no line."""
    if at >= len(data) or (at and data[at - 1 : at] != b"\n"):
        return ""
    try:
        read_line(data[at:].partition(b"\n")[0])
    except BadLine as error:
        return str(error)
    return ""


def _windows_error(
    events: Path, name: str, number: int, more: str = "", *, where: str = "", details: dict[str, Any] | None = None
) -> Damaged:
    what = f"{events / name} has the line ends of Windows (CRLF)"
    return Damaged(
        f"{what}, {more}" if more else f"{what}, and cannot be read at {where}",
        why=f"line {number}: {CRLF}",
        hint=f"everlog git install, so that git leaves the line ends alone; then: sed -i 's/\\r$//' {events}/*.jsonl",
        **(details or {"path": str(events / name), "line": number}),
    )


def line_numbers(folder: Folder, name: str, places: list[int]) -> list[int]:
    """Return the numbers of the lines that begin at these bytes, as an editor shows them."""
    data = read_from(folder.files, folder.events / name)
    return [data.count(b"\n", 0, at) + 1 for at in places]
