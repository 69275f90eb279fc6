"""The events of one request, side by side again in an index that is made from nothing.

A claim names a request's first event and how many there are, and they are found by their positions. In the file that
was written they stand side by side. After a merge the lines of all clones are in causal order, and those of others
may stand between them. An index that is made anew gives new positions to all, so it can give neighbouring ones to
these: they were written at once, and nothing in between can have come before one of them and after another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator

from everlog.stores.jsonl.day_files import Found
from everlog.stores.jsonl.lines import EventLine, PurgedLine

Placed = tuple[int, Found]
"""A line and the number of its file."""


def side_by_side(lines: Iterable[Placed], own: Collection[str]) -> Iterator[Placed]:
    """The same lines, those of a request of ours without others in between."""
    coming = iter(lines)
    put_off: deque[Placed] = deque()
    while (placed := put_off.popleft() if put_off else next(coming, None)) is not None:
        yield placed
        file, found = placed
        line = found.line
        # A line with a batch mark was not merged: its write stands as it was written.
        if not isinstance(line, (EventLine, PurgedLine)) or not line.claims or found.batch is not None:
            continue
        if line.via or line.origin not in own:
            continue
        wanted, end = line.origin_seq + 1, line.origin_seq + max(line.claims.values())
        others: deque[Placed] = deque()
        while wanted < end and (after := put_off.popleft() if put_off else next(coming, None)) is not None:
            number = _number(after[1], line.origin)
            if number == wanted:
                yield after
                wanted += 1
                continue
            others.append(after)
            if after[0] != file or number > wanted:
                break  # a write is in one file, and in order: the rest is lost
        put_off.extendleft(reversed(others))


def _number(found: Found, origin: str) -> int:
    """The line's number among those of an origin, 0 if it is of another one."""
    line = found.line
    return line.origin_seq if isinstance(line, (EventLine, PurgedLine)) and line.origin == origin else 0
