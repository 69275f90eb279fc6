"""`everlog wp`: work packages on a board of lanes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.doing import by_of, doing_options, tell
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.domains.workpackages.commands import Step


@click.group("wp")
@common_options
def wp_command() -> None:
    """Work packages: spec, create, depend, move, subtask, gate, workspace, status, board, history, migrate.

    A package goes from planned to doing, for_review and done: not before what it depends on is done, and not past a
    gate that has not passed.

    \b
    Example:
      everlog wp create WP01 "Day files" --gate ci && everlog wp move WP01 doing && everlog wp board
    """


# ---- doing


@wp_command.command("spec")
@click.argument("slug")
@click.argument("title")
@click.option("--mission", metavar="TEXT", default="", help="What it is for.")
@doing_options
@pass_session
def spec(session: Session, slug: str, title: str, mission: str, **by: Any) -> None:
    """Describe a feature, for which work packages can be planned.

    \b
    Example:
      everlog wp spec 025-event-log "Event log" --mission "Nothing is forgotten"
    """
    from everlog.domains.workpackages import commands
    from everlog.domains.workpackages.events import Specified

    given = Specified(feature_slug=slug, title=title, mission=mission)
    done = commands.specify(session.log(), given, by=by_of(session, **by))
    tell(session, done, f"specified  {safe(slug)}", feature=slug)


@wp_command.command("create")
@click.argument("package", metavar="ID")
@click.argument("title")
@click.option("--feature", metavar="SLUG", default="", help="The feature that it is for.")
@click.option(
    "--depends-on", "dependencies", metavar="ID", multiple=True, help="What must be done first; may repeat."
)
@click.option("--subtask", "subtasks", metavar="TEXT", multiple=True, help="A part of the work; may be given again.")
@click.option("--gate", "gates", metavar="ID", multiple=True, help="What it must pass, such as ci; may repeat.")
@doing_options
@pass_session
def create(
    session: Session,
    package: str,
    title: str,
    feature: str,
    dependencies: tuple[str, ...],
    subtasks: tuple[str, ...],
    gates: tuple[str, ...],
    **by: Any,
) -> None:
    """Plan a work package.

    \b
    Example:
      everlog wp create WP03 "Index" --feature 025-event-log --depends-on WP01 --subtask "write it" --gate ci
    """
    from everlog.domains.workpackages import commands
    from everlog.domains.workpackages.events import Created

    given = Created(
        work_package_id=package,
        title=title,
        feature_slug=feature,
        dependencies=list(dependencies),
        subtasks=list(subtasks),
    )
    step = commands.create(session.log(), given, gates=gates, by=by_of(session, **by))
    _tell(session, step)


@wp_command.command("depend")
@click.argument("package", metavar="ID")
@click.option("--on", "on", metavar="ID", multiple=True, help="What must be done first; may be given again.")
@click.option("--on-nothing", is_flag=True, help="It waits for nothing any more.")
@click.option("--reason", metavar="TEXT", default="", help="Why this changed.")
@doing_options
@pass_session
def depend(session: Session, package: str, on: tuple[str, ...], on_nothing: bool, reason: str, **by: Any) -> None:
    """Say anew what a work package depends on: these, and nothing else.

    \b
    Example:
      everlog wp depend WP03 --on WP01 --on WP02
    """
    from everlog.domains.workpackages import commands

    if bool(on) == on_nothing:
        raise click.UsageError("name what it depends on with --on, or say --on-nothing")
    _tell(session, commands.depend(session.log(), package, on, reason=reason, by=by_of(session, **by)))


@wp_command.command("move")
@click.argument("package", metavar="ID")
@click.argument("lane")
@click.option("--reason", metavar="TEXT", default="", help="Why; needed for a way back.")
@doing_options
@pass_session
def move(session: Session, package: str, lane: str, reason: str, **by: Any) -> None:
    """Move a work package to another lane: planned, doing, for_review or done.

    \b
    Examples:
      everlog wp move WP03 doing
      everlog wp move WP03 doing --reason "one case is missing"
    """
    from everlog.domains.workpackages import commands

    _tell(session, commands.move(session.log(), package, lane, reason=reason, by=by_of(session, **by)))


@wp_command.command("subtask")
@click.argument("package", metavar="ID")
@click.argument("index", metavar="NUMBER", type=int)
@click.argument("text", default="")
@doing_options
@pass_session
def subtask(session: Session, package: str, index: int, text: str, **by: Any) -> None:
    """Check a subtask off. They are counted from 1.

    \b
    Example:
      everlog wp subtask WP03 2
    """
    from everlog.domains.workpackages import commands

    step = commands.complete(session.log(), package, index, text=text, by=by_of(session, **by))
    tell(session, step.done, f"subtask {index} done  {safe(package)}", id=package, lane=step.lane, subtask=index)


@wp_command.command("gate")
@click.argument("package", metavar="ID")
@click.argument("gate_id", metavar="GATE")
@click.option("--type", "gate_type", metavar="TYPE", default="", help="What kind of gate; its id if left out.")
@click.option("--result", "verdict", metavar="RESULT", default="", help="What it says: pending, passed or failed.")
@click.option("--data", metavar="JSON", default="", help="Facts about the result, an object.")
@doing_options
@pass_session
def gate(session: Session, package: str, gate_id: str, gate_type: str, verdict: str, data: str, **by: Any) -> None:
    """Register a gate that a work package must pass before it is done; with --result, what the gate says.

    \b
    Examples:
      everlog wp gate WP03 ci
      everlog wp gate WP03 ci --result passed --data '{"run": 17}'
    """
    from everlog.domains.workpackages import commands

    if data and not verdict:
        raise click.UsageError("--data belongs to a --result")
    made_by = by_of(session, **by)
    if verdict:
        step = commands.judge(session.log(), package, gate_id, verdict, data=_object(data), by=made_by)
    else:
        step = commands.gate(session.log(), package, gate_id, gate_type=gate_type, by=made_by)
    said = verdict or "registered"
    tell(
        session, step.done, f"gate {safe(gate_id)} {said}  {safe(package)}", id=package, lane=step.lane, gate=gate_id
    )


@wp_command.command("workspace")
@click.argument("package", metavar="ID")
@click.argument("path")
@click.option("--branch", metavar="NAME", default="", help="The branch that is checked out there.")
@doing_options
@pass_session
def workspace(session: Session, package: str, path: str, branch: str, **by: Any) -> None:
    """Record where a work package is worked on.

    \b
    Example:
      everlog wp workspace WP03 ../trees/WP03 --branch wp03-index
    """
    from everlog.domains.workpackages import commands

    step = commands.house(session.log(), package, path, branch=branch, by=by_of(session, **by))
    tell(session, step.done, f"workspace {safe(path)}  {safe(package)}", id=package, lane=step.lane, path=path)


@wp_command.command("migrate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check everything, record nothing.")
@common_options
@pass_session
def migrate(session: Session, file: Path, dry_run: bool) -> None:
    """Record what an activity.yaml of 1.x says, and put the file aside.

    The events are tagged migrated=true and never beat real ones. Doing it twice does no harm.

    \b
    Example:
      everlog wp migrate .kittify/activity.yaml
    """
    from everlog.domains.workpackages.migration import migrate as migrate_file

    done = migrate_file(session.log(), session.place / file, dry_run=dry_run)
    facts = {"file": str(file), "entries": done.entries, "new": done.new, "archive": done.archive}
    status = "dry_run" if dry_run else "recorded" if done.new else "unchanged"
    line = f"{done.new} of {counted(done.entries, 'entry', 'entries')} new; the file is now {safe(done.archive)}"
    if dry_run:
        line = f"{done.new} of {counted(done.entries, 'entry', 'entries')} new  dry run: nothing was recorded"
    session.out.answer(
        Answer(
            data={**facts, "status": status},
            ids=[done.archive],
            columns=(*facts, "status"),
            rows=[(*facts.values(), status)],
            lines=[line],
            facts={**facts, "status": status},
        )
    )


# ---- asking


@wp_command.command("status")
@click.argument("package", metavar="ID")
@past_damage_option
@common_options
@pass_session
def status(session: Session, package: str) -> None:
    """Show one work package: its lane, where it may go, and what keeps it from there.

    \b
    Example:
      everlog wp status WP03
    """
    from everlog.cli.wp_board import status_lines
    from everlog.domains.workpackages import commands

    found = commands.status(session.log(), package)
    session.out.answer(
        Answer(
            data=found,
            ids=[package],
            rows=list(found.items()),
            lines=status_lines(session.out, found),
            facts={name: found[name] for name in ("id", "lane", "feature", "title")}
            | {"conflict": bool(found["conflict"])},
        )
    )


@wp_command.command("board")
@click.option("--feature", metavar="SLUG", help="Only this feature's.")
@click.option("--all", "everything", is_flag=True, help="Show all that is done, not only the newest of it.")
@past_damage_option
@common_options
@pass_session
def board(session: Session, feature: str | None, everything: bool) -> None:
    """Show the board: a column for each lane, by feature.

    Columns when piped: feature, lane, id, title, marks.

    \b
    Example:
      everlog wp board --feature 025-event-log
    """
    from everlog.cli.wp_board import board_lines, marks
    from everlog.domains.workpackages import commands

    log = session.log()
    found = commands.board(log, feature=feature)
    specs = commands.specs(log)
    session.out.answer(
        Answer(
            data=found,
            ids=[one["id"] for one in found],
            columns=("feature", "lane", "id", "title", "marks"),
            rows=[
                (one["feature"], one["lane"], one["id"], one["title"], ", ".join(text for text, _ in marks(one)))
                for one in found
            ],
            lines=board_lines(session.out, found, specs, everything=everything),
            facts={"count": len(found)},
        )
    )
    if not found:
        told = "nothing is planned" if feature is None else f"nothing is planned for {safe(feature)}"
        named = "" if feature is None or not specs else f"; the features are {safe(', '.join(sorted(specs)[:20]))}"
        session.out.hint(f"{told}: everlog wp create --help{named}")


@wp_command.command("history")
@click.argument("package", metavar="ID")
@past_damage_option
@common_options
@pass_session
def history(session: Session, package: str) -> None:
    """Show what happened to a work package, in the order that is the same in every clone.

    Moves of which neither knew of the other are marked as a conflict; the later one counts. Columns when piped: at,
    actor, what, reason, marks, id.

    \b
    Example:
      everlog wp history WP03
    """
    from everlog.cli.wp_board import history_lines, told
    from everlog.domains.workpackages import commands

    steps = commands.history(session.log(), package)
    rows = [told(step) for step in steps]
    session.out.answer(
        Answer(
            data=[{**step, "what": row[2]} for step, row in zip(steps, rows, strict=True)],
            ids=[step["id"] for step in steps],
            columns=("at", "actor", "what", "reason", "marks", "id"),
            rows=rows,
            lines=history_lines(session.out, rows),
            facts={"count": len(steps)},
        )
    )


# ---- inside


def _tell(session: Session, step: Step) -> None:
    tell(session, step.done, f"{step.lane}  {safe(step.id)}", id=step.id, lane=step.lane)
    for name in step.missing:
        session.out.hint(f"{safe(name)} is not there yet: everlog wp create {safe(name)} …")


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint="--data") from error
    if not isinstance(found, dict):
        raise click.BadParameter("it is not an object", param_hint="--data")
    return found
