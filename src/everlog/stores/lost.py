"""Positions that nothing accounts for: finding them, and the error that every reader gets."""

from __future__ import annotations

from collections.abc import Iterable

from everlog.errors import Damaged

UNACCOUNTED = "no event and no purge accounts for it"


def lost(first: int, last: int, *, why: str = UNACCOUNTED, file: str = "") -> Damaged:
    """The positions from `first` to `last` cannot be read, or some of them; a reader continues after `last`."""
    place = f"position {first}" if first == last else f"positions {first} to {last}"
    found = {"file": file} if file else {}
    return Damaged(
        f"the log is damaged at {place}", why=why, hint="everlog verify", position=first, after=last, **found
    )


def first_gap(there: Iterable[int], low: int, high: int, *, newest_first: bool = False) -> tuple[int, int] | None:
    """The first positions above `low` up to `high` that are not among those that are there; the last ones with
    `newest_first`. The range may be a damaged number, so nothing here takes longer than `there` is."""
    places = sorted(place for place in set(there) if low < place <= high)
    if newest_first:
        expected = high
        for place in reversed(places):
            if place != expected:
                return place + 1, expected
            expected = place - 1
        return (low + 1, expected) if expected > low else None
    expected = low + 1
    for place in places:
        if place != expected:
            return expected, place - 1
        expected = place + 1
    return (expected, high) if expected <= high else None
