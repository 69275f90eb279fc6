"""What caused an event: the chain of `causation_id`, as far as this log knows it."""

from __future__ import annotations

from collections.abc import Callable

from everlog.core.event import Recorded
from everlog.core.ids import one_spelling
from everlog.errors import InvalidField

CAUSES_MAX = 50


def causes_of(get: Callable[[str], Recorded | None], recorded: Recorded) -> tuple[tuple[Recorded, ...], str]:
    """Return what caused an event, and what caused that; and the id at the end that names no event of this log.

    `get` is `Log.get`.
    """
    causes: list[Recorded] = []
    seen = {str(recorded.event.id)}
    wanted = one_spelling(recorded.event.causation_id)
    while wanted and wanted not in seen and len(causes) < CAUSES_MAX:
        seen.add(wanted)
        try:
            found = get(wanted)
        except InvalidField:  # a cause may be named by anything, such as a request of another program
            found = None
        if found is None:
            last = causes[-1] if causes else recorded
            return tuple(causes), last.event.causation_id  # as it was given
        causes.append(found)
        wanted = one_spelling(found.event.causation_id)
    return tuple(causes), ""
