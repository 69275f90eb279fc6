"""How concurrent changes of one stream merge, if a type declares it: see docs/how-to/nodes/conflicts.md.

Without a declaration the greater `(lamport, id)` wins, and the two changes are a conflict. The folds for each of
these ways are in `everlog.views.merge`.
"""

from __future__ import annotations

from everlog.errors import SchemaBroken

MERGES = ("union", "counter", "keep-both")


def refuse_other_merge(event_type: str, merge: str, known: str) -> None:
    """Refuse a way to merge that does not exist, or a second one for the same type."""
    if merge not in MERGES:
        raise SchemaBroken(
            f"{event_type} declares merge = {merge!r:.40}",
            why=f"concurrent changes merge as {', '.join(MERGES)}, or the greater (lamport, id) wins",
            hint=f"give one of {', '.join(MERGES)}, or leave merge out",
            type=event_type,
        )
    if known and known != merge:
        raise SchemaBroken(
            f"{event_type} declares merge = {merge!r} and merge = {known!r}",
            why="a type merges in one way, in all of its versions",
            hint="keep one of them",
            type=event_type,
        )
