"""An open build: it follows the log page by page, and inside the log's own writes.

    page of events  ->  fold  ->  rows, cursor, positions and dead letters in one change

If another process was faster, the build is reloaded and the page is taken again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import START, Position
from everlog.core.query import Cursor, Reset, proof_of
from everlog.errors import ReadOnly
from everlog.log.dead_letters import SKIPPED, WITHHELD
from everlog.log.forgotten import Forget, forgets_in, streams_of
from everlog.log.read.pages import OpenPage
from everlog.stores.small_state import SmallState, StateChanges
from everlog.views.advance import ENDS, Advance
from everlog.views.builds.build import Build, read_build
from everlog.views.builds.content import seal_build
from everlog.views.builds.in_memory import ROWS_MAX, BuildInMemory
from everlog.views.builds.rows import DamagedRows, row_of, warn_of_damage
from everlog.views.fold import Folded, joined, run_of
from everlog.views.rebuild.keys import keys_fed_by, keys_in
from everlog.views.view import Change, View

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.stores.open_write import OpenWrite

BATCH = 10_000
"""Maximum number of events in one change. It is large because a row that changes often is then written once."""

PAGES_GATHERED = 5
"""Pages that are kept together while a build is made beside another."""

GATHERED_S = 2.0
"""The longest time that folded events wait to be kept: what a kill can undo while a slow view is built."""

MENDED_MAX = 1000
"""Damaged rows that are folded again one by one. If there are more, the view is rebuilt."""

SAVED_EVERY = 1000
"""Positions without a matching event after which the cursor is stored anyway."""

_logger = logging.getLogger("everlog")


class OpenBuild(BuildInMemory):
    """One build of a view that this process advances."""

    _single_pages_upto = 0  # up to here every page is kept by itself
    _followed_upto = -1  # the head of the log when nobody was forgotten whom the build has not followed

    def __init__(self, log: Log, small_state: SmallState, view: View, build: Build, *, live: bool) -> None:
        super().__init__(log, small_state, view, build)
        self.live = live  # False while it is built beside another build: then no changes are published
        self._query = view.query
        self._unpublished = _Unpublished()

    # ---- advancing

    def advance(self, limit: int = BATCH) -> Advance:
        """Take one page."""
        with self.lock:
            if self._drop_uncertain() is Advance.GONE:
                return Advance.GONE
            if not self.build.sealed:
                seal_build(self._small_state, self.build)
                if self.reload() is Advance.GONE:
                    return Advance.GONE
            if self.build.stopped_at and self.reload() is Advance.GONE:
                return Advance.GONE
            page = OpenPage(self._log.stored, self.cursor, self._query, limit=limit)
            # After the head was read: verdicts commit with an event, which may be on this page.
            if str(self._log.verdicts()) != self.build.standing:
                return Advance.REBUILD  # events that were applied do not count any more, or others do
            if page.head != self._followed_upto:  # a forget records an event
                if forgets := forgets_in(self._log.writer.small_state, self.build.forgets):
                    return self._follow_forgets(forgets)
                self._followed_upto = page.head
            single = self.live or self._parked or self._skipped or self.cursor.position < self._single_pages_upto
            try:
                if page.reset is not None:
                    return self._follow_reset(page.reset)
                if self.build.stopped_at:  # and the event that stops it was not purged since
                    return Advance.STOPPED
                found = self._take_page(page) if single else self._gather(page)
            except DamagedRows as damaged:
                return self.mend(damaged.keys)
            match found:
                case Advance.MORE:
                    return Advance.AT_HEAD if self.cursor.position >= page.head else Advance.MORE
                case Advance.OVERTAKEN | Advance.PAGE_BY_PAGE:
                    if found is Advance.PAGE_BY_PAGE:
                        self._single_pages_upto = max(self._single_pages_upto, page.reached)
                    return Advance.GONE if self.reload() is Advance.GONE else found
                case _:
                    return found

    def catch_up(
        self,
        *,
        upto: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int], None] = lambda position: None,
        limit: int = BATCH,
    ) -> Advance:
        """Advance to the head or to a position, and store the cursor."""
        found = Advance.MORE
        while True:
            done = stop()
            if not done:
                found = self.advance(limit)
                if found in ENDS:
                    return found
                done = found in (Advance.AT_HEAD, Advance.STOPPED) or (
                    upto is not None and self.cursor.position >= upto
                )
            if done:
                saved = self.save()
                if saved in ENDS:
                    return saved
                if saved is Advance.MORE or stop():  # otherwise another process may have left it short of the head
                    break
            progress(self.cursor.position)
        progress(self.cursor.position)
        return found

    def save(self) -> Advance:
        """Keep what was gathered, and the cursor if it moved. MORE if everything is stored."""
        with self.lock:
            if self._drop_uncertain() is Advance.GONE:
                return Advance.GONE
            cursor = self.cursor
            if cursor == self.build.reached or self.build.stopped_at:
                return Advance.MORE
            done, self._gathered = self._gathered, Folded()
            try:
                kept = self._rows_to_keep(done)
                found = Advance.PAGE_BY_PAGE if kept is None else self._keep(done, kept, cursor)
            except DamagedRows as damaged:
                found = self.mend(damaged.keys)
                return found if found in ENDS else Advance.OVERTAKEN
            if found is Advance.MORE or found in ENDS:
                return found
            self._single_pages_upto = cursor.position
            return found if self.reload() is not Advance.GONE else Advance.GONE

    def refresh(self) -> Advance:
        """Drop what is not stored, and take over what another process stored. GONE if the build was removed."""
        with self.lock:
            if self._drop_uncertain() is Advance.GONE:
                return Advance.GONE
            current = read_build(self._small_state, self.build.name, self.build.number)
            if current is None or current.revision != self.build.revision:
                return self.reload()
            return Advance.MORE

    # ---- inside a write of the log

    def take_write(self, write: OpenWrite, before: Position) -> None:
        """Apply what an open write has staged, in the same transaction. What it leaves is applied after the commit.

        It never waits: a thread that advances this build holds the lock and waits for this very write.
        """
        if not self.lock.acquire(blocking=False):
            return
        try:
            gone = self._drop_uncertain() is Advance.GONE
            if gone or write.staged_purges or self.build.stopped_at or self.cursor.position != before:
                return
            records = self._counted([recorded for recorded, _ in write.records if self._query.matches(recorded)])
            cursor = Cursor(write.position, START, self._log.identity.epoch, _proof_of(write))
            if not records:
                self._unpublished.note_write(write.position, {})
                self.cursor = cursor
                return
            changes = StateChanges(write.state_changes or self._small_state)  # apart: a failure leaves nothing behind
            done = self._fold(records)
            if done.late:
                self._forget_rows()
                return
            kept = self._rows_to_keep(done)
            if done.stopped is not None:
                cursor = self._before(done.stopped, cursor)
            if kept is None or self._write(changes, done, kept, (), (), cursor) is not Advance.MORE:
                self._forget_rows()
                return
            self._unpublished.note_write(cursor.position, kept if self.live and self.view.has_effects else {})
            if write.state_changes is None:
                write.state_changes = changes
            else:
                write.state_changes.take(changes)
        except DamagedRows:  # the events of their keys are read after the write
            self._forget_rows()
        except BaseException:
            self._forget_rows()
            raise
        finally:
            self.lock.release()

    def write_committed(self) -> None:
        """Note that the write which `take_write` may have applied is stored."""
        self._unpublished.write_committed()

    def write_undone(self) -> None:
        """Note that this write failed. Nothing waits here: the next caller drops what the write left in memory."""
        self._unpublished.write_undone()

    @property
    def holds_failed_write(self) -> bool:
        return self._unpublished.failed

    def publish_changes(self) -> None:
        """Publish what `take_write` changed, now that it is committed."""
        with self.lock:
            # One by one: `on_change` may append, and the changes that follow from that are published last.
            while self._unpublished.committed:
                self._publish(self._unpublished.next_changes())

    # ---- repair

    def mend(self, keys: Collection[str]) -> Advance:
        """Fold keys again whose rows do not match their checksums, and keep the rows.

        REBUILD if a key has no events: then the key itself is damaged, and another one lacks its row.
        """
        with self.lock:
            if self.reload() is Advance.GONE:
                return Advance.GONE
            warn_of_damage(self.view.name, keys)
            if len(keys) > MENDED_MAX or not all(type(key) is str for key in keys):
                return Advance.REBUILD
            waiting = [one for one in self.dead_letters() if one.key in keys and one.what != SKIPPED]
            done, kept = self._refold(keys, also={one.stream for one in waiting})
            parked = {one.key for one in waiting}
            if any(kept[key] is None and key not in parked for key in keys):
                return Advance.REBUILD
            before = self.build
            self.build = replace(before, mended=before.mended + len(keys), mended_us=time.time_ns() // 1000)
            try:
                found = self._keep(done, kept, self.cursor, gone=[one.position for one in waiting])
            except ReadOnly:
                # Another process must store them. The answers of this process are right all the same.
                self.build = before
                self._stand_ins |= kept
                return Advance.MORE
            # If it was overtaken, the other process has mended them or moved on: the caller looks again.
            return found if found is Advance.GONE else self.reload()

    def retry(self, *, skip: Mapping[int, tuple[str, str]] | None = None) -> Advance:
        """Try all waiting events once more, in order and with the current upcasters. MORE if the result is stored.

        `skip` names positions that the view leaves out from now on, with the actor and the reason.
        """
        skip = skip or {}
        with self.lock:
            if self.reload() is Advance.GONE:
                return Advance.GONE
            letters = self.dead_letters()
            left_out = [
                replace(letter, what=SKIPPED, decided_by=by, decided_because=because, at_us=time.time_ns() // 1000)
                for letter in letters
                if letter.position in skip
                for by, because in [skip[letter.position]]
            ]
            self._skipped |= skip.keys()
            waiting = [letter for letter in letters if letter.what != SKIPPED]
            done, kept = self._refold(
                {letter.key for letter in waiting if letter.key}, also={letter.stream for letter in waiting}
            )
            self.build = replace(self.build, stopped_at=0)
            gone = [letter.position for letter in waiting]
            found = self._keep(done, kept, self.cursor, letters=left_out, gone=gone)
            return found if found is Advance.GONE or self.reload() is not Advance.GONE else Advance.GONE

    def _follow_reset(self, reset: Reset) -> Advance:
        """Take a purge out of the keys that it concerns."""
        saved = self.save()  # what was gathered belongs to the history before
        if saved is not Advance.MORE:
            return saved
        if reset.reason != "purged":
            return Advance.REBUILD
        since = max(self.cursor.position, self.cursor.knows)
        streams = {purge.stream for purge in self._log.stored.purges(after=since)}
        affected = keys_fed_by(self._small_state, self.build, streams)
        if affected is None:
            return Advance.REBUILD
        letters = self.dead_letters()
        affected |= {letter.key for letter in letters if letter.stream in streams and letter.key}
        mine = [letter for letter in letters if letter.key in affected and letter.what != SKIPPED]
        gone = {letter.position for letter in (*mine, *letters) if letter in mine or letter.stream in streams}
        if self.build.stopped_at in gone:
            self.build = replace(self.build, stopped_at=0)
        done, kept = self._refold(affected, also={letter.stream for letter in mine} - streams)
        cursor = replace(self.cursor, knows=reset.cursor.position)
        found = self._keep(done, {**dict.fromkeys(affected), **kept}, cursor, gone=gone, scrub=True)
        return found if found is Advance.GONE or self.reload() is not Advance.GONE else Advance.GONE

    def _follow_forgets(self, forgets: list[Forget]) -> Advance:
        """Derive the keys again that have values of somebody who was forgotten."""
        saved = self.save()
        if saved is not Advance.MORE:
            return saved
        streams = streams_of(forgets)
        affected = keys_fed_by(self._small_state, self.build, streams)
        if affected is None:
            return Advance.REBUILD
        letters = self.dead_letters()
        affected |= {letter.key for letter in letters if letter.stream in streams and letter.key}
        # A key may have been a value itself: then the events have another one now.
        affected |= keys_in(self._log, self.view, streams, upto=self.cursor.position)
        again = [one for one in letters if one.what != SKIPPED and (one.key in affected or one.stream in streams)]
        withheld = [replace(one, reason=WITHHELD) for one in letters if one.what == SKIPPED and one.stream in streams]
        gone = {letter.position for letter in again}
        done, kept = self._refold(affected, also=streams | {letter.stream for letter in again})
        stopped_at = 0 if self.build.stopped_at in gone else self.build.stopped_at
        self.build = replace(self.build, forgets=forgets[-1].number, stopped_at=stopped_at)
        rows = {**dict.fromkeys(affected), **kept}
        found = self._keep(done, rows, self.cursor, letters=withheld, gone=gone, scrub=True)
        return found if found is Advance.GONE or self.reload() is not Advance.GONE else Advance.GONE

    # ---- inside: one page

    def _drop_uncertain(self) -> Advance:
        """Reload the build if memory may hold part of a write that failed or has not ended: its position may later
        be given to another event, so the cursor alone does not show it."""
        if self._unpublished.uncertain:
            failures = self._unpublished.failures
            if self.reload() is Advance.GONE:
                return Advance.GONE
            self._unpublished.dropped(failures)  # not if reload raised, and not a write that failed meanwhile
        return Advance.MORE

    def _take_page(self, page: OpenPage) -> Advance:
        """Fold a page and keep the result."""
        events = self._counted([recorded for piece in page for recorded in piece])
        cursor = page.next_cursor
        if not events:
            return self._move_to(cursor)
        done = self._fold(events)
        kept = self._rows_to_keep(done)
        if done.stopped is not None:
            cursor = self._before(done.stopped, cursor)
        found = Advance.PAGE_BY_PAGE if kept is None else self._keep(done, kept, cursor)
        if found is not Advance.MORE:
            return found
        if self.live and self.view.has_effects:
            self.publish_changes()  # of writes before these events
            self._publish_fold(done)
        return Advance.MORE if done.stopped is None else Advance.STOPPED

    def _gather(self, page: OpenPage) -> Advance:
        """Fold a page piece by piece. Nobody waits for a build beside the active one, so several pages are kept
        together, and a row that all of them change is written once.

        As soon as anything goes wrong the pages are taken again, one by one, because only a stored row can be
        restored.
        """
        gathered, before = self._gathered, len(self._gathered.applied)
        for piece in map(self._counted, page):
            done = self._fold(piece)
            if done.smooth is None:
                return Advance.PAGE_BY_PAGE
            gathered.changed |= done.changed
            gathered.passed = joined(gathered.applied, run_of(piece))  # all of it: a page is in ascending order
            if time.monotonic() - gathered.since > GATHERED_S:
                page.end_here()
                break
        cursor = page.next_cursor
        if len(gathered.applied) == before:
            return self._move_to(cursor)
        gathered.pages += 1
        self.cursor = cursor
        enough = gathered.pages >= PAGES_GATHERED or len(self._rows) > ROWS_MAX
        if enough or cursor.position >= page.head or time.monotonic() - gathered.since > GATHERED_S:
            return self.save()
        return Advance.MORE

    def _move_to(self, cursor: Cursor) -> Advance:
        self.cursor = cursor
        if self._gathered.pages or cursor.position - self.build.position >= SAVED_EVERY:
            return self.save()
        return Advance.MORE

    def _publish_fold(self, done: Folded) -> None:
        if not done.changed:
            return
        rows = self._rows if done.changed <= self._rows.keys() else {**self._rows, **self.rows(done.changed)}
        position = self.cursor.position
        self._publish([Change(key, rows[key].state, position) for key in sorted(done.changed) if key in rows])

    def _publish(self, changes: Sequence[Change]) -> None:
        try:
            self.view.on_change(changes)
        except Exception:  # the states are stored, whatever on_change does
            _logger.exception("on_change of the view %s failed; its states are not affected", self.view.name)


def _proof_of(write: OpenWrite) -> str:
    """Return the proof of the last position of a write, if that is an event."""
    last = write.records[-1][0] if write.records else None
    if last is None or last.position != write.position:
        return ""
    return proof_of(last.event.id, write.identity.life_at(last.position))


class _Unpublished:
    """Changes that a view applied inside an open write. They become final, and are published, when the write commits.

    Until then memory may hold changes of a write that fails. The thread that writes never waits here: it only notes
    how its write ended. Any other thread that comes meanwhile reloads the build, which is right in any case.
    """

    def __init__(self) -> None:
        self.committed: list[tuple[Position, Mapping[str, bytes | None]]] = []  # not published yet
        self.failures = 0  # writes that failed
        self._dropped = 0  # those of them that have left nothing in memory
        self._open: tuple[Position, Mapping[str, bytes | None]] | None = None

    def note_write(self, position: Position, rows: Mapping[str, bytes | None]) -> None:
        """Note that memory includes an open write up to a position; these rows are to be published."""
        self._open = position, rows

    def write_committed(self) -> None:
        if self._open is not None:
            if self._open[1]:
                self.committed.append(self._open)
            self._open = None

    def write_undone(self) -> None:
        if self._open is not None:
            self.failures += 1  # first: there must be no moment at which memory seems to be right
            self._open = None

    @property
    def failed(self) -> bool:
        """True while memory may hold part of a write that failed."""
        return self.failures != self._dropped

    @property
    def uncertain(self) -> bool:
        """True while memory may hold what is stored nowhere: part of a write that failed or has not ended."""
        return self.failures != self._dropped or self._open is not None

    def dropped(self, failures: int) -> None:
        """Note that memory was reloaded after this number of failures."""
        self._dropped = failures

    def next_changes(self) -> list[Change]:
        """Remove and return the first changes to publish: the states as one write left them."""
        position, rows = self.committed.pop(0)
        kept = [(key, data) for key, data in sorted(rows.items()) if data is not None]
        return [Change(key, row_of(data).state, position) for key, data in kept]
