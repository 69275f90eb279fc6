"""The audit: count and fold the log again, and compare the result with what a view stores.

The lag of a view shows how far it is, not whether it missed an event on the way. A build stores one bit for every
position that it applied and a count for every key, changed together with the states. The audit reads the log again
and names every event that should have been applied and was not: the gap. Then it folds the events of all keys, or of
a sample, and names the keys whose states differ.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from everlog.core.event import Position, Recorded
from everlog.errors import NotCanonical
from everlog.log.dead_letters import SKIPPED
from everlog.stores.small_state import SmallState
from everlog.trust.verdicts import verdicts_of
from everlog.views.builds.build import Build, read_build
from everlog.views.builds.content import BLOCK, applied_blocks, dead_letters_of, scan_kept
from everlog.views.builds.rows import DamagedRows, Row, kept_parts
from everlog.views.dead_letters import ViewLetter
from everlog.views.fold import fold, in_causal_order
from everlog.views.rebuild import keys as history_of_keys
from everlog.views.view import Order, View, state_bytes

if TYPE_CHECKING:
    from everlog.log.log import Log

NAMED_MAX = 1000
ROWS_AT_ONCE = 200_000
"""The number of keys that are folded again at once."""

_TRIES = 5
_PROGRESS_EVERY = 10_000


class Missing(msgspec.Struct, frozen=True):
    """An event that should have been applied and was not."""

    position: Position
    id: str
    stream: str
    type: str
    scope: str


class WrongCount(msgspec.Struct, frozen=True):
    """A key whose state was made from another number of events than the log has."""

    key: str
    kept: int
    recounted: int


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    view: str
    version: int
    build: int
    position: Position  # how far the view is, and the audit read
    lag: int  # positions between there and the head
    events: int  # the number that the view should have applied
    applied: int
    waiting: int  # in dead letters: not applied, and known not to be
    skipped: int
    gap: int  # neither applied nor in dead letters
    missing: tuple[Missing, ...]  # the first of them
    by_stream: dict[str, int]  # the gap, by stream, type and scope
    by_type: dict[str, int]
    by_scope: dict[str, int]
    wrong_counts: tuple[WrongCount, ...]
    keys: int  # the number of rows
    checked: int  # keys whose events were folded again
    differing: tuple[str, ...]  # the first keys whose states differ from those of the events
    damaged: tuple[str, ...]  # the first keys whose rows do not match their checksums
    mended: int  # damaged rows that were folded again since the build was made

    @property
    def ok(self) -> bool:
        return self.gap == 0 and not self.wrong_counts and not self.differing and not self.damaged


def audit(
    log: Log,
    small_state: SmallState,
    view: View,
    build: Build,
    *,
    sample: int | None = None,
    progress: Callable[[int], None] = lambda position: None,
) -> Audit:
    """Compare a build with the log up to its position. `sample` is the number of keys to fold again."""
    kept = _as_of_one_moment(small_state, build)
    build, places, letters = kept.build, kept.places, kept.letters
    found = _Count()
    keys: Counter[str] = Counter()
    for recorded in verdicts_of(build.standing).counted(log.stored.read(view.query, upto=build.position)):
        if recorded.position % _PROGRESS_EVERY == 0:
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
    chosen = kept.rows.keys() if sample is None else random.sample(sorted(kept.rows), min(sample, len(kept.rows)))
    differing = _differing(log, small_state, view, kept, chosen, everything=sample is None, progress=progress)
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
        wrong_counts=tuple(_wrong_counts(kept, keys)),
        keys=len(kept.rows) + len(kept.damaged),
        checked=len(chosen),
        differing=tuple(sorted(differing)[:NAMED_MAX]),
        damaged=tuple(sorted(kept.damaged)[:NAMED_MAX]),
        mended=build.mended,
    )


@dataclass
class _Kept:
    """What a build stores; of a row the count and a hash of the state, so that the states need not fit in memory."""

    build: Build
    places: Mapping[int, int]
    letters: dict[int, ViewLetter]
    rows: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)


def _as_of_one_moment(small_state: SmallState, build: Build) -> _Kept:
    """Read all of a build as of one moment."""
    for _ in range(_TRIES):
        current = read_build(small_state, build.name, build.number) or build
        kept = _read(small_state, current)
        after = read_build(small_state, build.name, build.number)
        if after is None or after.revision == current.revision:
            return kept
    with small_state.change():  # other processes advance it all the time
        return _read(small_state, read_build(small_state, build.name, build.number) or build)


def _read(small_state: SmallState, build: Build) -> _Kept:
    letters = {letter.position: letter for letter in dead_letters_of(small_state, build)}
    kept = _Kept(build, applied_blocks(small_state, build), letters)
    try:
        for key, data in scan_kept(small_state, build):
            count, _, _, _, state = kept_parts(data)
            kept.rows[key] = count, _hash(state)
    except DamagedRows as damaged:
        kept.damaged |= damaged.keys
    return kept


def _hash(state: bytes) -> bytes:
    return blake2b(state, digest_size=16).digest()


def _differing(
    log: Log,
    small_state: SmallState,
    view: View,
    kept: _Kept,
    chosen: Collection[str],
    *,
    everything: bool,
    progress: Callable[[int], None],
) -> set[str]:
    """Fold the events of keys again, and return the keys whose states differ from the stored ones."""
    build, left_out = kept.build, kept.letters.keys()
    if not everything:
        streams = history_of_keys.sources_of(small_state, build, chosen, {}, ())
        records = history_of_keys.history(
            log, view, chosen, streams, upto=build.position, standing=build.standing, skipped=left_out
        )
        return _compared(kept, chosen, _states(log, view, [records]))
    # In rounds, so that the states of one round fit in memory.
    rounds = len(chosen) // ROWS_AT_ONCE + 1
    differing = set()
    for number in range(rounds):
        records_of_round = (
            recorded
            for recorded in verdicts_of(build.standing).counted(log.stored.read(view.query, upto=build.position))
            if recorded.position not in left_out
            and (rounds == 1 or _round(_key(log, view, recorded), rounds) == number)
        )
        causal = view.order is Order.CAUSAL
        pages = iter([in_causal_order(records_of_round)]) if causal else _pages(records_of_round, progress)
        mine = [key for key in chosen if rounds == 1 or _round(key, rounds) == number]
        differing |= _compared(kept, mine, _states(log, view, pages))
    return differing


def _pages(records: Iterator[Recorded], progress: Callable[[int], None]) -> Iterator[list[Recorded]]:
    while page := list(islice(records, _PROGRESS_EVERY)):
        progress(page[-1].position)
        yield page


def _states(log: Log, view: View, pages: Iterable[list[Recorded]]) -> dict[str, bytes]:
    """Return the hashes of the states that events make, by key."""
    rows: dict[str, Row] = {}
    for page in pages:
        fold(view, rows, page, upcast=log.catalog.upcast, upcast_all=log.catalog.upcast_all)
    found = {}
    for key, row in rows.items():
        try:
            found[key] = _hash(state_bytes(row.state))
        except (NotCanonical, TypeError, ValueError, RecursionError):
            found[key] = b""  # it cannot have been stored
    return found


def _compared(kept: _Kept, keys: Collection[str], again: dict[str, bytes]) -> set[str]:
    differing = {key for key in keys if again.get(key) != kept.rows[key][1]}
    return differing | {key for key in again if key not in kept.rows and key not in kept.damaged}


def _round(key: str | None, rounds: int) -> int:
    return crc32((key or "").encode()) % rounds


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
    key = _key(log, view, recorded)
    if key is not None:
        keys[key] += 1


def _key(log: Log, view: View, recorded: Recorded) -> str | None:
    return recorded.event.stream if view.by_stream else view.key(log.catalog.upcast(recorded.event))


def _wrong_counts(kept: _Kept, recounted: Counter[str]) -> list[WrongCount]:
    wrong = []
    for key, (count, _) in kept.rows.items():
        expected = recounted.pop(key, 0)
        if count != expected:
            wrong.append(WrongCount(key, count, expected))
    lost = sorted(recounted.keys() - kept.damaged)
    wrong += [WrongCount(key, 0, recounted[key]) for key in lost]
    return wrong[:NAMED_MAX]
