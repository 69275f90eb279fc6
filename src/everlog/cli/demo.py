"""`everlog demo`: a week of all programs on one log, one stage a line, and what it looks like at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.demo_stages import StageFailed, Stages
from everlog.cli.output import safe
from everlog.cli.session import Session, common_options, pass_session

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.testing.postgres_server import PostgresServer

EXIT_FAILED = 1
OWN_POSTGRES = "everlog init --store postgresql://HOST/DATABASE"
# What a demo may remove: the files of a folder that says demo = true, and nothing else. Lock files stay (files.py).
OWN_FILES = (
    "log.db",
    "log.db-wal",
    "log.db-shm",
    "types.toml",
    "schema.lock.json",
    ".gitignore",
    "report.html",
    "everlog.toml",
)


@click.command("demo")
@click.option("--store", type=click.Choice(["sqlite", "postgres"]), default="sqlite", help="Where the events go.")
@click.option("--no-spark", is_flag=True, help="Leave out the pipeline on Spark.")
@common_options
@pass_session
def demo_command(session: Session, store: str, no_spark: bool) -> None:
    """Write a sample log and show what a log can do.

    It makes .everlog/ in this folder or in DIR: a week of all five programs, a few thousand events. A demo made
    before is replaced; any other log is left alone. Then the same week goes through the pipeline on Spark, and every
    view has the same digest there; its report is left beside the log. With --store postgres it starts a server of its
    own in a temporary folder, and removes both at the end.

    \b
    Examples:
      everlog demo
      everlog demo --store postgres
      everlog demo --dir /tmp/tour
    """
    from everlog.settings import FOLDER

    tour = _Tour(session)
    if store == "sqlite":
        folder = session.place.resolve() / FOLDER
        tour.stage("folder", lambda: _make(folder))
        _show(tour, folder, spark=not no_spark)
    else:
        with _server(tour) as server:
            folder = server.folder / FOLDER
            tour.stage("folder", lambda: _make(folder, url=server.url))
            _show(tour, folder, lasting=False)


def _on_spark(tour: _Tour, log: Log, stages: Stages, folder: Path) -> Exception | None:
    """The same week on Spark. What goes wrong there must not hide what the log has shown, and is told after it."""
    from everlog.cli.demo_spark import SparkStages
    from everlog.errors import EverlogError, Unavailable
    from everlog.pipeline.session import require_libraries

    try:
        require_libraries()
    except Unavailable as error:
        tour.skip("spark", f"{error.what}: {error.hint}")
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
    from everlog import wiring

    log = wiring.open_folder(folder, actor="user:ada")
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
    """Runs the stages, prints a line for each, and keeps them for --json."""

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
        from everlog.cli.demo_shown import lines, shown

        commands = _next_commands(self._session.directory) if lasting else [OWN_POSTGRES]
        if self._out.json:
            head = {"head": log.head(), "log_id": log.identity.log_id}
            told = {"stages": self._stages, **stages.facts, "shown": shown(log), **head}
            self._out.envelope(told, next=commands)
            return
        if self._out.quiet:
            self._out.line(log.identity.log_id)
            return
        if self._out.agent:
            self._out.line(f"OK stages={len(self._stages)} head={log.head()}")
            return
        for line in lines(log, self._out, shown(log)):
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
        f"everlog {at}why workpackage/WP07 result_data.tests",
        f"everlog {at}errors --stats",
        f"everlog {at}verify",
    ]


# ---- where it happens


def _server(tour: _Tour) -> PostgresServer:
    from everlog.errors import Unavailable
    from everlog.testing.postgres_server import NoServer, start_server

    started: list[PostgresServer] = []

    def start() -> str:
        try:
            started.append(start_server())
        except NoServer as error:
            raise Unavailable(
                "the demonstration has no PostgreSQL to run on",
                why=str(error),
                hint="apt-get install postgresql, or pip install 'everlog[pgserver]'",
            ) from error
        return f"a PostgreSQL of its own in {started[0].folder}, on a Unix socket, gone at the end"

    tour.stage("server", start)
    return started[0]


def _make(folder: Path, *, url: str = "sqlite:log.db") -> str:
    from everlog.cli.init import make_folder
    from everlog.demo.customers import TYPES
    from everlog.files import DiskFiles

    files = DiskFiles()
    for parent in reversed([folder.parent, *folder.parent.parents]):
        if not files.exists(parent):
            files.make_dir(parent)
    replaced = files.exists(folder) and _remove_demo(folder)
    make_folder(folder, store=url, types=TYPES, demo=True)
    told = "replaced the demo in" if replaced else "made"
    kept = "log.db" if url == "sqlite:log.db" else "and a schema in the database"
    return f"{told} {folder}: everlog.toml, types.toml, {kept}"


def _remove_demo(folder: Path) -> bool:
    """True when there was a demo, which is gone now; any other log is refused."""
    from everlog.errors import Conflict
    from everlog.files import DiskFiles
    from everlog.settings import load

    files = DiskFiles()
    if not set(files.names(folder)) & {"everlog.toml", "log.db"}:
        return False
    settings = load(folder, environment={}).settings
    if not settings.demo or settings.store != "sqlite:log.db":
        raise Conflict(
            f"there is a log in {folder} that is not a demo",
            why="the demo replaces only what a demo made",
            hint="everlog demo --dir DIR",
            path=str(folder),
        )
    if files.exists(folder / "lake"):
        from everlog.pipeline.table import remove_tree

        remove_tree(files, folder / "lake")
    # The settings go last: as long as they are there, an interrupted demo can be replaced by the next.
    for name in OWN_FILES:
        if files.exists(folder / name):
            files.unlink(folder / name)
    files.fsync_dir(folder)
    return True
