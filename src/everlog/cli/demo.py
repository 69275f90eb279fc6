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
@click.option("--no-spark", is_flag=True, help="Leave out the pipeline on Spark.")
@common_options
@pass_session
def demo_command(session: Session, store: str, no_spark: bool) -> None:
    """Write a sample log and show what a log can do.

    It creates .everlog/ in this folder or in DIR, with a week of events of all five programs, a few thousand in all.
    An earlier demo is replaced; any other log is left alone. Then the same events run through the pipeline on Spark,
    which gives every view the same digest; the report is written next to the log. With --store postgres it starts its
    own server in a temporary folder, and removes both at the end.

    \b
    Examples:
      everlog demo
      everlog demo --store postgres
      everlog demo --dir /tmp/tour
    """
    from everlog.demo.tour import create_demo, demo_folder

    tour = _Tour(session)
    if store == "sqlite":
        folder = demo_folder(session.directory.resolve())
        tour.stage("folder", lambda: create_demo(folder))
        _show(tour, folder, spark=not no_spark)
    else:
        with _server(tour) as server:
            folder = demo_folder(server.folder)
            tour.stage("folder", lambda: create_demo(folder, url=server.url))
            _show(tour, folder, lasting=False)


def _on_spark(tour: _Tour, log: Log, stages: Stages, folder: Path) -> Exception | None:
    """Run the same week on Spark. An error there is returned, so that the end of the demo is still shown."""
    from everlog.demo.on_spark import SparkStages, what_is_missing
    from everlog.errors import EverlogError

    if missing := what_is_missing():
        tour.skip("spark", missing)
        return None
    on_spark = SparkStages(log, f"sqlite:{folder / 'log.db'}", folder)
    try:
        for name, stage in on_spark.all():
            tour.stage(name, stage)
    except (EverlogError, click.exceptions.Exit) as error:
        return error
    finally:
        on_spark.close()
        stages.facts.update(on_spark.facts)
    return None


def _show(tour: _Tour, folder: Path, *, lasting: bool = True, spark: bool = True) -> None:
    from everlog.demo.tour import open_demo

    log = open_demo(folder)
    stages = Stages(log)
    try:
        for name, stage in stages.all():
            tour.stage(name, stage)
        failed = _on_spark(tour, log, stages, folder) if lasting and spark else None
        tour.end(log, stages, lasting=lasting)
        if failed is not None:
            raise failed
    finally:
        stages.close()
        log.close()


class _Tour:
    """Run the stages, print one line for each, and collect them for --json."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._out = session.out
        self._stages: list[dict[str, Any]] = []

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

    def end(self, log: Log, stages: Stages, *, lasting: bool) -> None:
        from everlog.demo.tour import shown_answers

        commands = _next_commands(self._session.work_in) if lasting else [OWN_POSTGRES]
        if self._out.json:
            head = {"head": log.head(), "log_id": log.identity.log_id}
            data = {"stages": self._stages, **stages.facts, "shown": shown_answers(log), **head}
            self._out.envelope(data, next=commands)
            return
        if self._out.quiet:
            self._out.line(log.identity.log_id)
            return
        if self._out.agent:
            self._out.line(f"OK stages={len(self._stages)} head={log.head()}")
            return
        for line in _end_lines(log, self._out, shown_answers(log)):
            self._out.line(self._out.as_typed(line))
        self._out.line("\nNow try:")
        for command in commands:
            self._out.line("  " + self._out.as_typed(command))

    def _line(self, status: str, name: str, started: float, shown: str) -> None:
        took_s = time.monotonic() - started
        self._stages.append({"stage": name, "status": status, "seconds": round(took_s, 3), "shown": shown})
        if self._out.json or self._out.quiet or self._out.agent:
            return
        colour = {"ok": "green", "skip": "yellow"}.get(status, "red")
        mark = self._out.paint(f"{status:<4}", colour)
        self._out.line(
            f"{mark}  {name:<12}{took_s:5.2f} s  {self._out.dim(safe(self._out.as_typed(shown)))}".rstrip()
        )
        sys.stdout.flush()


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
                hint="apt-get install postgresql, or pip install 'everlog[pgserver]'",
            ) from error
        return f"a temporary PostgreSQL server in {started[0].folder}, on a Unix socket, removed at the end"

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
    yield from _table(out, ("position", "at", "actor", "actor_type", "type", "stream"), found["audit"])
    whose = found["trace"][0]["session"]
    yield f"\nWhat caused what in one work package, its first steps (everlog agent trace {whose}):"
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
