"""One build in the memory of this process: rows, cursor and dead letters, and the change that stores them.

Rows stay in memory between pages. They are valid as long as the stored build has the revision that this process
knows: every change names the revision that it starts from, and is not made if another process was faster. No event is
applied twice, because the cursor is stored in the same change as the rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import Position, Recorded
from everlog.core.query import Cursor
from everlog.log.dead_letters import SKIPPED
from everlog.stores.small_state import SmallState, StateChanges
from everlog.trust.verdicts import verdicts_of
from everlog.views.advance import Advance
from everlog.views.builds.build import Build, put_build, read_build, several
from everlog.views.builds.content import dead_letters_of, load_rows, mark_applied, page_of_rows, put_letters, put_rows
from everlog.views.builds.fingerprint import code_fingerprint, is_code_of
from everlog.views.builds.rows import CausalOrder, Row, row_bytes, row_of
from everlog.views.dead_letters import ViewLetter, letters_from, parked_by
from everlog.views.fold import Failure, Folded, fold, kept_rows, nothing_kept
from everlog.views.rebuild.keys import history, sources_of
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

ROWS_MAX = 50_000
"""Rows held in memory. If there are more, all are released and read again when they are needed."""

_logger = logging.getLogger("everlog")


class BuildInMemory:
    """What this process knows of a build, and how it stores what it has folded."""

    build: Build  # as it is stored; `cursor` may be a little further
    cursor: Cursor
    _rows: dict[str, Row]
    _parked: dict[str, CausalOrder]
    _skipped: set[int]
    _gathered: Folded  # of pages that were folded and are not kept yet
    _stand_ins: dict[str, bytes | None]  # folded again in place of damaged rows that this process may not write

    def __init__(self, log: Log, small_state: SmallState, view: View, build: Build) -> None:
        self.view = view
        self.lock = threading.RLock()
        self._log = log
        self._small_state = small_state
        self._code = code_fingerprint(view)
        self._stand_ins = {}
        self._take(build)

    @property
    def stopped_at(self) -> int:
        return self.build.stopped_at

    def is_parked(self, key: str) -> bool:
        """Return whether events of this key wait behind one that could not be applied."""
        return key in self._parked

    def dead_letters(self) -> list[ViewLetter]:
        return dead_letters_of(self._small_state, self.build)

    def reload(self) -> Advance:
        """Take the build as it is stored now, because another process may have changed it. GONE if it was removed."""
        with self.lock:
            current = read_build(self._small_state, self.build.name, self.build.number)
            if current is None:
                return Advance.GONE
            self._take(current)
            return Advance.MORE

    def rows(self, keys: Collection[str]) -> dict[str, Row]:
        """Return the rows of those of the keys that have one. DamagedRows names those with a wrong checksum."""
        if not self._stand_ins:
            return load_rows(self._small_state, self.build, keys)
        found = load_rows(self._small_state, self.build, [key for key in keys if key not in self._stand_ins])
        again = {key: self._stand_ins.get(key) for key in keys}
        return {**found, **{key: row_of(data) for key, data in again.items() if data is not None}}

    def page(self, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Return keys and rows as they are stored, in order of the keys. It raises DamagedRows likewise."""
        if not self._stand_ins:
            return page_of_rows(self._small_state, self.build, after=after, limit=limit)
        keys = [key for key, _ in self._small_state.scan(self.build.rows, after=after, limit=limit)]
        rows = self.rows(keys)
        return [(key, row_bytes(rows[key])) for key in keys if key in rows]

    # ---- folding

    def _counted(self, records: list[Recorded]) -> list[Recorded]:
        """Return those of the records that count by the verdicts that the states follow."""
        standing = self.build.standing
        return list(verdicts_of(standing).counted(records)) if standing else records

    def _fold(self, records: Sequence[Recorded]) -> Folded:
        return fold(
            self.view,
            self._rows,
            records,
            upcast=self._log.catalog.upcast,
            upcast_all=self._log.catalog.upcast_all,
            load=self.rows,
            parked=self._parked,
            skipped=self._skipped,
        )

    def _refold(
        self, keys: Collection[str], *, also: Collection[str] = (), upto: Position | None = None
    ) -> tuple[Folded, dict[str, bytes | None]]:
        """Fold the history of keys again, up to the cursor."""
        if not keys:
            return Folded(), {}
        streams = sources_of(self._small_state, self.build, keys, self._rows, also)
        end = self.cursor.position if upto is None else upto
        standing = self.build.standing
        records = history(self._log, self.view, keys, streams, upto=end, standing=standing, skipped=self._skipped)
        for key in keys:
            self._rows.pop(key, None)
            self._parked.pop(key, None)
        rows: dict[str, Row] = {}
        done = fold(self.view, rows, records, upcast=self._log.catalog.upcast, skipped=self._skipped)
        done.again = True
        kept = dict(kept_rows(self.view, rows, done, nothing_kept))
        self._rows.update(rows)
        return done, {**dict.fromkeys(keys), **kept}

    def _refold_late(self, done: Folded, waiting: Sequence[ViewLetter], cursor: Cursor) -> dict[str, bytes | None]:
        """Fold the keys again that got a late event; this replaces the result for them in `done`."""
        # Where their history is: an event that was not applied is not among the sources of a row.
        also = set[str]().union(*done.late.values(), (letter.stream for letter in waiting))
        also |= {failed.recorded.event.stream for failed in done.failures if failed.key in done.late}
        also |= {recorded.event.stream for key, recorded in done.waiting if key in done.late}
        again, rows = self._refold(done.late, also=also, upto=cursor.position)
        done.passed = [*done.applied, *again.applied]
        done.changed |= again.changed
        done.failures = [failed for failed in done.failures if failed.key not in done.late] + again.failures
        done.waiting = [one for one in done.waiting if one[0] not in done.late] + again.waiting
        return rows

    def _waiting_among(self, keys: Collection[str]) -> list[ViewLetter]:
        """Return the dead letters of keys that wait."""
        if self._parked.keys().isdisjoint(keys):
            return []
        return [letter for letter in self.dead_letters() if letter.key in keys and letter.what != SKIPPED]

    # ---- storing

    def _before(self, stopped: Failure, cursor: Cursor) -> Cursor:
        position = Position(stopped.recorded.position - 1)
        return replace(cursor, position=position, knows=self.cursor.knows, proof="")

    def _rows_to_keep(self, done: Folded) -> dict[str, bytes | None] | None:
        """Return the changed rows as they are stored; None if one of several gathered pages made a state that JSON
        cannot express: which event did it is found page by page."""
        if not done.pages:
            return dict(kept_rows(self.view, self._rows, done, self.rows))
        try:
            return {key: row_bytes(self._rows[key]) for key in sorted(done.changed)}
        except Exception as error:
            _logger.debug("pages of the view %s are taken one by one: %s", self.view.name, error)
            return None

    def _keep(
        self,
        done: Folded,
        kept: dict[str, bytes | None],
        cursor: Cursor,
        *,
        letters: Sequence[ViewLetter] = (),
        gone: Collection[int] = (),
        scrub: bool = False,
    ) -> Advance:
        """Store the result of a fold and the cursor in one change."""
        try:
            if done.late:
                waiting = self._waiting_among(done.late)
                kept.update(self._refold_late(done, waiting, cursor))
                gone = {*gone, *(letter.position for letter in waiting)}
            with self._small_state.change() as change:
                found = self._write(change, done, kept, letters, gone, cursor, scrub=scrub)
        except BaseException:
            self._forget_rows()
            raise
        if found is not Advance.MORE:
            self._forget_rows()
        elif len(self._rows) > ROWS_MAX:
            self._rows.clear()
        return found

    def _write(
        self,
        change: StateChanges,
        done: Folded,
        rows: Mapping[str, bytes | None],
        letters: Sequence[ViewLetter],
        gone: Collection[int],
        cursor: Cursor,
        *,
        scrub: bool = False,
    ) -> Advance:
        """Add the result of a fold to a change; nothing of it if the stored build is not the one in memory."""
        build, now_us = self.build, _now_us()
        current = read_build(change, build.name, build.number)
        if current is None:
            return Advance.GONE
        if current.revision != build.revision:
            return Advance.OVERTAKEN
        change.scrub = scrub
        keys = build.keys + self._added(change, done, rows)
        put_rows(change, self.view, build, rows)
        new = mark_applied(change, build, done.applied)
        if gone or letters or done.failures or done.waiting or done.stopped:
            put_letters(change, build, [*letters_from(done, now_us), *letters], gone)
        build = replace(
            build,
            cursor=str(cursor),
            code=self._code_after(done),
            revision=build.revision + 1,
            applied=build.applied + new,
            changed_us=now_us,
            keys=keys if build.keys >= 0 else -1,
            stopped_at=0 if done.stopped is None else done.stopped.recorded.position,
        )
        put_build(change, build)
        self.build, self.cursor = build, cursor
        self._parked.update(done.parked())
        return Advance.MORE

    def _added(self, change: StateChanges, done: Folded, rows: Mapping[str, bytes | None]) -> int:
        """Return how many rows a change adds."""
        if done.pages or (done.smooth is not None and not done.failures and not done.again):
            new = [row for key in rows if (row := self._rows[key]).is_new]
            for row in new:
                row.is_new = False
            return len(new)
        there = change.rows(self.build.rows, rows.keys())
        for key in rows:
            if key in self._rows:
                self._rows[key].is_new = False
        return sum(data is not None for data in rows.values()) - len(there)

    def _code_after(self, done: Folded) -> str:
        """Return the code that has made the states, once this fold is kept."""
        if self._code == self.build.code or not self.build.applied:
            return self._code
        if is_code_of(self.view, self.build.code):
            return self.build.code
        return several(self.build) if done.changed else self.build.code

    # ---- memory

    def _take(self, build: Build) -> None:
        if self._stand_ins and build != self.build:
            self._stand_ins = {}
        self.build = build
        self.cursor = build.reached
        self._rows = {}
        self._gathered = Folded()
        letters = dead_letters_of(self._small_state, build)
        self._parked = parked_by(letters)
        self._skipped = {letter.position for letter in letters if letter.what == SKIPPED}

    def _forget_rows(self) -> None:
        """Mark what is in memory as invalid, because it was folded and not kept."""
        self.build = replace(self.build, revision=-1)


def _now_us() -> int:
    return time.time_ns() // 1000
