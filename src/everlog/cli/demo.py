"""`everlog demo`: a sample log, and everything a log does, one stage a line.

Each stage checks what it shows: a demo that only prints would still print when the log is broken.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import safe
from everlog.cli.session import Session, common_options, pass_session

if TYPE_CHECKING:
    from everlog.errors import EverlogError
    from everlog.log.log import Log
    from everlog.testing.postgres_server import PostgresServer

BATCH = 40
EXIT_FAILED = 1
OWN_POSTGRES = "everlog init --store postgresql://HOST/DATABASE"
# What a demo may remove: the files of a folder that says demo = true, and nothing else. Lock files stay (files.py).
OWN_FILES = ("log.db", "log.db-wal", "log.db-shm", "types.toml", "schema.lock.json", ".gitignore", "everlog.toml")


class StageFailed(Exception):
    """A stage did not show what it should."""


@click.command("demo")
@click.option("--store", type=click.Choice(["sqlite", "postgres"]), default="sqlite", help="Where the events go.")
@common_options
@pass_session
def demo_command(session: Session, store: str) -> None:
    """Write a sample log and show what a log can do.

    It makes .everlog/ in this folder or in DIR: three days of a small team, a few hundred events. A demo made
    before is replaced; any other log is left alone. With --store postgres it starts a server of its own in a
    temporary folder, and removes both at the end.

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
        _show(tour, folder)
    else:
        with _server(tour) as server:
            folder = server.folder / FOLDER
            tour.stage("folder", lambda: _make(folder, url=server.url))
            _show(tour, folder, lasting=False)


def _show(tour: _Tour, folder: Path, *, lasting: bool = True) -> None:
    from everlog import wiring

    log = wiring.open_folder(folder, actor="user:ada")
    try:
        for name, stage in (
            ("types", _types),
            ("history", _history),
            ("retry", _retry),
            ("transition", _transition),
            ("expectation", _expectation),
            ("secret", _secret),
            ("batch", _batch),
            ("purge", _purge),
            ("verify", _verify),
            ("errors", _errors),
        ):
            tour.stage(name, lambda stage=stage: stage(log))  # type: ignore[misc]
        tour.end(log, lasting=lasting)
    finally:
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

    def end(self, log: Log, *, lasting: bool) -> None:
        from everlog.cli.records import table_lines

        newest = list(log.read(limit=5, newest_first=True))[::-1]
        told = max((found for found in newest if found.event.causation_id), key=lambda found: found.position)
        commands = _next_commands(told.position, self._session.directory) if lasting else [OWN_POSTGRES]
        if self._out.json:
            head = {"head": log.head(), "log_id": log.identity.log_id}
            self._out.envelope({"stages": self._stages, **head}, next=commands)
            return
        if self._out.quiet:
            self._out.line(log.identity.log_id)
            return
        if self._out.agent:
            self._out.line(f"OK stages={len(self._stages)} head={log.head()}")
            return
        self._out.line("\nThe last 5 events:")
        for line in table_lines(self._out, newest):
            self._out.line("  " + line)
        self._out.line("\nNow try:")
        for command in commands:
            self._out.line("  " + self._out.as_typed(command))

    def _line(self, status: str, name: str, started: float, shown: str) -> None:
        took_s = time.monotonic() - started
        self._stages.append({"stage": name, "status": status, "seconds": round(took_s, 3), "shown": shown})
        if self._out.json or self._out.quiet or self._out.agent:
            return
        mark = self._out.paint(f"{status:<4}", "green" if status == "ok" else "red")
        self._out.line(
            f"{mark}  {name:<12}{took_s:5.2f} s  {self._out.dim(safe(self._out.as_typed(shown)))}".rstrip()
        )
        sys.stdout.flush()


def _next_commands(position: int, directory: Path) -> list[str]:
    at = "" if directory == Path() else f"-C {directory} "
    return [
        f"everlog {at}log -n 5",
        f"everlog {at}log --stream workpackage/WP03",
        f"everlog {at}show {position}",
        f"everlog {at}tail",
        f"everlog {at}errors --stats",
        f"everlog {at}verify",
    ]


# ---- the stages: each returns what a newcomer should see


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
    from everlog.cli.demo_story import TYPES
    from everlog.cli.init import make_folder
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
    # The settings go last: as long as they are there, an interrupted demo can be replaced by the next.
    for name in OWN_FILES:
        if files.exists(folder / name):
            files.unlink(folder / name)
    files.fsync_dir(folder)
    return True


