"""An open segments log: its files, its state, its lock and its one writer. `store` is what others see of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from everlog.core.event import Position
from everlog.errors import Busy, LogClosed, NotFound, Unavailable, WriterStopped
from everlog.files import DiskFiles, Files
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Identity
from everlog.stores.identity import Origins, continued, new_identity
from everlog.stores.inherited import WHY_ABANDONED, abandon_in_forks
from everlog.stores.open_write import OpenWrite
from everlog.stores.put_back import remember_end, settle
from everlog.stores.segments.archive import remove_superseded
from everlog.stores.segments.format.frame import SWEPT
from everlog.stores.segments.format.layout import (
    Layout,
    Manifest,
    identity_of,
    make_folders,
    read_manifest,
    write_manifest,
)
from everlog.stores.segments.loading import SegmentReplaced
from everlog.stores.segments.purge import refuse_damage_under, sweep
from everlog.stores.segments.recovery import refuse_damage
from everlog.stores.segments.small_rows import SmallRows
from everlog.stores.segments.state import LogState, no_segments
from everlog.stores.segments.writer import SPACE_BYTES_MAX, Writer, begin_log, refuse_lost_file
from everlog.stores.small_state import SmallState, StoreState
from everlog.stores.waiting_lines import WaitingLines

SEGMENT_BYTES_MAX = 100 * 1024 * 1024
SEGMENT_HOURS_MAX = 24
LOCK_WAIT_S = 0.8
HOUR_US = 3_600_000_000
T = TypeVar("T")


class OpenLog:
    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        files: Files | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        identity: Identity | None = None,
        claims_kept_us: int = CLAIMS_KEPT_US_MIN,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        segment_hours_max: int = SEGMENT_HOURS_MAX,
        space_bytes: int = SPACE_BYTES_MAX,
    ) -> None:
        self.path = Path(path)
        self.files = files or DiskFiles()
        self.layout = Layout(self.path)
        self._now_us = now_us
        self._segment_bytes_max = segment_bytes_max
        self._segment_us_max = segment_hours_max * HOUR_US
        self._space_bytes = space_bytes
        self._mutex = threading.RLock()
        self._lock = self.files.lock(self.layout.lock)
        self._writer: Writer | None = None
        self._writing = False
        self._failed: BaseException | None = None
        self._closed = False
        self._why_closed = "open it again"
        self._sequences: dict[str, int] = {}
        self._settled = False  # whether it is known that the log was not put back
        self.origins = Origins()
        self._before: tuple[Identity, str] | None = None  # identity and place, if this write changes them
        rows = SmallRows(self._query, now_us=now_us, claims_kept_us=max(claims_kept_us, CLAIMS_KEPT_US_MIN))
        waiting = WaitingLines(self.files, self.layout.refusals, lambda: self.identity.log_id)
        self.small_state = StoreState(rows.beside(), self._open_derived, waiting)
        if not self.layout.numbers(self.files):
            self._begin(create, identity)
        self.identity, newest = identity_of(self.files, self.layout)
        self.state = LogState(self.files, self.layout, self.identity, newest=newest)
        self.state.again = self._look_again
        abandon_in_forks(self)

    def _open_derived(self) -> SmallState:
        """Open the file of what views derive. Most logs here never need its library."""
        from everlog.stores.small_state_sqlite import StateFile

        return StateFile(self.layout.views, self.files)

    # ---- reading

    def _now(self) -> LogState:
        """The state, up to date. Under the mutex."""
        self._require_open()
        if self._writer is None:
            try:
                self.state.refresh()
            except WriterStopped as error:
                self._stop(error)
                raise
        return self.state

    def _look(self) -> LogState:
        with self._mutex:
            return self._now().frozen()

    def _look_again(self) -> LogState:
        self._reload()
        return self._look()

    def _query(self, ask: Callable[[LogState], T]) -> T:
        """Return what the state of the log answers; if a segment was rewritten meanwhile, what it answers then."""
        with self._mutex:
            while True:
                try:
                    return ask(self.state if self._writing else self._now())
                except SegmentReplaced:
                    self._reload()

    def _reload(self) -> None:
        with self._mutex:
            writer = self._writer
            if writer is None:
                self._load()
                return
            outdated, writer.outdated = writer.outdated, True  # until it is known what is there now
            self._load()
            if self.state.first_problem() is None:
                writer.outdated = outdated
            elif self._writing:  # the write began when nothing was wrong: it is refused now
                refuse_damage(self.layout, self.state)

    def _load(self) -> None:
        try:
            self.state.load()
        except WriterStopped as error:
            self._stop(error)
            raise

    # ---- writing

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.path} is closed", hint=self._why_closed)

    def _begin_write(self) -> Writer:
        writer = self._writer
        if writer is None or self._closed or self._writing or not self._goes_on(writer):
            writer = self._new_writer()
        self._require_the_lock()
        refuse_lost_file(writer)
        return writer

    def _goes_on(self, writer: Writer) -> bool:
        """Return whether a writer may write, as far as this process knows."""
        return self._failed is None and not (writer.unsure or writer.outdated or writer.stopped is not None)

    def _new_writer(self) -> Writer:
        """Return a writer that knows the files as they are, or raise why this handle may not write."""
        self._require_open()
        if self._writing:
            raise RuntimeError("a write is open already in this thread")
        self._refuse_if_stopped()
        if self._writer is not None and self._writer.outdated:
            self._step_back(self._writer)
        if self._writer is None:
            self._become_writer()
            self._refuse_if_stopped()
        assert self._writer is not None
        return self._writer

    def _stop(self, error: BaseException) -> None:
        """A flush of this handle failed: it never writes again (G12)."""
        self._failed = self._failed or error

    def _refuse_if_stopped(self) -> None:
        writer = self._writer
        if writer is not None and writer.stopped is not None:
            self._stop(writer.stopped)
        if writer is not None and writer.unsure:
            self._stop(InterruptedError("interrupted"))  # interrupted twice, before it could be recorded
        if self._failed is not None:
            raise WriterStopped(
                f"{self.path} takes no more writes from this process",
                why=f"a write or its flush failed before ({self._failed}), so that what is on the disk is unknown",
                hint="check the disk, then open the log again",
            ) from self._failed

    def _require_the_lock(self) -> None:
        """The lock that is held must be the one that others see. If its file was removed, another writer may be
        there, and what this one says from now on is worth nothing."""
        if self._lock.has_its_name():
            return
        self._failed = WriterStopped(
            f"{self.path} takes no more writes from this process",
            why=f"{self.layout.lock} was removed or replaced while it was held, so that there may be another writer",
            hint="never remove that file; open the log again",
        )
        raise self._failed

    def _become_writer(self) -> None:
        try:
            self._lock.acquire(LOCK_WAIT_S)
        except Busy as error:
            raise Busy(
                f"another writer has {self.path} open",
                why=error.why or str(error),
                hint="a segments log has one writer at a time: wait until it is closed, or send it your events",
                **error.details,
            ) from error
        self._settled = False
        try:
            self.state.load()
            self._sequences.clear()
            known = read_manifest(self.files, self.layout)
            if known is not None:  # another process may have changed the origin
                self._identify(known.identity, known.place)
            self._writer = Writer(
                self.files,
                self.layout,
                self.state,
                segment_bytes_max=self._segment_bytes_max,
                segment_us_max=self._segment_us_max,
                space_bytes=self._space_bytes,
            )
            if known != self._manifest():
                write_manifest(self.files, self.layout, self._manifest())
            remove_superseded(self.files, self.layout, self.state)
            if self.state.sweep_owed:
                self._sweep(self._writer)
        except BaseException as error:
            if isinstance(error, WriterStopped):
                self._stop(error)
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.abandon()
            self._lock.release()
            raise

    def _manifest(self) -> Manifest:
        return Manifest(self.identity, self.state.live.number, self.state.place)

    def _settle_origin(self) -> None:
        """See that own events continue the chain: a log that was put back takes a new origin with this write."""
        state, before = self.state, (self.identity, self.state.place)
        link, now_us = state.chain(self.identity.origin).end, self._now_us()
        settled = settle(self._lock, *before, link=link, head=state.head, now_us=now_us, origins=self.origins)
        if settled != before:
            self._before = before
            self._identify(*settled)
        self._settled = bool(state.place)

    def _continue_as(self, origin: str) -> None:
        self._before = self._before or (self.identity, self.state.place)
        self._identify(continued(self.identity, origin, head=self.state.head), self.state.place)

    def _identify(self, identity: Identity, place: str) -> None:
        self.identity = self.state.identity = identity
        self.state.place = place

    def _unsettle(self) -> None:
        """Take back what settling the origin changed: the write was undone."""
        assert self._before is not None
        self._identify(*self._before)
        self._before = None
        self._settled = False

    def _commit(self, writer: Writer, staged: OpenWrite) -> None:
        try:
            if not self._goes_on(writer):
                self._refuse_if_stopped()
            if writer.outdated:
                refuse_damage(self.layout, self.state)
                raise Unavailable(
                    f"{self.path} could not be read again while this was written",
                    why="a segment was packed or rewritten, and reading it failed; nothing was recorded",
                    hint="write it again",
                )
            removed: set[Position] = set(staged.erasures)
            for _, purged in staged.staged_purges:
                removed.update([gone.position for gone in purged])
            if removed:
                refuse_damage_under(self.state, removed)
            if self._before is not None:
                write_manifest(self.files, self.layout, self._manifest())
                self._before = None
            touched = writer.commit(staged)
            self._require_the_lock()  # before the caller gets a receipt: this process may have slept
            if removed or staged.scrubs:
                self._sweep(writer)
        except BaseException as error:
            self._sequences.clear()  # it may be recorded all the same
            if isinstance(error, WriterStopped) or writer.unsure:
                self._stop(error)  # G12: never again from this process
            elif writer.outdated:
                self._step_back(writer)
            raise
        if self._settled and (own := staged.chains.get(self.identity.origin)) is not None:
            remember_end(self._lock, self.identity.origin, own.end.origin_seq)
        self._sequences.update(touched)
        for purge, _ in staged.staged_purges:
            self._sequences.pop(purge.stream, None)

    def _step_back(self, writer: Writer) -> None:
        """Nothing is wrong with the log, but the writer does not know its files any more: the next write opens them
        again, and finishes what was begun."""
        self._writer = None
        try:
            writer.abandon()
        finally:
            self._lock.release()

    def _sweep(self, writer: Writer) -> None:
        writer.rotate(self._now_us())
        writer.outdated = True  # segments are swapped under it
        sweep(self.files, self.layout, self.state)
        self.state.load()
        writer.outdated = False
        writer.mark(SWEPT)
        writer.save_index()

    # ---- opening and closing

    def _begin(self, allowed: bool, identity: Identity | None) -> None:
        if self.files.exists(self.layout.manifest):
            read_manifest(self.files, self.layout)  # refuses another format: an upgrade may have been interrupted
            raise no_segments(self.layout)
        if not allowed:
            raise NotFound(f"{self.path} does not exist", why="there is no log to open", hint="everlog init")
        make_folders(self.files, self.layout)
        self._lock.acquire(LOCK_WAIT_S)
        try:
            if not self.layout.numbers(self.files):  # another process may have been faster
                now_us = self._now_us()
                made = identity or new_identity(now_us)
                place = self._lock.place() if identity is None else ""
                begin_log(self.files, self.layout, made, place=place, now_us=now_us)
                if place:
                    remember_end(self._lock, made.origin, 0)
        finally:
            self._lock.release()

    def abandon_after_fork(self) -> None:
        """In a child: the lock and the file are the parent's. Refuse to be used."""
        self._mutex = threading.RLock()
        self._writer = None
        self._closed = True
        self._why_closed = WHY_ABANDONED

    def close(self) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            writer, self._writer = self._writer, None
            try:
                if writer is not None:
                    knows = not writer.unsure and not writer.outdated
                    if self._failed is None and knows and writer.has_its_file():
                        writer.close()
                    else:
                        writer.abandon()
            finally:
                self.small_state.close()
                self._lock.close()
