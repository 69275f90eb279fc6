"""`everlog wp`: work packages on a board of lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.programs.board import board_lines, describe_step, history_lines, marks, status_lines
from everlog.cli.programs.builder import SCOPE, Several, Surface, Values, build, label_from_settings
from everlog.cli.programs.spelling import Argument, Json, Option
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted
from everlog.programs.workpackages import PROGRAM
from everlog.programs.workpackages.claiming import PackageClaim
from everlog.programs.workpackages.commands import Depend, Gate, GateResult, Spec, Subtask, Workspace
from everlog.programs.workpackages.questions import Board, Next, PackageHistory, Specs, Status


def _line(command: Any, result: Any) -> str:
    match command:
        case Spec():
            return f"specified  {safe(command.slug)}"
        case Subtask():
            return f"subtask {command.index} done  {safe(command.id)}"
        case Gate():
            return f"gate {safe(command.gate)} registered  {safe(command.id)}"
        case GateResult():
            return f"gate {safe(command.gate)} {command.verdict}  {safe(command.id)}"
        case Workspace():
            return f"workspace {safe(command.path)}  {safe(command.id)}"
        case _ if isinstance(result, PackageClaim):
            return f"claimed until {result.until}  {safe(result.id)}"
        case _:
            return f"{result.lane}  {safe(result.id)}"


def _status(session: Session, question: Status, found: dict[str, Any]) -> Answer:
    facts = {name: found[name] for name in ("id", "lane", "feature", "title")} | {"conflict": bool(found["conflict"])}
    lines = status_lines(session.out, found)
    return Answer(data=found, ids=[question.id], rows=list(found.items()), lines=lines, facts=facts)


def _specs(session: Session) -> dict[str, Any]:
    from everlog.programs.perform import ask

    return ask(session.any_log(), Specs())


def _board(session: Session, question: Board, found: list[dict[str, Any]]) -> Answer:
    specs = _specs(session)
    return Answer.of_many(
        found,
        question.columns,
        cells={"marks": lambda one: ", ".join(text for text, _ in marks(one))},
        named="id",
        lines=board_lines(session.out, found, specs, everything=question.everything),
    )


def _empty_board(session: Session, question: Board) -> str:
    specs = _specs(session)
    if question.feature is None:
        return "nothing is planned: everlog wp create --help"
    named = f"; the features are {safe(', '.join(sorted(specs)[:20]))}" if specs else ""
    return f"nothing is planned for {safe(question.feature)}: everlog wp create --help{named}"


def _history(session: Session, question: PackageHistory, steps: list[dict[str, Any]]) -> Answer:
    rows = [describe_step(step) for step in steps]
    return Answer(
        data=[{**step, "what": row[2]} for step, row in zip(steps, rows, strict=True)],
        ids=[step["id"] for step in steps],
        columns=question.columns,
        rows=rows,
        lines=history_lines(session.out, rows),
        facts={"count": len(steps)},
    )


def _check_dependencies(given: Values) -> None:
    if bool(given["on"]) == given["on_nothing"]:
        raise click.UsageError("name what it depends on with --on, or give --on-nothing")


def _check_gate(given: Values) -> None:
    if given["data"] is not None and not given["verdict"]:
        raise click.UsageError("--data belongs to a --result")


@click.command("migrate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check everything, record nothing.")
@common_options
@pass_session
def migrate(session: Session, file: Path, dry_run: bool) -> None:
    """Record the content of an activity.yaml of version 1.x, and rename the file.

    The events are tagged migrated=true and never override real ones. Running it twice does no harm.

    \b
    Example:
      everlog wp migrate .kittify/activity.yaml
    """
    from everlog.programs.workpackages.migration import migrate as migrate_file

    done = migrate_file(session.log(), session.directory / file, dry_run=dry_run)
    facts: dict[str, Any] = {"file": str(file), "entries": done.entries, "new": done.new, "archive": done.archive}
    facts["status"] = "dry_run" if dry_run else "recorded" if done.new else "unchanged"
    new = f"{done.new} of {counted(done.entries, 'entry', 'entries')} new"
    after = "  dry run: nothing was recorded" if dry_run else f"; the file is now {safe(done.archive)}"
    session.out.answer(
        Answer.of_many([facts], tuple(facts), named="archive", lines=[new + after], facts=facts, data=facts)
    )


wp_command = build(
    Surface(
        program=PROGRAM,
        title="Work packages: spec, create, depend, move, subtask, gate, next, claim, status, board and more.",
        example='create WP01 "Day files" --gate ci && everlog wp move WP01 doing && everlog wp board',
        spelling={
            "*.scope": SCOPE,
            "*.id": Argument("ID"),
            "*.title": Argument(),
            "Create.feature": Option(metavar="SLUG"),
            "Create.depends_on": Option("--depends-on", metavar="ID"),
            "Create.subtasks": Option("--subtask"),
            "Create.gates": Option("--gate", metavar="ID"),
            "Depend.on": Option("--on", metavar="ID"),
            "Move.to": Argument("LANE"),
            "Subtask.index": Argument("NUMBER"),
            "Subtask.text": Argument(),
            "*.gate": Argument("GATE"),
            "Gate.type": Option(metavar="TYPE"),
            "GateResult.verdict": Option("--result", metavar="RESULT"),
            "GateResult.data": Option("--data", metavar="JSON", type=Json(only_objects=True)),
            "Workspace.path": Argument(),
            "Workspace.branch": Option(metavar="NAME"),
            "Board.feature": Option(metavar="SLUG"),
            "Next.feature": Option(metavar="SLUG"),
            "Board.everything": Option("--all"),
        },
        several=(
            Several(
                "depend",
                "Replace the packages that a work package depends on.",
                Depend.examples,
                ((Depend, ()),),
                flags={"on-nothing": "It depends on nothing any more."},
                check=_check_dependencies,
            ),
            Several(
                "gate",
                "Register a gate that a work package must pass before it is done; with --result, record its result.",
                (*Gate.examples, *GateResult.examples),
                ((GateResult, ("verdict",)), (Gate, ())),
                check=_check_gate,
            ),
        ),
        line=_line,
        answers={Status: _status, Board: _board, PackageHistory: _history},
        empty={
            Board: _empty_board,
            Next: lambda session, _: "nothing is ready: everlog wp board shows what is planned",
        },
        complete=label_from_settings("scope"),
        left_out=(Specs,),
        more=(migrate,),
    )
)
