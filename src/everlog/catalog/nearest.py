"""The known name that a mistyped one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X?` for the nearest known name, or nothing when none is near."""
    import difflib  # only a mistake needs it, and it would cost every start of the program

    names = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[near[0]]}?" if near else ""
