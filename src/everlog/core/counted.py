"""How many of a thing, as people say it: one helper, so that no message has "1 events"."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """The number and the word that goes with it; `many` where it is not just an s more.

    >>> counted(1, "event"), counted(1200, "event"), counted(0, "line is", "lines are")
    ('1 event', '1,200 events', '0 lines are')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
