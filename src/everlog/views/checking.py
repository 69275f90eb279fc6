"""Whether a build that was derived elsewhere says what this process derives: some keys are folded again, here.

Two engines run the same code, so that only what is not pure, or other code on another machine, can make them differ.
Then neither can be believed, and the build must not answer.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import TYPE_CHECKING

from everlog.core.counted import counted
from everlog.errors import Damaged
from everlog.stores.shelf import Shelf
from everlog.views import refold
from everlog.views.builder import Builder
from everlog.views.fold import fold, kept_rows, nothing_kept
from everlog.views.rows import Row, kept_state
from everlog.views.states import drop_build, scan_rows

if TYPE_CHECKING:
    from everlog.log.log import Log

KEYS = 20
EVENTS_MAX = 10_000
"""A key that took more events is left out of the sample: it would take as long as the rest."""


def require_same_here(log: Log, shelf: Shelf, builder: Builder, differing: Collection[str]) -> int:
    """Fold keys of a build again and refuse it if one is not the same; how many there were.

    Those that differ from the build before it are asked first: either that one was wrong, or this one is.
    """
    build = builder.build
    keys = list(differing) or _sample(shelf, builder)
    streams = refold.sources_of(shelf, build, keys, {}, ())
    records = refold.history(log, builder.view, keys, streams, upto=builder.cursor.position)
    rows: dict[str, Row] = {}
    done = fold(builder.view, rows, records, upcast=log.catalog.upcast)
    here = kept_rows(builder.view, rows, done, nothing_kept)
    there = shelf.get_many(build.rows, keys)
    wrong = [key for key in keys if _state(here.get(key)) != _state(there.get(key))]
    if not wrong:
        return len(keys)
    with shelf.change() as change:
        drop_build(change, build)
    raise Damaged(
        f"the view {build.name} as it was derived elsewhere is not what is derived here",
        why=f"of {counted(len(keys), 'key')} folded again, {counted(len(wrong), 'differs', 'differ')},"
        f" such as {wrong[0]!r}",
        hint=f"does it depend on more than its events, or do the workers run other code? "
        f"everlog views rebuild {build.name}",
        view=build.name,
        keys=wrong,
    )


def _state(kept: bytes | None) -> bytes | None:
    return None if kept is None else kept_state(kept)


def _sample(shelf: Shelf, builder: Builder) -> list[str]:
    """Keys from all over the build whose history is short and known."""
    build = builder.build
    step = max(1, shelf.count(build.rows) // KEYS)
    found = islice(scan_rows(shelf, build), 0, None, step)
    return [
        key
        for key, row in found
        if row.count <= EVENTS_MAX and (build.by_stream or row.sources is not None) and not builder.is_parked(key)
    ][:KEYS]
