"""The snapshots of a log's views: made, judged, used and removed.

A snapshot only spares work: everything in it can be derived from the events. So one that is damaged, of other code,
of another copy of the log or from before a purge is never used, whoever asks is told why, and the one before it
serves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import START, Position, Purged
from everlog.core.ids import IdSource
from everlog.errors import EverlogError, NotFound, OtherCode
from everlog.files import Files
from everlog.stores.shelf import Shelf
from everlog.views.fingerprint import catalog_fingerprint, code_fingerprint
from everlog.views.incremental import Body, make_patch
from everlog.views.restoring import body_digest, holds_any, put, take
from everlog.views.snapshot_file import Header, Signer, body_bytes
from everlog.views.snapshot_folder import Entry, Loaded, SnapshotFolder
from everlog.views.states import Build, active_build
from everlog.views.thinning import Due, Thinning, superfluous
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.views.runner import Runner

PATCH_SHARE_MAX = 0.30
"""A patch larger than this share of its base is not worth it: the snapshot is a full one again."""

_LOOKED_EVERY_US = 1_000_000
_TRIES = 3

_logger = logging.getLogger("everlog")


class Snapshots:
    def __init__(
        self,
        log: Log,
        shelf: Shelf,
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
        self.shelf = shelf
        self.folder = SnapshotFolder(folder, files, signer)
        self.due = due or Due()
        self.thinning = thinning or Thinning()
        self._log_bytes = log_bytes
        self._now_us = now_us
        self._ids = IdSource()
        self._begun_us = now_us()
        self._last: dict[str, Header | None] = {}
        self._sized: tuple[int, int] = (0, 0)  # the log's size, and when it was looked at

    # ---- which can be used

    def stale(self, header: Header, view: View) -> str:
        """Why a snapshot is of no use to this view and this log now; nothing if it is."""
        identity, head = self.log.identity, self.log.head()
        if (header.log_id, header.epoch) != (identity.log_id, identity.epoch):
            return "it is of another copy of the log"
        if header.version != view.version:
            return f"it is of version {header.version} of the view, this is {view.version}"
        if header.code != code_fingerprint(view):
            return "the code of the view is another one"
        if header.catalog != catalog_fingerprint(self.log.catalog, view):
            return "events are read in another way: a version or an upcaster is new"
        if header.position > head:
            return f"it covers #{header.position}, the log ends at #{head}"
        return "" if self._is_there(*header.last) else f"the event that it ends with, #{header.last[0]}, is not there"

    def purged(self, loaded: Loaded) -> str:
        """Whether it holds what was purged since, in words."""
        return "a stream that it holds was purged since" if self._purged_since(loaded.header, loaded.body) else ""

    def newest(self, view: View, *, upto: Position | None = None) -> Loaded | None:
        """The one that got furthest and can be used. A damaged one is told of, and the one before it serves."""
        for entry in self.folder.entries(view.name):
            if entry.header is None:
                self._tell(entry, entry.problem)
                continue
            if (upto is not None and entry.position > upto) or self.stale(entry.header, view):
                continue
            loaded = self._load_or_tell(entry)
            if loaded is not None and loaded.header == entry.header:
                return loaded
        return None

    # ---- making

    def create(self, runner: Runner, *, full: bool = False, reason: str = "by hand") -> Entry:
        """A snapshot of a view, brought up to date first. If there is one that says the same, that one.

        States of other code of the same version are refused: a snapshot of them would be of use to nobody.
        """
        self.folder.own()
        kept = active_build(self.shelf, runner.view.name)
        if kept is not None and kept.version == runner.view.version:
            _require_own_code(runner.view, kept)  # before this code goes on from the states of the other
        for _ in range(_TRIES):
            build, body = take(self.shelf, runner.catch_up())
            _require_own_code(runner.view, build)
            header = self._header(runner.view, build, body, reason)
            with self.folder.locked():
                entry = self._same(header, full=full) or self._write(header, body, full=full)
            if not self._purged_since(header, body):
                self._last[header.view] = header
                return entry
            # A stream was purged meanwhile, and this may hold what it said.
            self.sweep()
        raise NotFound(
            f"no snapshot of {runner.view.name} was made",
            why="what it holds was purged again and again while it was being written",
            hint="try once more",
        )

    def create_if_due(self, runner: Runner, position: int) -> Entry | None:
        """A snapshot if a trigger fires, and then what thinning lets go is removed. Cheap to ask often."""
        if self.folder.path is None:
            return None
        name = runner.view.name
        try:
            reason = self.due_reason(runner.view, position)
            if not reason:
                return None
            entry = self.create(runner, reason=reason)
            self.prune()
            return entry
        except OtherCode:
            return None  # the runner has told of it once, and it stays so until somebody rebuilds the view
        except EverlogError as error:  # a full disk, say: the view itself is none the worse for it
            _logger.warning("no snapshot of %s was made: %s", name, error)
            return None

    def due_reason(self, view: View, position: int) -> str:
        """Which trigger fires for a view that has got to a position; nothing if none does."""
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
            self._sized = (self._log_bytes(), now)
        return self._sized[0]

    # ---- using

    def seed(self, view: View) -> Build | None:
        """A build that stands where the newest usable snapshot stood, or None: for a view that has no states yet."""
        try:
            loaded = self.newest(view)
        except EverlogError as error:  # it only spares work: a view is never refused because of its snapshots
            _logger.warning("the snapshots of %s cannot be used: %s", view.name, error)
            return None
        if loaded is None:
            return None
        with self.shelf.change() as change:
            return put(change, view, loaded.header, loaded.body)

    def to_restore(self, view: View, entry: Entry | None = None) -> Loaded:
        """A snapshot that can be used: the newest one, or this one. NotFound says why there is none."""
        hint = f"everlog views rebuild {view.name} derives its states from the events"
        if entry is None:
            found = self.newest(view)
            why = "there is none"
            if self.folder.entries(view.name):
                why = "those that there are are damaged or stale"
                hint = f"everlog snapshot verify {view.name} says why; {hint}"
        else:
            loaded = self.folder.load(entry)
            other = "" if loaded.header.view == view.name else f"it is one of {loaded.header.view}"
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

    # ---- removing

    def prune(self, *, dry_run: bool = False) -> list[Entry]:
        """Remove what thinning lets go."""
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

    def sweep(self) -> list[Entry]:
        """Remove every snapshot that holds, or may hold, what was purged since it was made. Protected ones too."""
        if not self.folder.is_there or not self.log.store.purges():
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
        """The same for who has something else to do. What could not be removed is told of, and tried again later."""
        try:
            self.sweep()
        except EverlogError as error:
            _logger.warning("snapshots in %s may hold what was purged: %s", self.folder.path, error)

    # ---- inside

    def _header(self, view: View, build: Build, body: Body, reason: str) -> Header:
        identity, reached = self.log.identity, build.reached
        last = next(self.log.store.read(upto=reached.position, limit=1, newest_first=True), None)
        return Header(
            id=self._ids.take(1)[0],
            view=view.name,
            version=view.version,
            by_stream=build.by_stream,
            code=build.code or code_fingerprint(view),  # what made the states, which may be other code by now
            catalog=catalog_fingerprint(self.log.catalog, view),
            log_id=identity.log_id,
            epoch=identity.epoch,
            cursor=str(reached),
            lamport=self.log.store.clock(),
            last=(0, "") if last is None else (last.position, last.event.id),
            keys=len(body["rows"]),
            applied=build.applied,
            stopped_at=build.stopped_at,
            digest=body_digest(body),
            body_bytes=0,
            log_bytes=self._log_bytes(),
            created_us=self._now_us(),
            reason=reason,
        )

    def _same(self, header: Header, *, full: bool) -> Entry | None:
        """The one that says the very same, if there is one and it is sound."""
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

    def _write(self, header: Header, body: Body, *, full: bool) -> Entry:
        self.folder.remove_leftovers()
        content = body_bytes(body)
        header = replace(header, body_bytes=len(content))
        base = None if full else self._base(header)
        if base is not None:
            patch = make_patch(base.body, body)
            if len(patch) <= PATCH_SHARE_MAX * base.header.body_bytes:
                header, content = replace(header, base=base.header.id, base_sha256=base.sha256), patch
        return self.folder.write(header, content)

    def _base(self, header: Header) -> Loaded | None:
        """The newest full snapshot that a patch can stand on."""
        for entry in self.folder.entries(header.view):
            found = entry.header
            if (
                found is None
                or found.base
                or found.position > header.position
                or self._fingerprint(found) != (self._fingerprint(header))
            ):
                continue
            loaded = self._load_or_tell(entry)
            if loaded is not None:
                return loaded
        return None

    @staticmethod
    def _fingerprint(header: Header) -> tuple[str | int, ...]:
        return (header.log_id, header.epoch, header.version, header.code, header.catalog)

    def _is_there(self, position: int, event_id: str) -> bool:
        """Whether an event is where it was, or was purged from there."""
        if not position:
            return True
        before = Position(position - 1)
        found = next(self.log.store.read(after=before, upto=Position(position)), None)
        if found is not None:
            return found.event.id == event_id
        place = next(self.log.store.packed(after=before), None)
        return isinstance(place, Purged) and (place.position, place.id) == (position, event_id)

    def _streams_purged_since(self, header: Header) -> set[str]:
        reached = header.reached
        here = header.epoch == self.log.identity.epoch
        since = max(reached.position, reached.knows) if here else START
        return {purge.stream for purge in self.log.store.purges(after=since)}

    def _purged_since(self, header: Header, body: Body) -> bool:
        streams = self._streams_purged_since(header)
        return bool(streams) and holds_any(body, streams, by_stream=header.by_stream)

    def _may_hold_purged(self, entry: Entry) -> bool:
        if entry.header is None:  # what a damaged one holds cannot be told
            return bool(self.log.store.purges(after=entry.position))
        if not self._streams_purged_since(entry.header):
            return False
        try:
            loaded = self.folder.load(entry)
        except EverlogError:
            return True
        return self._purged_since(loaded.header, loaded.body)

    def _load_or_tell(self, entry: Entry) -> Loaded | None:
        """What a snapshot holds; None if something was purged since, or if it is damaged, which is told."""
        try:
            loaded = self.folder.load(entry)
        except EverlogError as error:
            self._tell(entry, str(error))
            return None
        return None if self._purged_since(loaded.header, loaded.body) else loaded

    def _tell(self, entry: Entry, problem: str) -> None:
        _logger.warning("the snapshot %s is not used: %s", entry.path.name, problem)

    def _forget(self, entries: list[Entry]) -> None:
        self.folder.remove(entries)
        for entry in entries:
            self._last.pop(entry.view, None)


def _require_own_code(view: View, build: Build) -> None:
    if not build.is_of(view):
        raise OtherCode(
            f"no snapshot of {view.name} was made",
            why="its code changed and its version did not: its states are of the code before, of use to nobody now",
            hint=f"everlog views rebuild {view.name}, then everlog snapshot create {view.name}",
            view=view.name,
        )
