"""Proving a log from its bytes: every position accounted for, every hash computed again, every chain unbroken."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing

import msgspec

from everlog.core.event import Position
from everlog.errors import Damaged
from everlog.log.verify.audit import PROBLEMS_MAX, PartVerifier, Verifier, missing_between
from everlog.log.verify.stored_groups import take_groups
from everlog.stores.contract import Grouped, HidesEvents, InGit, Locating, Problem, Store, Stored
from everlog.stores.formats import COPIED, UPGRADED
from everlog.stores.small_state import read_note

LOOKS_MAX = 4
"""A problem that is found while the log is written must be found again. So often is looked at most."""


FOLLOWING = {
    "log_cut_off": 1,
    **dict.fromkeys(("position_missing", "out_of_order", "sequence_gap", "chain_broken", "purge_disagrees"), 2),
    **dict.fromkeys(("index_disagrees", "state_disagrees"), 3),
}
"""Problems that mostly follow from another one, such as an unreadable line, and how far after it they are listed."""


class Report(msgspec.Struct, frozen=True):
    """What verify found up to the head of the moment it began, causes before what follows from them. The digest is
    over all header hashes in order: equal logs have equal digests."""

    events: int
    purged: int
    head: Position
    digest: str
    problems: tuple[Problem, ...]
    unseen: int = 0
    """Positions that this reader may not see, such as those of other tenants: nothing was checked there."""
    unlisted: int = 0  # problems beyond PROBLEMS_MAX
    faults: tuple[Problem, ...] = ()
    """Broken links in chains of other origins. Their events are as they were admitted: this log is not damaged."""
    erased: int = 0
    """Events whose payload was erased, with a record that allowed it. They are among `events`."""

    def __post_init__(self) -> None:
        ordered = sorted(self.problems, key=lambda problem: FOLLOWING.get(problem.code, 0))
        msgspec.structs.force_setattr(self, "problems", tuple(in_ranges(ordered)))

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def tampered(self) -> int:
        """The number of positions that are not as they were recorded, or that nothing accounts for."""
        return _positions(self.problems)

    @property
    def present(self) -> int:
        """Events that are here with their payloads, as they were recorded."""
        changed = _positions(problem for problem in self.problems if problem.code not in _MISSING)
        return max(0, self.events - self.erased - changed)


_MISSING = ("position_missing", "log_cut_off")
"""Problems of positions at which there is no event."""


def _positions(problems: Iterable[Problem]) -> int:
    """Return at how many positions there are problems."""
    found, reached = 0, 0
    for first, last in sorted((problem.position, problem.last) for problem in problems if problem.position):
        found += max(0, last - max(first - 1, reached))
        reached = max(reached, last)
    return found


def upgraded_head(store: Store) -> int | None:
    """Return the head that a log had when it was upgraded, 0 if it never was, or None if that is not known here.

    The lines of a log in git come from clones, too, and each of them may have been upgraded by itself.
    """
    if isinstance(store, InGit) or (isinstance(store, HidesEvents) and store.hides_events):
        return None
    report, copied = read_note(store.small_state, UPGRADED), read_note(store.small_state, COPIED)
    head = msgspec.json.decode(report, type=_Upgraded).head if report else 0
    return max(head, int(copied or "0"))


class _Upgraded(msgspec.Struct):
    head: int


def verify(
    store: Stored,
    *,
    upgraded: int | None = None,
    records: bool = False,
    progress: Callable[[int], None] = lambda position: None,
) -> Report:
    """Read every byte of a log again and report all that is wrong with it, up to its head of this moment.

    With `records`, what was erased or purged must be listed in an event that allowed it. With `upgraded`, an event
    that was purged in an older format must be at or below that position. The log may be
    written, purged and packed meanwhile. What is found then counts only if a second look finds it too.
    """
    seen = _Look(store, progress, upgraded=upgraded, records=records)
    for _ in range(LOOKS_MAX - 1):
        if not seen.failure and not seen.problems:
            break
        if not seen.moved():
            break
        seen = _Look(store, progress, upgraded=upgraded, records=records, before=seen)
    return seen.report()


class _Look:
    """One look at a log, up to the head that it has now."""

    def __init__(
        self,
        store: Stored,
        progress: Callable[[int], None],
        *,
        upgraded: int | None = None,
        records: bool = False,
        before: _Look | None = None,
    ) -> None:
        self._store = store
        # The head first: a purge that is not among these has a reserved position above it.
        self._head = store.head()
        self._purges = store.purges()
        self.failure: Damaged | None = None
        self.problems: list[Problem] = []
        self._hides = isinstance(store, HidesEvents) and store.hides_events
        made = PartVerifier if self._hides else Verifier
        identity = store.identity
        self._audit = made(
            identity.origin,
            self._purges,
            head=self._head,
            upgraded=upgraded,
            former=identity.former,
            log_id=identity.log_id,
        )
        try:
            with closing(self._audit):
                self._take(progress)
                if records and not self._hides:
                    for origin, problem in self._audit.removals.without_record(store, self._head):
                        self._audit.report_of(origin, problem)
                self._audit.end(self._head)
                self.problems = with_those_of(store, self._audit.problems)
        except Damaged as error:
            self.failure = error
        if before is not None and before.failure is None:
            known = {(problem.position, problem.code) for problem in before.problems}
            self.problems = [problem for problem in self.problems if (problem.position, problem.code) in known]

    def moved(self) -> bool:
        """Whether somebody has written since this look began."""
        return self._store.head() != self._head or self._store.purges() != self._purges

    def report(self) -> Report:
        if self.failure is not None:
            raise self.failure
        audit, listed = self._audit, self.problems[:PROBLEMS_MAX]
        unlisted = audit.unlisted + len(self.problems) - len(listed)
        reserved = sum(purge.reserved <= self._head for purge in self._purges)
        unseen = self._head - audit.events - audit.purged - reserved if self._hides else 0
        return Report(
            audit.events,
            audit.purged,
            self._head,
            audit.digest.hexdigest(),
            tuple(listed),
            unseen,
            unlisted,
            tuple(audit.faults),
            self._count_erased(),
        )

    def _count_erased(self) -> int:
        wrong = {one.position for one in (*self.problems, *self._audit.faults) if one.code == "erasure_unrecorded"}
        return sum(one.position not in wrong for one in self._audit.removals.erased)

    def _take(self, progress: Callable[[int], None]) -> None:
        if isinstance(self._store, Grouped):
            self._take_groups(self._store, progress)
            return
        places = self._store.slots()
        try:
            for place in places:
                if place.position > self._head:
                    return  # it came while the rest was read
                self._audit.take(place)
                if place.position % 1000 == 0:
                    progress(place.position)
        finally:
            if isinstance(places, Generator):
                places.close()  # it may hold a snapshot of the store

    def _take_groups(self, store: Grouped, progress: Callable[[int], None]) -> None:
        found = store.groups()
        try:
            shown = 0
            for position in take_groups(self._audit, found, upto=self._head):
                if position - shown >= 1000:
                    shown = position
                    progress(position)
        finally:
            if isinstance(found, Generator):
                found.close()


def _located(store: Stored, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Problems with the file that they are in."""
    for problem in problems:
        if problem.position and not problem.file and isinstance(store, Locating):
            yield msgspec.structs.replace(problem, file=store.file_of(problem.position))
        else:
            yield problem


