"""`everlog snapshot`: create, list, verify, prune, protect and restore snapshots of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted
from everlog.errors import CHECK_FAILED

if TYPE_CHECKING:
    from everlog.application.views.snapshots import SnapshotInfo


@click.group("snapshot")
@common_options
def snapshot_command() -> None:
    """Snapshots of views: create, list, verify, prune and more.

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
    from everlog.application.views.snapshots import create_snapshots

    done = create_snapshots(session.log(), views, full=full, if_due=if_due)
    made, refused = done.made, done.refused
    for also in refused[1:]:
        session.out.warn(f"{also}; {also.hint}")
    if made or not refused:
        _answer(session, made, [_made_line(entry) for entry in made] or ["nothing is due"])
    if refused:
        raise refused[0]


@snapshot_command.command("share")
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@common_options
@pass_session
def share_snapshots(session: Session, views: tuple[str, ...]) -> None:
    """Share snapshots of views with nodes that join; without a name, list what is shared.

    The log signs which rows follow from its events. Every peer that shares the same view signs it, too, when a sync
    finds both equal, and its rows are the same. A node that joins uses the rows if enough keys that it trusts have
    signed them (see everlog join --authors). Only a view in causal order, without personal fields, can be shared.

    Columns when piped: view, rows, heads, signed_by.

    \b
    Example:
      everlog snapshot share community.market
    """
    from everlog.application.sync.shared_snapshots import described, share, shared_views

    log = session.log()
    for name in views:
        share(log, name)
    found = [described(one) for name, one in shared_views(log).items() if not views or name in views]
    session.out.answer(
        Answer.of_many(
            found,
            ("view", "rows", "heads", "signed_by"),
            cells={"signed_by": lambda one: ", ".join(one.signed_by)},
            ids=[one.view for one in found],
        )
    )
    if not found:
        session.out.hint("no view is shared; everlog snapshot share VIEW")


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
    from everlog.application.views import snapshots

    found = snapshots.list_snapshots(session.log(), view)
    _answer(session, found, None)
    if not found:
        session.out.hint(snapshots.how_to_create_one(session.log(), view))


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

    from everlog.application.views import snapshots

    found = snapshots.verify_snapshots(session.log(), views, sample=None if all_keys else sample)
    wrong = [one.id for one in found if not one.ok]
    session.out.answer(
        Answer.of_many(
            found,
            ("id", "view", "position", "verdict", "replayed"),
            cells={"verdict": snapshots.describe_verdict},
            ids=wrong,
            facts={"count": len(found), "wrong": len(wrong)},
            data=[{**msgspec.to_builtins(one), "ok": one.ok} for one in found],
        )
    )
    for name in views or ("",):
        if not any(name in ("", one.view) for one in found):
            session.out.hint(snapshots.how_to_create_one(session.log(), name))
    if wrong:
        raise click.exceptions.Exit(CHECK_FAILED)


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
    from everlog.application.views import snapshots

    gone = snapshots.prune_snapshots(session.log(), dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    _answer(session, gone, [f"{verb} {safe(one.file)}" for one in gone] or ["nothing to remove"])


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
    from everlog.application.views import snapshots

    found = snapshots.protect_snapshot(session.log(), snapshot, None if off else reason)
    _answer(session, [found], [f"{found.id} is {'not ' if off else ''}protected"])


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

    from everlog.application.views.snapshots import restore_view

    done = restore_view(session.log(), view, snapshot)
    facts = msgspec.to_builtins(done)
    lines = [
        f"{safe(view)} is at #{done.position}: {counted(done.keys, 'key')} from the snapshot {done.snapshot} of "
        f"#{done.covered} and {counted(done.position - done.covered, 'position')} after it"
    ]
    session.out.answer(Answer.of_one(done.snapshot, facts, lines=lines))


def _answer(session: Session, found: Sequence[SnapshotInfo], lines: list[str] | None) -> None:
    data = [{name: getattr(one, name) for name in one.columns} for one in found]
    session.out.answer(Answer.of_many(found, data=data, lines=lines))


def _made_line(one: SnapshotInfo) -> str:
    kind = f"a patch on {one.base}" if one.base else "full"
    size = f"{counted(one.keys, 'key')}, {counted(one.bytes, 'byte')}"
    return f"{one.id}  {safe(one.view)} at #{one.position}, {size}, {kind}"