def _types(log: Log) -> str:
    names = [info.type for info in log.catalog.types()]
    _require(len(names) >= 9, f"only {len(names)} types are known")
    return f"{len(names)} event types, most from types.toml: {', '.join(names[-3:])} ..."


def _history(log: Log) -> str:
    from everlog.cli.demo_story import story

    drafts = story(datetime.now(UTC))
    started = time.monotonic()
    for start in range(0, len(drafts), BATCH):
        log.append_batch(drafts[start : start + BATCH])
    took_s = time.monotonic() - started
    _require(log.head() == len(drafts), f"{len(drafts)} events were written, the head is {log.head()}")
    actors = len({draft.actor for draft in drafts})
    return (
        f"{len(drafts)} events of 3 days by {actors} actors, {len(drafts) / took_s:,.0f} a second, each batch flushed"
    )


def _retry(log: Log) -> str:
    first = log.append("issue.commented", stream="issue/130", payload={"text": "Thank you!"}, key="demo-thanks")
    again = log.append("issue.commented", stream="issue/130", payload={"text": "Thank you!"}, key="demo-thanks")
    _require(first == again, "a retry made a second event")
    return f"the same request twice, one event: #{first.position} {first.event.id}"


def _transition(log: Log) -> str:
    from everlog.cli.demo_story import LAST_MOVED
    from everlog.errors import TransitionRefused

    error = _refused(
        TransitionRefused,
        lambda: log.append(
            "workpackage.moved", stream=LAST_MOVED, payload={"went_to": "done"}, actor="agent:builder"
        ),
    )
    return f"refused: {error}"


def _expectation(log: Log) -> str:
    from everlog.cli.demo_story import LAST_MOVED
    from everlog.errors import WrongSequence

    error = _refused(
        WrongSequence,
        lambda: log.append(
            "workpackage.moved", stream=LAST_MOVED, payload={"went_to": "doing"}, actor="agent:builder", expect=7
        ),
    )
    return f"refused: {error.what}"


def _secret(log: Log) -> str:
    from everlog.errors import SecretFound

    made_up = "ghp_" + "Zx9Qw3Er7Ty1Ui5Op2As" + "8Df4Gh6Jk0LzXcVb"
    error = _refused(
        SecretFound,
        lambda: log.append("issue.commented", stream="issue/130", payload={"text": f"try it with {made_up}"}),
    )
    _require(made_up not in str(error), "the refusal quotes the secret")
    return f"refused: {error.what}"


def _batch(log: Log) -> str:
    from everlog.core.event import Recorded
    from everlog.log.drafts import Draft

    drafts = [
        Draft(
            type="workpackage.moved", stream="workpackage/WP22", payload={"went_to": "doing"}, scope="acme/billing"
        ),
        Draft(
            type="issue.commented", stream="issue/129", payload={"text": "Work on it has begun."}, scope="acme/shop"
        ),
    ]
    found: list[Recorded] = log.append_batch(drafts)
    _require(len(found) == 2, "a batch of two made another number of events")
    return f"two streams, all or nothing: #{found[0].position} and #{found[1].position}"


def _purge(log: Log) -> str:
    from everlog.cli.demo_story import CUSTOMER

    cursor = log.page_after(0, limit=200).next_cursor
    purge = log.purge(CUSTOMER, reason="erasure request 17")
    page = log.page_after(cursor)
    _require(page.reset is not None and page.reset.reason == "purged", "an old cursor was not told of the purge")
    _require(next(log.read(stream=CUSTOMER), None) is None, "a purged event can still be read")
    return (
        f"{purge.count} events of {CUSTOMER} are gone for good, #{purge.reserved} holds the record; "
        f"the cursor {cursor} gets one reset"
    )


def _verify(log: Log) -> str:
    report = log.verify()
    _require(report.ok, f"{len(report.problems)} problems, the first: {report.problems[:1]}")
    return f"{report.events} events and {report.purged} purged places proved, digest {report.digest[:16]}..."


def _errors(log: Log) -> str:
    counts = log.refusal_counts()
    _require(len(counts) == 3, f"3 refusals should be on record, there are {counts}")
    return "on record: " + ", ".join(sorted(code for code, _, _ in counts))


def _refused(kind: type[EverlogError], attempt: Callable[[], object]) -> EverlogError:
    try:
        attempt()
    except kind as error:
        return error
    raise StageFailed(f"the log accepted what it should refuse ({kind.__name__})")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise StageFailed(otherwise)