def in_ranges(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The same, with neighbours of which the same is wrong as one."""
    open_range: Problem | None = None
    for problem in problems:
        if open_range is not None:
            same = (problem.code, problem.reason, problem.file) == (
                open_range.code,
                open_range.reason,
                open_range.file,
            )
            if same and problem.position and problem.position == open_range.last + 1:
                open_range = msgspec.structs.replace(open_range, upto=problem.last)
                continue
            yield open_range
        open_range = problem
    if open_range is not None:
        yield open_range


EXPLAINED = ("conflict_marker", "log_cut_off", "unreadable")
"""What a store says of positions that it knows to have had: it knows the file, and that they are missing."""


def with_those_of(store: Stored, problems: list[Problem]) -> list[Problem]:
    """What is wrong with the places and with the store, with the files. A position that the store itself explains is
    not listed as missing besides."""
    of_store = list(store.check())
    known = sorted((each.position, each.last) for each in of_store if each.code in EXPLAINED and each.position)
    kept: list[Problem] = []
    for each in problems:
        kept += [each] if each.code != "position_missing" else _beside(each, known)
    return [*_located(store, kept), *of_store]


def _beside(missing: Problem, known: list[tuple[Position, Position]]) -> Iterator[Problem]:
    """A range of missing positions without those that are known."""
    first, last = missing.position, missing.last
    for known_first, known_last in known:
        if known_first > last or known_last < first:
            continue
        if first < known_first:
            yield missing_between(first, Position(known_first - 1))
        first = Position(known_last + 1)
    if first <= last:
        yield missing_between(first, last)
