"""The format of what is stored: its number, and the refusal of every other one.

The number changes when a table, a frame or a line changes. `tests/stores/test_fingerprint.py` fails when one of them
changes and the number does not.
"""

from __future__ import annotations

from everlog.errors import NewerFormat, OlderFormat

FORMAT = 2
"""The format that this code reads and writes. A log in another one is refused, never read as empty."""

FINGERPRINT = "1eb17f8b65acd199"
"""Of the tables, frames and lines of this format, as `tests/stores/test_fingerprint.py` computes it. Format 2 is not
released yet; until then a change is recorded here. Afterwards it needs another number."""

UPGRADED = "upgrade/report"
"""The note that an upgrade leaves: the format, the head and the digest that the log had before."""

COPIED = "upgrade/copied"
"""The note of a copy from a log in git, which has no note of the upgrade: the last position purged in format 1."""


def refuse_other_format(where: str, found: int) -> None:
    """Refuse a log in a format that this code cannot read, before anything else is asked of it."""
    if found > FORMAT:
        raise NewerFormat(
            f"{where} has format {found}, this everlog reads format {FORMAT}",
            why="it was written by a newer everlog",
            hint="install a newer everlog; the log was not touched",
            path=where,
            format=found,
        )
    if found < FORMAT:
        raise OlderFormat(
            f"{where} has format {found}, this everlog reads format {FORMAT}",
            why="it was written by an older everlog",
            hint="everlog upgrade carries everything over and keeps the old files; the log was not touched",
            path=where,
            format=found,
        )
