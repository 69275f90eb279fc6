"""The snapshots of a log's views: make, check, use and remove them.

A snapshot only saves work: everything in it can be derived from the events. So a snapshot that is damaged, of other
code, of another copy of the log or from before a purge is never used. The reason is reported, and an older snapshot
is used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import START, Position, Purged
from everlog.core.ids import IdSource
from everlog.core.query import Cursor
from everlog.errors import EverlogError, NotFound, OtherCode
from everlog.files import Files
from everlog.log.forgotten import count_forgets, forgets_in, streams_of
from everlog.log.read.resets import proof_at
from everlog.stores.small_state import SmallState
from everlog.views.advance import Advance
from everlog.views.builds.build import Build, active_build
from everlog.views.builds.fingerprint import catalog_fingerprint, code_fingerprint, is_code_of
from everlog.views.snapshots.body import body_digest, holds_any, places_of, put, take
from everlog.views.snapshots.file import Signer, SnapshotHeader, body_bytes
from everlog.views.snapshots.folder import Loaded, SnapshotEntry, SnapshotFolder
from everlog.views.snapshots.patch import Body, make_patch
from everlog.views.snapshots.policy import Due, Thinning, superfluous
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.views.live import LiveView

PATCH_SHARE_MAX = 0.30
"""If a patch is larger than this share of its base, a full snapshot is written instead."""

_LOOKED_EVERY_US = 1_000_000
_TRIES = 3

_logger = logging.getLogger("everlog")


class Snapshots:
    def __init__(
        self,
        log: Log,
        small_state: SmallState,
        folder: Path | None,
        *,
        files: Files | None = None,
        due: Due | None = None,
        thinning: Thinning | None = None,
        signer: Signer | None = None,
        log_bytes: Callable[[], int] = lambda: 0,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.log = log
        self.small_state = small_state
        self.folder = SnapshotFolder(folder, files, signer)
        self.due = due or Due()
        self.thinning = thinning or Thinning()
        self.log_bytes = log_bytes
        self._now_us = now_us
        self._ids = IdSource()
        self._begun_us = now_us()
        self._last: dict[str, SnapshotHeader | None] = {}
        self._sized: tuple[int, int] = (0, 0)  # the log's size, and when it was read

    # ---- which ones can be used

    def stale(self, header: SnapshotHeader, view: View) -> str:
        """Return why a snapshot cannot be used by this view and this log; empty if it can."""
        identity, head = self.log.identity, self.log.head()
        if (header.log_id, header.epoch) != (identity.log_id, identity.epoch):
            return "it is from another copy of the log"
        if header.version != view.version:
            return f"it is of version {header.version} of the view, this is {view.version}"
        if not is_code_of(view, header.code):
            return "the code of the view has changed"
        if header.catalog != catalog_fingerprint(self.log.catalog, view):
            return "events are read differently: a version or an upcaster is new"
        if header.standing != str(self.log.verdicts()):
            return "other events counted when it was made"
        if header.position > head:
            return f"it covers #{header.position}, the log ends at #{head}"
        return "" if self._is_there(*header.last) else f"its last event, #{header.last[0]}, is not in the log"

    def purged(self, loaded: Loaded) -> str:
        """Return a sentence if it contains a stream that was purged since; otherwise an empty text."""
        return "a stream that it contains was purged since" if self._purged_since(loaded.header, loaded.body) else ""

    def newest(self, view: View, *, upto: Position | None = None) -> Loaded | None:
        """Return the usable snapshot with the highest position. A damaged one is reported."""
        for entry in self.folder.entries(view.name):
            if entry.header is None:
                self._warn(entry, entry.problem)
                continue
            if (upto is not None and entry.position > upto) or self.stale(entry.header, view):
                continue
            loaded = self._load_or_warn(entry)
            if loaded is not None and loaded.header == entry.header:
                return loaded
        return None

    # ---- making

    def create(self, live: LiveView, *, full: bool = False, reason: str = "by hand") -> SnapshotEntry:
        """Save a snapshot of a view, brought up to date first. If there is an equal one, return that one.

        States of other code of the same version are refused: no view could use a snapshot of them.
        """
        view = live.view
        self.folder.own()
        stored = active_build(self.small_state, view.name)
        if stored is not None and stored.version == view.version:
            _require_own_code(view, stored)  # before this code continues from the states of the other
        for _ in range(_TRIES):
            taken = take(self.small_state, live.caught_up())
            if isinstance(taken, Advance):
                if taken is Advance.REBUILD:
                    live.start_over()
                continue
            build, body = taken
            _require_own_code(view, build)
            header = self._header(view, build, body, reason)
            with self.folder.locked():
                entry = self._same(header, full=full) or self._write(header, body, full=full)
            if not self._purged_since(header, body):
                self._last[header.view] = header
                return entry
            # A stream was purged meanwhile, and this file may contain its text.
            self.sweep()
        raise NotFound(
            f"no snapshot of {view.name} was made",
            why="what it contains was purged or replaced again and again while it was being written",
            hint="try once more",
        )

    def create_if_due(self, live: LiveView, position: int) -> SnapshotEntry | None:
        """Make a snapshot if one is due, and then remove those that thinning removes. It is cheap to call often."""
        if self.folder.path is None:
            return None
        name = live.view.name
        try:
            reason = self.due_reason(live.view, position)
            if not reason:
                return None
            entry = self.create(live, reason=reason)
            self.prune()
            return entry
        except OtherCode:
            return None  # the live view has reported it once, and it stays so until the view is rebuilt
        except EverlogError as error:  # such as a full disk: the view itself is not affected
            _logger.warning("no snapshot of %s was made: %s", name, error)
            return None

    def due_reason(self, view: View, position: int) -> str:
        """Return why a snapshot of a view at this position is due; empty if it is not."""
        if view.name not in self._last:
            usable = (e.header for e in self.folder.entries(view.name) if e.header and not self.stale(e.header, view))
            self._last[view.name] = next(usable, None)
        last = self._last[view.name]
        return self.due.reason(
            age_us=self._now_us() - (self._begun_us if last is None else last.created_us),
            events=position - (START if last is None else last.position),
            log_bytes=self._size() - (0 if last is None else last.log_bytes),
        )

    def _size(self) -> int:
        now = self._now_us()
        if now - self._sized[1] > _LOOKED_EVERY_US:
            self._sized = (self.log_bytes(), now)
        return self._sized[0]

    # ---- using

    def seed(self, view: View) -> Build | None:
        """Return a new build from the newest usable snapshot, or None: for a view that has no states yet."""
        try:
            loaded = self.newest(view)
        except EverlogError as error:  # it only saves work: a view is never refused because of its snapshots
            _logger.warning("the snapshots of %s cannot be used: %s", view.name, error)
            return None
        if loaded is None:
            return None
        with self.small_state.change() as change:
            return put(change, view, loaded.header, loaded.body)

    def to_restore(self, view: View, entry: SnapshotEntry | None = None) -> Loaded:
        """Return a snapshot that can be used: the newest one, or this one. NotFound says why there is none."""
        hint = f"everlog views rebuild {view.name} derives its states from the events"
        if entry is None:
            found = self.newest(view)
            why = "there is none"
            if self.folder.entries(view.name):
                why = "those that exist are damaged or stale"
                hint = f"everlog snapshot verify {view.name} shows why; {hint}"
        else:
            loaded = self.folder.load(entry)
            other = "" if loaded.header.view == view.name else f"it is a snapshot of {loaded.header.view}"
            why = other or self.stale(loaded.header, view) or self.purged(loaded)
            found = None if why else loaded
        if found is None:
            raise NotFound(
                f"no snapshot of {view.name} can be used" if entry is None else f"{entry.id} cannot be used",
                why=why,
                hint=hint,
                view=view.name,
            )
        return found

    def adopt(self, view: View, rows: Mapping[str, bytes], *, reason: str) -> SnapshotEntry:
        """Save rows that another node derived from exactly the events that are here, as a snapshot of this log."""
        log, head = self.log, self.log.head()
        positions = [one.position for one in log.counted(log.stored.read(view.query, upto=head))]
        body: Body = {"rows": dict(sorted(rows.items())), "places": places_of(positions), "letters": {}}
        identity = log.identity
        build = Build(
            name=view.name,
            number=0,
            version=view.version,
            by_stream=view.by_stream,
            cursor=str(Cursor(head, START, identity.epoch, proof_at(log.stored, head))),
            applied=len(positions),
            standing=str(log.verdicts()),
            forgets=count_forgets(log.writer.small_state),
        )
        with self.folder.locked():
            return self._write(self._header(view, build, body, reason), body, full=True)

    # ---- removing

    def prune(self, *, dry_run: bool = False) -> list[SnapshotEntry]:
        """Remove the snapshots that thinning does not keep."""
        if not self.folder.is_there:
            return []
        with self.folder.locked():
            found = {entry.id: entry for entry in self.folder.entries()}
            headers = [entry.header for entry in found.values() if entry.header is not None]
            protected = frozenset(entry.id for entry in found.values() if entry.protected)
            ids = superfluous(headers, now_us=self._now_us(), protected=protected, rule=self.thinning)
            gone = [found[name] for name in ids]
            if not dry_run:
                self._forget(gone)
            return gone

    def sweep(self) -> list[SnapshotEntry]:
        """Remove every snapshot that contains, or may contain, a stream that was purged since or in which somebody
        was forgotten; protected ones too."""
        if not self.folder.is_there or not (self.log.stored.purges() or forgets_in(self.log.writer.small_state)):
            return []
        with self.folder.locked():
            self.folder.remove_leftovers()
            entries = self.folder.entries()
            gone = {entry.id for entry in entries if self._may_hold_purged(entry)}
            gone |= {entry.id for entry in entries if entry.header is not None and entry.header.base in gone}
            removed = [entry for entry in entries if entry.id in gone]
            self._forget(removed)
            return removed

    def sweep_quietly(self) -> None:
        """Do the same, but only report an error. It is tried again later."""
        try:
            self.sweep()
        except EverlogError as error:
            _logger.warning("snapshots in %s may contain purged text: %s", self.folder.path, error)

    # ---- inside

    def _header(self, view: View, build: Build, body: Body, reason: str) -> SnapshotHeader:
        identity, reached = self.log.identity, build.reached
        last = next(self.log.stored.read(upto=reached.position, limit=1, newest_first=True), None)
        return SnapshotHeader(
            id=self._ids.take(1)[0],
            view=view.name,
            version=view.version,
            by_stream=build.by_stream,
            code=build.code or code_fingerprint(view),  # the code that made the states, which may have changed since
            catalog=catalog_fingerprint(self.log.catalog, view),
            log_id=identity.log_id,
            epoch=identity.epoch,
            cursor=str(reached),
            lamport=self.log.stored.ends().clock,
            last=(0, "") if last is None else (last.position, last.event.id),
            keys=len(body["rows"]),
            applied=build.applied,
            stopped_at=build.stopped_at,
            standing=build.standing,
            digest=body_digest(body),
            body_bytes=0,
            log_bytes=self.log_bytes(),
            created_us=self._now_us(),
            reason=reason,
            forgets=build.forgets,
        )

    def _same(self, header: SnapshotHeader, *, full: bool) -> SnapshotEntry | None:
        """Return an equal snapshot, if there is one and it is intact."""
        for entry in self.folder.entries(header.view):
            found = entry.header
            if found is None or (full and found.base):
                continue
            as_new = replace(header, id=found.id, created_us=found.created_us, reason=found.reason, base=found.base)
            as_new = replace(as_new, base_sha256=found.base_sha256, body_bytes=found.body_bytes)
            if replace(as_new, log_bytes=found.log_bytes) == found:
                try:
                    self.folder.load(entry)
                except EverlogError:
                    continue
                return entry
        return None

    def _write(self, header: SnapshotHeader, body: Body, *, full: bool) -> SnapshotEntry:
        self.folder.remove_leftovers()
        content = body_bytes(body)
        header = replace(header, body_bytes=len(content))
        base = None if full else self._base(header)
        if base is not None:
            patch = make_patch(base.body, body)
            if len(patch) <= PATCH_SHARE_MAX * base.header.body_bytes:
                header, content = replace(header, base=base.header.id, base_sha256=base.sha256), patch
        return self.folder.write(header, content)

    def _base(self, header: SnapshotHeader) -> Loaded | None:
        """Return the newest full snapshot that can be the base of a patch."""
        for entry in self.folder.entries(header.view):
            found = entry.header
            if (
                found is None
                or found.base
                or found.position > header.position
                or self._fingerprint(found) != (self._fingerprint(header))
            ):
                continue
            loaded = self._load_or_warn(entry)
            if loaded is not None:
                return loaded
        return None

    @staticmethod
    def _fingerprint(header: SnapshotHeader) -> tuple[str | int, ...]:
        return (header.log_id, header.epoch, header.version, header.code, header.catalog)

    def _is_there(self, position: int, event_id: str) -> bool:
        """Return whether an event is at its position, or was purged there."""
        if not position:
            return True
        before = Position(position - 1)
        found = next(self.log.stored.read(after=before, upto=Position(position)), None)
        if found is not None:
            return found.event.id == event_id
        place = next(self.log.stored.slots(after=before), None)
        return isinstance(place, Purged) and (place.position, place.id) == (position, event_id)

    def _streams_purged_since(self, header: SnapshotHeader) -> set[str]:
        reached = header.reached
        here = header.epoch == self.log.identity.epoch
        since = max(reached.position, reached.knows) if here else START
        purged = {purge.stream for purge in self.log.stored.purges(after=since)}
        return purged | streams_of(forgets_in(self.log.writer.small_state, header.forgets))

    def _purged_since(self, header: SnapshotHeader, body: Body) -> bool:
        streams = self._streams_purged_since(header)
        return bool(streams) and holds_any(body, streams, by_stream=header.by_stream)

    def _may_hold_purged(self, entry: SnapshotEntry) -> bool:
        if entry.header is None:  # what a damaged one contains is not known
            return bool(self.log.stored.purges(after=entry.position) or forgets_in(self.log.writer.small_state))
        if not self._streams_purged_since(entry.header):
            return False
        try:
            loaded = self.folder.load(entry)
        except EverlogError:
            return True
        return self._purged_since(loaded.header, loaded.body)

    def _load_or_warn(self, entry: SnapshotEntry) -> Loaded | None:
        """Return the content of a snapshot; None if a stream in it was purged since, or it is damaged (reported)."""
        try:
            loaded = self.folder.load(entry)
        except EverlogError as error:
            self._warn(entry, str(error))
            return None
        return None if self._purged_since(loaded.header, loaded.body) else loaded

    def _warn(self, entry: SnapshotEntry, problem: str) -> None:
        _logger.warning("the snapshot %s is not used: %s", entry.path.name, problem)

    def _forget(self, entries: list[SnapshotEntry]) -> None:
        self.folder.remove(entries)
        for entry in entries:
            self._last.pop(entry.view, None)


def _require_own_code(view: View, build: Build) -> None:
    if not build.is_of(view):
        raise OtherCode(
            f"no snapshot of {view.name} was made",
            why="its code changed and its version did not: its states were made by the code before",
            hint=f"everlog views rebuild {view.name}, then everlog snapshot create {view.name}",
            view=view.name,
        )
