"""Driving one build forward: read a page, fold it, keep rows, cursor, places and dead letters in one change.

A builder keeps rows in memory between pages. They are right as long as the build's revision is the one it knows:
every change names the revision that it starts from, so whoever was overtaken by another process reads everything anew
and repeats its page. Nothing is ever applied twice, because the cursor lies in the same change as the rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import Position, Recorded
from everlog.core.query import Cursor, Reset
from everlog.errors import ReadOnly
from everlog.log.pages import OpenPage
from everlog.stores.shelf import Shelf, ShelfChanges, ShelfWriter
from everlog.views import refold
from everlog.views.checksums import DamagedRows, warn_of_damage
from everlog.views.fingerprint import code_fingerprint
from everlog.views.fold import Folded, fold, joined, kept_rows, nothing_kept, run_of
from everlog.views.letters import SKIPPED, Letter, letters_from, parked_by
from everlog.views.news import News
from everlog.views.rows import CausalOrder, Row, row_bytes, row_of
from everlog.views.states import (
    Build,
    letters_of,
    load_rows,
    mark_places,
    page_of_rows,
    put_build,
    put_letters,
    put_rows,
    read_build,
    seal_build,
    several,
)
from everlog.views.view import Change, View

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.stores.staging import Staged

BATCH = 10_000
"""Events in one change at most. Many, because a row that changes often is then written once."""

ROWS_MAX = 50_000
"""Rows held in memory. More are let go of, and read again when they are needed."""

PAGES_GATHERED = 5
"""Pages that are kept together while a build is made beside another."""

GATHERED_S = 2.0
"""How long what was folded may wait to be kept: what a kill would undo of a view that takes its time."""

MENDED_MAX = 1000
"""Damaged rows that are folded again one by one. If there are more, the view is rebuilt."""

SAVED_EVERY = 1000
"""Positions without a match after which a cursor is kept all the same."""

_logger = logging.getLogger("everlog")


class NeedsRebuild(Exception):
    """History changed under a build in a way that only a new one can follow."""


class Gone(Exception):
    """The build was removed by somebody who made a newer one."""


class _Overtaken(Exception):
    """Another process moved this build meanwhile."""


class _LookCloser(Exception):
    """Something in several pages at once cannot be kept: they are taken again, one by one."""


class Builder:
    _build: Build
    _cursor: Cursor
    _rows: dict[str, Row]
    _parked: dict[str, CausalOrder]
    _skipped: set[int]
    _gathered: Folded  # of pages that were folded and are not kept yet
    _closely_upto = 0  # up to here every page is kept by itself
    _stand_ins: dict[str, bytes | None]  # folded again in the place of damaged rows that cannot be written

    def __init__(self, log: Log, shelf: Shelf, view: View, build: Build, *, live: bool) -> None:
        self.view = view
        self.live = live  # False while it is built beside another: then nobody is told of changes
        self.lock = threading.RLock()
        self._log = log
        self._shelf = shelf
        self._query = view.query
        self._code = code_fingerprint(view)
        self._news = News()
        self._stand_ins = {}
        self._take(build)

    @property
    def build(self) -> Build:
        """As it is kept; `cursor` may be a little further."""
        return self._build

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @property
    def stopped_at(self) -> int:
        return self._build.stopped_at

    def is_parked(self, key: str) -> bool:
        """True when events of this key wait behind one that could not be applied."""
        return key in self._parked

    # ---- moving on

    def step(self, limit: int = BATCH) -> bool:
        """Take one page. True when there is nothing more to take: the head was reached, or the view is stopped."""
        with self.lock:
            self._settle()
            if not self._build.sealed:
                seal_build(self._shelf, self._build)
                self._look_again()
            if self._build.stopped_at:
                self._look_again()
            page = OpenPage(self._log.store, self._cursor, self._query, limit=limit)
            closely = self.live or self._parked or self._skipped or self._cursor.position < self._closely_upto
            try:
                if page.reset is not None:
                    self.save()  # what was gathered belongs to the history before
                    self._follow_reset(page.reset)
                    return False
                if self._build.stopped_at:
                    return True  # and what stops it was not purged since
                moved = self._take_closely(page) if closely else self._gather(page)
            except _Overtaken:
                self._look_again()
                return False
            except _LookCloser:
                self._look_again()
                self._closely_upto = page.reached
                return False
            except DamagedRows as damaged:
                self.mend(damaged.keys)
                return False
            return (moved and page.next_cursor.position >= page.head) or bool(self._build.stopped_at)

    def catch_up(
        self,
        *,
        upto: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int], None] = lambda position: None,
        limit: int = BATCH,
    ) -> None:
        """Go on to the head, or to a position."""
        while True:
            while not stop() and not self.step(limit) and (upto is None or self._cursor.position < upto):
                progress(self._cursor.position)
            if self.save() or stop():  # if not, the build is as another process left it: short of the head, maybe
                break
        progress(self._cursor.position)

    def save(self) -> bool:
        """Keep what was gathered, and the cursor, if it moved without an event to apply. False if it was not kept."""
        with self.lock:
            self._settle()
            cursor = self._cursor
            if cursor == self._build.reached or self._build.stopped_at:
                return True
            try:
                done, self._gathered = self._gathered, Folded()
                self._keep(done, self._kept(done), cursor)
                return True
            except (_Overtaken, _LookCloser):
                self._look_again()
                self._closely_upto = cursor.position
            except DamagedRows as damaged:
                self.mend(damaged.keys)
            return False

    def reload(self) -> None:
        """Take the build as it is kept, after somebody changed it on purpose."""
        with self.lock:
            self._look_again()

    def written(self) -> None:
        """The write that `in_write` may have taken in is on the disk."""
        self._news.write_done()

    def undone(self) -> None:
        """That write failed. Nobody waits here either: it is settled by who comes."""
        self._news.write_failed()

    @property
    def unsettled(self) -> bool:
        return self._news.failed

    def settle(self) -> None:
        """Be what is kept: nothing of a write that is not on the disk, and all that another process has done."""
        with self.lock:
            self._settle()
            current = read_build(self._shelf, self._build.name, self._build.number)
            if current is None or current.revision != self._build.revision:
                self._look_again()

    def in_write(self, staged: Staged, before: Position) -> bool:
        """Take what an open write of the log has staged, in that very transaction; False if it must be done later.

        Nobody waits here: whoever moves this build meanwhile holds the lock and is waiting for this very write.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self._settle()
            if staged.staged_purges or self._build.stopped_at or self._cursor.position != before:
                return False
            records = [recorded for recorded, _ in staged.records if self._query.matches(recorded)]
            cursor = Cursor(staged.position, epoch=self._log.identity.epoch)
            if not records:
                self._news.took_in(staged.position, {})
                self._cursor = cursor
                return True
            changes = staged.shelved or ShelfChanges(self._shelf)
            done = self._fold(records)
            if done.late:
                self._forget_rows()
                return False
            kept, reached = self._kept(done), self._reached(done, cursor)
            try:
                self._write(changes, done, kept, (), (), reached)
            except _Overtaken:
                self._forget_rows()
                return False
            self._news.took_in(reached.position, kept if self.live and self.view.has_effects else {})
            staged.shelved = changes
            return True
        except DamagedRows:  # the events of their keys are read after the write
            self._forget_rows()
            return False
        except BaseException:
            self._forget_rows()
            raise
        finally:
            self.lock.release()

    # ---- what is kept

    def rows(self, keys: Collection[str]) -> dict[str, Row]:
        """The rows of those of the keys that have one. DamagedRows names those that do not match their checksums."""
        asked = [key for key in keys if key not in self._stand_ins] if self._stand_ins else keys
        found = load_rows(self._shelf, self._build, asked)
        return {**found, **self._stood_in(keys)} if self._stand_ins else found

    def page(self, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Keys and rows as they are kept, in order of the keys. DamagedRows likewise."""
        if not self._stand_ins:
            return page_of_rows(self._shelf, self._build, after=after, limit=limit)
        keys = [key for key, _ in self._shelf.scan(self._build.rows, after=after, limit=limit)]
        rows = self.rows(keys)
        return [(key, row_bytes(rows[key])) for key in keys if key in rows]

    def mend(self, keys: Collection[str]) -> None:
        """Fold keys again whose rows do not match their checksums, and keep the rows.

        NeedsRebuild if a key has no events: then the key itself is damaged, and another one lacks its row.
        """
        with self.lock:
            self._look_again()
            warn_of_damage(self.view.name, keys)
            if len(keys) > MENDED_MAX or not all(type(key) is str for key in keys):
                raise NeedsRebuild("many rows are damaged, or a key is")
            mine = [letter for letter in self.letters() if letter.key in keys and letter.what != SKIPPED]
            done, kept = self._refold(keys, also={letter.stream for letter in mine})
            parked = {letter.key for letter in mine}
            if any(kept[key] is None and key not in parked for key in keys):
                raise NeedsRebuild("a row has a key without events")
            mended = replace(self._build, mended=self._build.mended + len(keys), mended_us=_now_us())
            before, self._build = self._build, mended
            try:
                self._keep(done, kept, self._cursor, gone=[letter.position for letter in mine])
            except _Overtaken:
                pass  # by somebody who has mended them, or has moved on: who asks looks again
            except ReadOnly:
                # Somebody else must keep them. The answers of this process are right all the same.
                self._build = before
                self._stand_ins |= kept
                return
            self._look_again()

    def _stood_in(self, keys: Collection[str]) -> dict[str, Row]:
        found = {key: self._stand_ins.get(key) for key in keys}
        return {key: row_of(data) for key, data in found.items() if data is not None}

    # ---- dead letters

    def letters(self) -> list[Letter]:
        return letters_of(self._shelf, self._build)

    def retry(self, *, skip: Mapping[int, tuple[str, str]] | None = None) -> Folded:
        """Try everything that waits once more, in order and through the upcasters of today.

        `skip` names positions that the view does without from here on: who says so, and why.
        """
        skip = skip or {}
        with self.lock:
            self._look_again()
            letters = self.letters()
            left_out = [
                replace(letter, what=SKIPPED, skipped_by=by, skipped_because=because, at_us=_now_us())
                for letter in letters
                if letter.position in skip
                for by, because in [skip[letter.position]]
            ]
            self._skipped |= skip.keys()
            waiting = [letter for letter in letters if letter.what != SKIPPED]
            done, kept = self._refold(
                {letter.key for letter in waiting if letter.key}, also={letter.stream for letter in waiting}
            )
            self._build = replace(self._build, stopped_at=0)
            self._keep(done, kept, self._cursor, letters=left_out, gone=[letter.position for letter in waiting])
            self._look_again()
            return done

    def tell(self) -> None:
        """Tell of what `in_write` changed, now that it is committed."""
        with self.lock:
            # One by one: who is told may append, and what comes of that is told behind the rest.
            while (changes := self._news.next_untold()) is not None:
                self._tell_of(changes)

    # ---- inside: one page

    def _settle(self) -> None:
        """Take the build as it is kept if what is in memory may be of a write that failed, or has not ended: its
        place in the log may come to be another event's, so that the cursor alone does not tell."""
        if self._news.uncertain:
            failures = self._news.failures
            self._look_again()
            self._news.settle(failures)  # not if that raised, and not for a write that failed meanwhile

    def _fold(self, records: Sequence[Recorded]) -> Folded:
        return fold(
            self.view,
            self._rows,
            records,
            upcast=self._log.catalog.upcast,
            upcast_all=self._log.catalog.upcast_all,
            load=self._load,
            parked=self._parked,
            skipped=self._skipped,
        )

    def _reached(self, done: Folded, cursor: Cursor) -> Cursor:
        if done.stopped is None:
            return cursor
        return replace(cursor, position=Position(done.stopped.recorded.position - 1), knows=self._cursor.knows)

    def _take_closely(self, page: OpenPage) -> bool:
        """Fold a page and keep what became of it. False if the cursor is not where the page ends."""
        events = [recorded for piece in page for recorded in piece]
        cursor = page.next_cursor
        if not events:
            self._move_to(cursor)
            return self._cursor == cursor
        done = self._fold(events)
        self._keep(done, self._kept(done), self._reached(done, cursor))
        self.tell()  # what was written before these
        self._tell(done)
        return True

    def _gather(self, page: OpenPage) -> bool:
        """Fold a page piece by piece; beside the build that answers nobody waits for it, so that it is kept with some
        that follow, and a row that all of them change is written once.

        As soon as anything goes wrong the pages are taken again, one by one, because only a row as it is kept can be
        gone back to.
        """
        gathered, before = self._gathered, len(self._gathered.applied)
        for piece in page:
            done = self._fold(piece)
            if done.smooth is None:
                raise _LookCloser
            gathered.changed |= done.changed
            gathered.passed = joined(gathered.applied, run_of(piece))  # all of it, and a page stands upwards
            if time.monotonic() - gathered.since > GATHERED_S:
                page.end_here()
                break
        cursor = page.next_cursor
        if len(gathered.applied) == before:
            self._move_to(cursor)
            return self._cursor == cursor
        gathered.pages += 1
        self._cursor = cursor
        enough = gathered.pages >= PAGES_GATHERED or len(self._rows) > ROWS_MAX
        if enough or cursor.position >= page.head or time.monotonic() - gathered.since > GATHERED_S:
            self.save()
        return self._cursor == cursor

    def _kept(self, done: Folded) -> dict[str, bytes | None]:
        if done.pages:
            try:
                return {key: row_bytes(self._rows[key]) for key in sorted(done.changed)}
            except Exception as error:  # a state that JSON cannot say: which event made it is found page by page
                raise _LookCloser from error
        return dict(kept_rows(self.view, self._rows, done, self._load))

    def _keep(
        self,
        done: Folded,
        kept: dict[str, bytes | None],
        cursor: Cursor,
        *,
        letters: Sequence[Letter] = (),
        gone: Collection[int] = (),
        scrub: bool = False,
    ) -> None:
        """Keep what a fold did, and where it got to, at once."""
        try:
            if done.late:
                waiting = self._waiting_among(done.late)
                kept.update(self._make_late_again(done, waiting, cursor))
                gone = {*gone, *(letter.position for letter in waiting)}
            with self._shelf.change() as change:
                change.scrub = scrub
                self._write(change, done, kept, letters, gone, cursor)
        except BaseException:
            self._forget_rows()
            raise
        if len(self._rows) > ROWS_MAX:
            self._rows.clear()

    def _write(
        self,
        change: ShelfWriter,
        done: Folded,
        rows: Mapping[str, bytes | None],
        letters: Sequence[Letter],
        gone: Collection[int],
        cursor: Cursor,
    ) -> None:
        current = read_build(change, self._build.name, self._build.number)
        if current is None:
            raise Gone
        if current.revision != self._build.revision:
            raise _Overtaken
        keys = self._build.keys + self._added(change, done, rows)
        put_rows(change, self.view, self._build, rows)
        new = mark_places(change, self._build, done.applied)
        put_letters(change, self._build, [*letters_from(done, _now_us()), *letters], gone)
        build = replace(
            self._build,
            cursor=str(cursor),
            code=self._code_after(done),
            revision=self._build.revision + 1,
            applied=self._build.applied + new,
            changed_us=_now_us(),
            keys=keys if self._build.keys >= 0 else -1,
            stopped_at=0 if done.stopped is None else done.stopped.recorded.position,
        )
        put_build(change, build)
        self._build, self._cursor = build, cursor
        self._parked.update(done.parked())

    def _added(self, change: ShelfWriter, done: Folded, rows: Mapping[str, bytes | None]) -> int:
        """By how many a change makes the rows more."""
        if done.pages or (done.smooth is not None and not done.failures and not done.again):
            new = [row for key in rows if (row := self._rows[key]).is_new]
            for row in new:
                row.is_new = False
            return len(new)
        there = change.get_many(self._build.rows, rows.keys())
        for key in rows:
            if key in self._rows:
                self._rows[key].is_new = False
        return sum(data is not None for data in rows.values()) - len(there)

    def _code_after(self, done: Folded) -> str:
        """Which code has made the states, once what was folded is kept."""
        if self._code == self._build.code or not self._build.applied:
            return self._code
        return several(self._build) if done.changed else self._build.code

    def _move_to(self, cursor: Cursor) -> None:
        self._cursor = cursor
        if self._gathered.pages or cursor.position - self._build.position >= SAVED_EVERY:
            self.save()

    def _tell(self, done: Folded) -> None:
        if not (self.live and done.changed and self.view.has_effects):
            return
        position = self._cursor.position
        rows = self._rows if done.changed <= self._rows.keys() else {**self._rows, **self._load(done.changed)}
        self._tell_of([Change(key, rows[key].state, position) for key in sorted(done.changed) if key in rows])

    def _tell_of(self, changes: Sequence[Change]) -> None:
        try:
            self.view.on_change(changes)
        except Exception:  # the states are on record, whatever becomes of who is told
            _logger.exception("the view %s could not tell of its changes", self.view.name)

    # ---- inside: what came late, what was purged

    def _follow_reset(self, reset: Reset) -> None:
        if reset.reason != "purged":
            raise NeedsRebuild(reset.reason)
        since = max(self._cursor.position, self._cursor.knows)
        streams = {purge.stream for purge in self._log.store.purges(after=since)}
        affected = refold.keys_fed_by(self._shelf, self._build, streams)
        if affected is None:
            raise NeedsRebuild(reset.reason)
        letters = self.letters()
        affected |= {letter.key for letter in letters if letter.stream in streams and letter.key}
        mine = [letter for letter in letters if letter.key in affected and letter.what != SKIPPED]
        gone = {letter.position for letter in (*mine, *letters) if letter in mine or letter.stream in streams}
        if self._build.stopped_at in gone:
            self._build = replace(self._build, stopped_at=0)
        done, kept = self._refold(affected, also={letter.stream for letter in mine} - streams)
        cursor = replace(self._cursor, knows=reset.cursor.position)
        self._keep(done, {**dict.fromkeys(affected), **kept}, cursor, gone=gone, scrub=True)
        self._look_again()

    def _make_late_again(self, done: Folded, waiting: Sequence[Letter], cursor: Cursor) -> dict[str, bytes | None]:
        """Make the keys again that got a late event, and let that count in the place of what became of them here."""
        # Where their history lies: what was not applied is none of a row's sources.
        also = set[str]().union(*done.late.values(), (letter.stream for letter in waiting))
        also |= {failed.recorded.event.stream for failed in done.failures if failed.key in done.late}
        also |= {recorded.event.stream for key, recorded in done.waiting if key in done.late}
        again, rows = self._refold(done.late, also=also, upto=cursor.position)
        done.passed = [*done.applied, *again.applied]
        done.changed |= again.changed
        done.failures = [failed for failed in done.failures if failed.key not in done.late] + again.failures
        done.waiting = [one for one in done.waiting if one[0] not in done.late] + again.waiting
        return rows

    def _waiting_among(self, keys: Collection[str]) -> list[Letter]:
        """The letters of keys that wait."""
        if self._parked.keys().isdisjoint(keys):
            return []
        return [letter for letter in self.letters() if letter.key in keys and letter.what != SKIPPED]

    def _refold(
        self, keys: Collection[str], *, also: Collection[str] = (), upto: Position | None = None
    ) -> tuple[Folded, dict[str, bytes | None]]:
        """Make rows again from the history of their keys, up to where the build is."""
        if not keys:
            return Folded(), {}
        streams = refold.sources_of(self._shelf, self._build, keys, self._rows, also)
        end = self._cursor.position if upto is None else upto
        records = refold.history(self._log, self.view, keys, streams, upto=end, skipped=self._skipped)
        for key in keys:
            self._rows.pop(key, None)
            self._parked.pop(key, None)
        rows: dict[str, Row] = {}
        done = fold(self.view, rows, records, upcast=self._log.catalog.upcast, skipped=self._skipped)
        done.again = True
        kept = dict(kept_rows(self.view, rows, done, nothing_kept))
        self._rows.update(rows)
        return done, {**dict.fromkeys(keys), **kept}

    # ---- inside: what is kept

    def _load(self, keys: Collection[str]) -> Mapping[str, Row]:
        return self.rows(keys)

    def _look_again(self) -> None:
        """Take the build as it is kept: it may be somebody else's work by now."""
        current = read_build(self._shelf, self._build.name, self._build.number)
        if current is None:
            raise Gone
        self._take(current)

    def _take(self, build: Build) -> None:
        if self._stand_ins and build != self._build:
            self._stand_ins = {}
        self._build = build
        self._cursor = build.reached
        self._rows = {}
        self._gathered = Folded()
        letters = letters_of(self._shelf, build)
        self._parked = parked_by(letters)
        self._skipped = {letter.position for letter in letters if letter.what == SKIPPED}

    def _forget_rows(self) -> None:
        """What was folded was not kept: nothing in memory can be trusted."""
        self._build = replace(self._build, revision=-1)


def _now_us() -> int:
    return time.time_ns() // 1000
