"""The audit: the log recounted against what a view says it has applied.

A view's lag says how far it got; it says nothing of what it missed on the way. A build keeps one bit for every
position that it applied and a count for every key, changed together with the states. The audit reads the log again
and names every event that should have been applied and was not: the gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from everlog.core.event import Position, Recorded
from everlog.stores.shelf import Shelf
from everlog.views.letters import SKIPPED
from everlog.views.states import BLOCK, Build, letters_of, places_of, scan_rows
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

NAMED_MAX = 1000
_TOLD_EVERY = 10_000


class Missing(msgspec.Struct, frozen=True):
    """An event that should have been applied and was not."""

    position: Position
    id: str
    stream: str
    type: str
    scope: str


class WrongCount(msgspec.Struct, frozen=True):
    """A key whose state was made from another number of events than the log has for it."""

    key: str
    kept: int
    recounted: int


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    view: str
    version: int
    build: int
    position: Position  # up to where the view is, and the audit looked
    lag: int  # positions between there and the head
    events: int  # that the view should have applied
    applied: int
    waiting: int  # in dead letters: not applied, and known not to be
    skipped: int
    gap: int  # neither applied nor in dead letters
    missing: tuple[Missing, ...]  # the first of them
    by_stream: dict[str, int]  # the gap, by what is missing where
    by_type: dict[str, int]
    by_scope: dict[str, int]
    wrong_counts: tuple[WrongCount, ...]

    @property
    def ok(self) -> bool:
        return self.gap == 0 and not self.wrong_counts


def audit(
    log: Log,
    shelf: Shelf,
    view: View,
    build: Build,
    *,
    progress: Callable[[int], None] = lambda position: None,
) -> Audit:
    places = places_of(shelf, build)
    letters = {letter.position: letter for letter in letters_of(shelf, build)}
    found = _Count()
    keys: Counter[str] = Counter()
    for recorded in log.store.read(view.query, upto=build.position):
        if recorded.position % _TOLD_EVERY == 0:
            progress(recorded.position)
        letter = letters.get(recorded.position)
        if letter is not None:
            found.skipped += letter.what == SKIPPED
            found.waiting += letter.what != SKIPPED
            continue
        _count_key(log, view, recorded, keys)
        block, place = divmod(recorded.position, BLOCK)
        if places.get(block, 0) >> place & 1:
            found.applied += 1
        else:
            found.miss(recorded)
    head = log.head()
    return Audit(
        view=build.name,
        version=build.version,
        build=build.number,
        position=build.position,
        lag=head - build.position,
        events=found.applied + found.gap + found.waiting + found.skipped,
        applied=found.applied,
        waiting=found.waiting,
        skipped=found.skipped,
        gap=found.gap,
        missing=tuple(found.missing),
        by_stream=dict(found.streams.most_common(NAMED_MAX)),
        by_type=dict(found.types.most_common()),
        by_scope=dict(found.scopes.most_common(NAMED_MAX)),
        wrong_counts=tuple(_wrong_counts(shelf, build, keys)),
    )


class _Count:
    def __init__(self) -> None:
        self.applied = self.waiting = self.skipped = self.gap = 0
        self.missing: list[Missing] = []
        self.streams: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.scopes: Counter[str] = Counter()

    def miss(self, recorded: Recorded) -> None:
        event = recorded.event
        self.gap += 1
        self.streams[event.stream] += 1
        self.types[event.type] += 1
        self.scopes[event.scope] += 1
        if len(self.missing) < NAMED_MAX:
            self.missing.append(Missing(recorded.position, event.id, event.stream, event.type, event.scope))


def _count_key(log: Log, view: View, recorded: Recorded, keys: Counter[str]) -> None:
    key = recorded.event.stream if view.by_stream else view.key(log.catalog.upcast(recorded.event))
    if key is not None:
        keys[key] += 1


def _wrong_counts(shelf: Shelf, build: Build, recounted: Counter[str]) -> list[WrongCount]:
    wrong = []
    for key, row in scan_rows(shelf, build):
        expected = recounted.pop(key, 0)
        if row.count != expected:
            wrong.append(WrongCount(key, row.count, expected))
    wrong += [WrongCount(key, 0, count) for key, count in sorted(recounted.items())]
    return wrong[:NAMED_MAX]
