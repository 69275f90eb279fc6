"""The snapshots of views, for people: created, listed with whether each can be used, verified, and removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import msgspec

from everlog.errors import NotFound, OtherCode
from everlog.log.log import Log
from everlog.views.live import LiveView
from everlog.views.registry import live_view, views_of
from everlog.views.snapshots.check import Verdict, check_all, check_bytes
from everlog.views.snapshots.folder import SnapshotEntry
from everlog.views.snapshots.restore import Restored


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, and whether it can be used."""

    columns: ClassVar[tuple[str, ...]] = (
        *("id", "view", "position", "kind", "keys", "bytes", "created_at", "state", "protected"),
    )

    id: str
    view: str
    position: int
    kind: str  # full, or patch; empty if it is damaged
    keys: int
    bytes: int
    created_at: str
    state: str
    protected: str  # the reason; empty if it is not protected
    file: str
    base: str  # the snapshot that a patch is on


class CreatedSnapshots(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots that were created, and why others were refused."""

    made: Sequence[SnapshotInfo]
    refused: Sequence[OtherCode]


def create_snapshots(log: Log, names: Sequence[str], *, full: bool = False, if_due: bool = False) -> CreatedSnapshots:
    """Bring views up to date and save their rows; without names, those of all views that have been run here.

    With `if_due`, only views for which a trigger fires. A view whose code changed without a new version is refused;
    the others are still saved.
    """
    snapshots = views_of(log).snapshots
    made: list[SnapshotInfo] = []
    refused: list[OtherCode] = []
    for live in _views(log, names):
        reason = "by hand"
        if if_due:
            reason = snapshots.due_reason(live.view, live.catch_up())
            if not reason:
                continue
        try:
            made.append(_info(log, snapshots.create(live, full=full, reason=reason)))
        except OtherCode as error:
            refused.append(error)
    return CreatedSnapshots(made=made, refused=refused)


def list_snapshots(log: Log, view: str = "") -> list[SnapshotInfo]:
    """Return the snapshots of a view, or of all views."""
    found = views_of(log).snapshots.folder.entries(view)
    if view and not found:
        log.view(view)  # a mistyped name must not look like a view without snapshots
    return [_info(log, entry) for entry in found]


def verify_snapshots(log: Log, names: Sequence[str], *, sample: int | None) -> list[Verdict]:
    """Verify snapshots: their bytes, a sample of their rows by replay (None: all), and the state they lead to."""
    snapshots = views_of(log).snapshots
    found: list[Verdict] = []
    for name in names or sorted({entry.view for entry in snapshots.folder.entries()}):
        try:
            live = log.view(name)
        except NotFound:  # its code is not here, so only its bytes can be checked
            found += [check_bytes(snapshots, entry) for entry in snapshots.folder.entries(name)]
        else:
            found += check_all(snapshots, live, sample=sample)
    return found


def describe_verdict(verdict: Verdict) -> str:
    """Return a verdict in words."""
    if verdict.problem:
        return f"damaged: {verdict.problem}"
    if verdict.stale:
        return f"stale: {verdict.stale}"
    if verdict.wrong:
        return f"wrong: {', '.join(verdict.wrong[:5])}"
    if verdict.live is False:
        return "wrong: it does not lead to the current state of the view"
    return "wrong: it does not follow from the one before it" if verdict.before is False else "ok"


def how_to_create_one(log: Log, view: str = "") -> str:
    """Return the command that creates the first snapshot of a view, for a log without any."""
    make = f"everlog snapshot create {view or 'streams'}"
    if views_of(log).snapshots.folder.path is None:
        make = f"everlog config set snapshots snapshots sets their folder, {make} creates one"
    return f"there is no snapshot{f' of {view}' if view else ''}: {make}"


def prune_snapshots(log: Log, *, dry_run: bool = False) -> list[SnapshotInfo]:
    """Remove the snapshots that are not needed any more, and return them."""
    return [_info(log, entry) for entry in views_of(log).snapshots.prune(dry_run=dry_run)]


def protect_snapshot(log: Log, name: str, reason: str | None) -> SnapshotInfo:
    """Keep a snapshot regardless of its age; with None as the reason, end that."""
    folder = views_of(log).snapshots.folder
    entry = folder.find(name)
    folder.protect(entry, reason)
    return _info(log, folder.find(entry.id))


def restore_view(log: Log, view: str, name: str | None = None) -> Restored:
    """Restore a view from a snapshot, by default the newest usable one, and the events after it."""
    entry = views_of(log).snapshots.folder.find(name) if name else None
    return live_view(log, view).restore(entry)


def _views(log: Log, names: Sequence[str]) -> list[LiveView]:
    found = [live_view(log, name) for name in names or log.views.names()]
    run = found if names else [live for live in found if live.build() is not None]
    if not run:
        raise NotFound(
            "no view has been run here", why="there is nothing to save", hint="everlog snapshot create streams"
        )
    return run


def _info(log: Log, entry: SnapshotEntry) -> SnapshotInfo:
    header = entry.header
    return SnapshotInfo(
        id=entry.id,
        view=entry.view,
        position=entry.position,
        kind="" if header is None else "patch" if header.base else "full",
        keys=0 if header is None else header.keys,
        bytes=entry.file_bytes,
        created_at="" if header is None else _time(header.created_us),
        state=_state(log, entry),
        protected=entry.protected,
        file=entry.path.name,
        base="" if header is None else header.base or "",
    )


def _state(log: Log, entry: SnapshotEntry) -> str:
    if entry.header is None:
        return "damaged"
    try:
        view = log.view(entry.view).view
    except NotFound:
        return "its view is not known here"
    stale = views_of(log).snapshots.stale(entry.header, view)
    return f"stale: {stale}" if stale else "usable"


def _time(us: int) -> str:
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")
