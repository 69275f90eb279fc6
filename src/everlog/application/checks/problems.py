"""The problems that `verify` finds: one line each or one per kind, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from everlog.core.text import counted
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.log.verify.verify import Report, in_ranges
from everlog.stores.contract import Indexed, InGit, Problem

PROBLEMS_SHOWN = 3
LINES_MAX = 7
"""At most this many lines about problems; with the lines around them, an answer has fewer than 20."""

RESTORE = "keep this file as it is; restore a backup, or save what is left: everlog export left.jsonl --past-damage"
REPAIRED = "no event is lost, and the next write corrects it"
HARMLESS = {
    "conflict_marker": "delete the conflict markers, and no other line: both sides are events and both stay;"
    " then: everlog verify",
    "crlf": "everlog git install, so that git leaves the line ends alone; then take the carriage returns out:"
    " sed -i 's/\\r$//' .everlog/events/*.jsonl",
    "mark_lost": REPAIRED,
    "manifest_damaged": REPAIRED,
    "notes_damaged": "no event is lost; restore the notes, or continue without: docs/how-to/rescue.md",
}
"""Problems that lose no event, and what to do about them."""


class Item(NamedTuple):
    """A line about one problem, or about many problems of one kind."""

    position: int
    place: str
    code: str
    words: str

    @property
    def line(self) -> str:
        return f"{self.place}{' ' if self.place else ''}{self.code}{self.words}"

    @property
    def place_and_reason(self) -> str:
        reason = self.words.removeprefix(": ")
        return f"{self.place} {reason}" if " " in self.place else reason


def summarize(report: Report) -> list[Item]:
    """Return one line per problem; if they are too many, one per kind of problem with its positions and files."""
    problems = report.problems
    if len(problems) + bool(report.unlisted) <= LINES_MAX:
        items = [_item(problem) for problem in problems]
    else:
        groups: dict[tuple[str, str], list[Problem]] = {}
        for by_file in (True, False):
            groups.clear()
            for problem in problems:
                groups.setdefault((problem.code, problem.file if by_file else ""), []).append(problem)
            if len(groups) < LINES_MAX:
                break
        items = [_items(group) for group in groups.values()][: LINES_MAX - 1]
        left = len(problems) - sum(len(group) for group in list(groups.values())[: LINES_MAX - 1])
        if left:
            items.append(
                Item(0, "", "more", f": {counted(left, 'problem')} of other kinds; see everlog verify --json")
            )
    if report.unlisted:
        items.append(Item(0, "", "more", f": {counted(report.unlisted, 'problem')} that are not listed"))
    return items


def describe(problem: Problem) -> str:
    """Return one line about a problem. Without a position it concerns a file or the store; its reason says which."""
    return _item(problem).line


def _item(problem: Problem) -> Item:
    inside = f" in {problem.file}" if problem.file and problem.file not in problem.reason else ""
    return Item(problem.position, _range(problem), problem.code, f"{inside}: {problem.reason}")


def _items(group: list[Problem]) -> Item:
    """Describe many problems of one kind: how many, where, and the reason of the first."""
    first = group[0]
    if len(group) == 1:
        return _item(first)
    places = list(in_ranges(msgspec.structs.replace(each, reason="", file="") for each in group if each.position))
    positions = sum(each.last - each.position + 1 for each in places)
    where = f"{_range(places[0])} … #{places[-1].last}" if len(places) > 1 else _range(places[0]) if places else ""
    files = list(dict.fromkeys(each.file for each in group if each.file))
    inside = f" in {files[0]}" if files else ""
    if len(files) > 1:
        inside += f" and {counted(len(files) - 1, 'more file', 'more files')}"
    many = counted(positions, "position") if positions else counted(len(group), "problem")
    return Item(first.position, where, first.code, f"{inside}, {many}; the first: {first.reason}")


def _range(problem: Problem) -> str:
    if not problem.position:
        return ""
    return f"#{problem.position}" + (f" to #{problem.last}" if problem.last > problem.position else "")


def remedy(problems: Iterable[Problem]) -> str:
    """Return what to do about these problems. Some of them lose nothing and need no backup."""
    codes = {problem.code for problem in problems}
    ways = [way for code, way in HARMLESS.items() if code in codes]
    if codes - HARMLESS.keys():
        ways.append(f"for the rest: {RESTORE}" if ways else RESTORE)
    return "; ".join(dict.fromkeys(ways))


@contextmanager
def no_hint_to_verify() -> Iterator[None]:
    """Replace the hint of a Damaged error that would send the reader to `verify`, which is running already."""
    try:
        yield
    except Damaged as error:
        hint = RESTORE if error.hint.startswith("everlog verify") else error.hint
        raise Damaged(error.what, why=error.why, hint=hint, **error.details) from error


def checked_out(log: Log) -> dict[str, Any] | None:
    """Return the branch, the commit and the epoch of the events, if they are in git."""
    found = log.stored.checkout() if isinstance(log.stored, InGit) else None
    return None if found is None else {**found._asdict(), "epoch": log.identity.epoch}


def bad_lines(log: Log) -> str:
    """Return a warning about lines that are not events, such as conflict markers of an unfinished merge, or ''."""
    store: object = log.stored
    problems = store.bad_lines() if isinstance(store, Indexed) else []
    if not problems:
        return ""
    more = f"; and {len(problems) - 1:,} more" if len(problems) > 1 else ""
    return f"{describe(problems[0])}{more}; {remedy(problems)}"


def not_as_recorded(problems: Sequence[Problem]) -> str:
    """Return a warning about events that differ from what was recorded, or are missing; '' if there are none."""
    if not problems:
        return ""
    listed = "; ".join(f"#{problem.position}: {problem.reason}" for problem in problems[:PROBLEMS_SHOWN])
    more = len(problems) - PROBLEMS_SHOWN
    listed += f"; and {more:,} more" if more > 0 else ""
    return f"this is not what was recorded: {listed}; everlog verify checks the whole log"
