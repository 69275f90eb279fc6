"""`everlog snapshot`: create, list, verify, prune, protect and restore snapshots of views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.log.derived import ViewOfLog
    from everlog.views.snapshots.check import Verdict
    from everlog.views.snapshots.folder import SnapshotEntry
    from everlog.views.snapshots.snapshots import Snapshots

EXIT_DAMAGED = 8
_COLUMNS = ("id", "view", "position", "kind", "keys", "bytes", "created_at", "state", "protected")


@click.group("snapshot")
@common_options
def snapshot_command() -> None:
    """Snapshots of views: create, list, verify, prune, protect, restore.

    A snapshot has the rows of a view up to a position, so that the view need not be rebuilt from the start. It only
    saves work: a snapshot that is damaged or stale is never used.

    \b
    Example:
      everlog snapshot create streams
    """


@snapshot_command.command("create")
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.option(
    "--full", is_flag=True, help="Create a full snapshot, even if a patch on the last full one would be small."
)
@click.option(
    "--if-due", is_flag=True, help="Create one only if a trigger fires: hours, events or growth of the log."
)
@common_options
@pass_session
def create_snapshot(session: Session, views: tuple[str, ...], full: bool, if_due: bool) -> None:
    """Bring views up to date and save their rows; without a name, those of all views that have been run here.

    A view whose code changed without a new version is refused until it is rebuilt.

    Columns when piped: id, view, position, kind, keys, bytes, created_at, state, protected.

    \b
    Examples:
      everlog snapshot create streams
      everlog snapshot create --if-due
    """
    from everlog.errors import OtherCode

    log = session.log()
    made = []
    refused: list[OtherCode] = []
    for handle in _handles(session, views):
        reason = "by hand"
        if if_due:
            reason = log.views.snapshots.due_reason(handle.view, handle.catch_up())
            if not reason:
                continue
        try:
            made.append(log.views.snapshots.create(handle, full=full, reason=reason))
        except OtherCode as error:  # the others can still be saved
            refused.append(error)
    for also in refused[1:]:
        session.out.warn(f"{also}; {also.hint}")
    if made or not refused:
        _answer(session, made, [_made_line(entry) for entry in made] or ["nothing is due"])
    if refused:
        raise refused[0]


@snapshot_command.command("list")
@click.argument("view", required=False, default="")
@common_options
@pass_session
def list_snapshots(session: Session, view: str) -> None:
    """List the snapshots, and whether each can be used.

    Columns when piped: id, view, position, kind, keys, bytes, created_at, state, protected.

    \b
    Example:
      everlog snapshot list
    """
    log = session.log()
    found = log.views.snapshots.folder.entries(view)
    if view and not found:
        log.view(view)  # a mistyped name must not look like a view without snapshots
    _answer(session, found, None)
    if not found:
        _hint_at_none(session, view)


@snapshot_command.command("verify")
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.option("--sample", type=click.IntRange(0), default=100, show_default=True, help="Keys to replay per snapshot.")
@click.option("--all-keys", is_flag=True, help="Replay every key.")
@common_options
@pass_session
def verify_snapshots(session: Session, views: tuple[str, ...], sample: int, all_keys: bool) -> None:
    """Verify snapshots: their bytes, a sample of their rows by replay, and the state that they lead to.

    Exits 8 if one is damaged or wrong. A stale snapshot is not wrong: it is never used.

    Columns when piped: id, view, position, verdict, replayed.

    \b
    Example:
      everlog snapshot verify streams --all-keys
    """
    import msgspec

    snapshots = session.log().views.snapshots
    found = []
    for name in views or sorted({entry.view for entry in snapshots.folder.entries()}):
        found += _verdicts(session, snapshots, name, None if all_keys else sample)
    rows = [(one.id, one.view, one.position, _judged(one), one.replayed) for one in found]
    wrong = sum(not one.ok for one in found)
    session.out.answer(
        Answer(
            data=[{**msgspec.to_builtins(one), "ok": one.ok} for one in found],
            ids=[one.id for one in found if not one.ok],
            columns=("id", "view", "position", "verdict", "replayed"),
            rows=rows,
            facts={"count": len(found), "wrong": wrong},
        )
    )
    for name in views or ("",):
        if not any(name in ("", one.view) for one in found):
            _hint_at_none(session, name)
    if wrong:
        click.get_current_context().exit(EXIT_DAMAGED)


@snapshot_command.command("prune")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@common_options
@pass_session
def prune_snapshots(session: Session, dry_run: bool) -> None:
    """Remove snapshots that are not needed any more.

    It keeps all of the last 24 hours, the newest per day for 30 days and per week for a year, the newest of each
    view, protected ones, and those that another is a patch on.

    Columns when piped: id, view, position, kind, keys, bytes, created_at, state, protected.

    \b
    Example:
      everlog snapshot prune --dry-run
    """
    gone = session.log().views.snapshots.prune(dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    _answer(session, gone, [f"{verb} {safe(entry.path.name)}" for entry in gone] or ["nothing to remove"])


@snapshot_command.command("protect")
@click.argument("snapshot", metavar="ID")
@click.option("--reason", metavar="TEXT", default="protected", show_default=True, help="Why.")
@click.option("--off", is_flag=True, help="Remove the protection.")
@common_options
@pass_session
def protect_snapshot(session: Session, snapshot: str, reason: str, off: bool) -> None:
    """Keep a snapshot regardless of its age. A purge of events that it contains still removes it.

    \b
    Example:
      everlog snapshot protect 6RCAF7 --reason "before the migration"
    """
    snapshots = session.log().views.snapshots
    entry = snapshots.folder.find(snapshot)
    snapshots.folder.protect(entry, None if off else reason)
    _answer(session, [snapshots.folder.find(entry.id)], [f"{entry.id} is {'not ' if off else ''}protected"])


@snapshot_command.command("restore")
@click.argument("view")
@click.option("--from", "snapshot", metavar="ID", help="Use this snapshot instead of the newest usable one.")
@common_options
@pass_session
def restore_snapshot(session: Session, view: str, snapshot: str | None) -> None:
    """Restore a view from a snapshot and the events after it.

    The old build is kept: everlog views rollback returns to it.

    \b
    Examples:
      everlog snapshot restore streams
      everlog snapshot restore streams --from 6RCAF7
    """
    import msgspec

    log = session.log()
    entry = log.views.snapshots.folder.find(snapshot) if snapshot else None
    done = log.view(view).restore(entry)
    facts = msgspec.to_builtins(done)
    lines = [
        f"{safe(view)} is at #{done.position}: {counted(done.keys, 'key')} from the snapshot {done.snapshot} of "
        f"#{done.covered} and {counted(done.position - done.covered, 'position')} after it"
    ]
    session.out.answer(Answer.of_one(done.snapshot, facts, lines=lines))


# ---- inside


def _handles(session: Session, names: tuple[str, ...]) -> list[ViewOfLog]:
    from everlog.errors import NotFound

    log = session.log()
    if names:
        return [log.view(name) for name in names]
    found = [log.view(name) for name in log.views.names()]
    run = [handle for handle in found if handle.build() is not None]
    if not run:
        raise NotFound(
            "no view has been run here", why="there is nothing to save", hint="everlog snapshot create streams"
        )
    return run


def _hint_at_none(session: Session, view: str) -> None:
    """Print that there are no snapshots, and the command that creates one."""
    of = f" of {view}" if view else ""
    make = f"everlog snapshot create {view or 'streams'}"
    if session.log().views.snapshots.folder.path is None:
        make = f"everlog config set snapshots snapshots sets their folder, {make} creates one"
    session.out.hint(f"there is no snapshot{of}: {make}")


def _verdicts(session: Session, snapshots: Snapshots, name: str, sample: int | None) -> list[Verdict]:
    from everlog.errors import NotFound
    from everlog.views.snapshots.check import check_all, check_bytes

    try:
        handle = session.log().view(name)
    except NotFound:  # its code is not here, so only its bytes can be checked
        return [check_bytes(snapshots, entry) for entry in snapshots.folder.entries(name)]
    return check_all(snapshots, handle, sample=sample)


def _judged(verdict: Verdict) -> str:
    if verdict.problem:
        return f"damaged: {verdict.problem}"
    if verdict.stale:
        return f"stale: {verdict.stale}"
    if verdict.wrong:
        return f"wrong: {', '.join(verdict.wrong[:5])}"
    if verdict.live is False:
        return "wrong: it does not lead to the current state of the view"
    return "wrong: it does not follow from the one before it" if verdict.before is False else "ok"


def _answer(session: Session, entries: list[SnapshotEntry], lines: list[str] | None) -> None:
    rows = [_row(session, entry) for entry in entries]
    session.out.answer(
        Answer(
            data=[dict(zip(_COLUMNS, row, strict=True)) for row in rows],
            ids=[entry.id for entry in entries],
            columns=_COLUMNS,
            rows=rows,
            lines=lines,
            facts={"count": len(entries)},
        )
    )


def _row(session: Session, entry: SnapshotEntry) -> tuple[Any, ...]:
    from datetime import UTC, datetime, timedelta

    header = entry.header
    if header is None:
        return (entry.id, entry.view, entry.position, "", 0, entry.file_bytes, "", "damaged", entry.protected)
    created = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=header.created_us)
    return (
        entry.id,
        entry.view,
        entry.position,
        "patch" if header.base else "full",
        header.keys,
        entry.file_bytes,
        created.isoformat(timespec="seconds").replace("+00:00", "Z"),
        _state(session, entry),
        entry.protected,
    )


def _state(session: Session, entry: SnapshotEntry) -> str:
    from everlog.errors import NotFound

    try:
        view = session.log().view(entry.view).view
    except NotFound:
        return "its view is not known here"
    assert entry.header is not None
    stale = session.log().views.snapshots.stale(entry.header, view)
    return f"stale: {stale}" if stale else "usable"


def _made_line(entry: SnapshotEntry) -> str:
    header = entry.header
    assert header is not None
    kind = f"a patch on {header.base}" if header.base else "full"
    size = f"{counted(header.keys, 'key')}, {counted(entry.file_bytes, 'byte')}"
    return f"{entry.id}  {safe(entry.view)} at #{entry.position}, {size}, {kind}"
