"""`everlog doctor`: looks at everything around a log, changes nothing, and says how to fix what it finds.

A check has an id that stays the same, a status (ok, warn, fail, or skip when something before it failed), a detail
and a fix. The settings and the folder are asked first: without them the rest cannot be.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, Output, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.log.log import Log

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
EXIT_FAILED = 8
FREE_BYTES_FAIL = 50 * 1024 * 1024
FREE_BYTES_WARN = 1024 * 1024 * 1024
REFUSALS_A_DAY_WARN = 10
STRUCTURE_EVENTS_MAX = 50_000
SQLITE_OLDEST = (3, 37, 0)


@dataclass(frozen=True)
class Check:
    id: str
    status: str
    detail: str
    fix: str = ""


@click.command("doctor")
@common_options
@pass_session
def doctor_command(session: Session) -> None:
    """Look for problems, and say how to fix them. It changes nothing.

    Columns when piped: status, id, detail, fix. Exits 8 if a check fails; a warning is no failure.

    \b
    Examples:
      everlog doctor
      everlog doctor --json
    """
    failed = answer_checks(session.out, _checks(session))
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)


def answer_checks(out: Output, checks: Iterable[Check]) -> list[Check]:
    """Print what was looked at, and return what failed."""
    found = [replace(check, fix=out.as_typed(_other_than_doctor(check.fix))) for check in checks]
    failed = [check for check in found if check.status == FAIL]
    colors = {OK: "green", WARN: "yellow", FAIL: "red", SKIP: "white"}
    lines = []
    for check in found:
        lines.append(f"{out.paint(f'{check.status:<4}', colors[check.status])}  {check.id:<10}  {safe(check.detail)}")
        if check.fix:
            lines.append(f"      fix: {safe(check.fix)}")
    counts = {status: sum(check.status == status for check in found) for status in (OK, WARN, FAIL, SKIP)}
    out.answer(
        Answer(
            data=[asdict(check) for check in found],
            ids=[check.id for check in failed],
            columns=("status", "id", "detail", "fix"),
            rows=[(check.status, check.id, check.detail, check.fix) for check in found],
            lines=lines,
            facts=counts,
        )
    )
    return failed


def _other_than_doctor(fix: str) -> str:
    """The hint of an error, unless it sends its reader back here."""
    return "everlog verify" if fix.startswith("everlog doctor") else fix


def _checks(session: Session) -> Iterator[Check]:
    from everlog.errors import EverlogError

    yield _runtime()
    folder: Path | None = None
    try:
        if not session.url:
            folder = session.folder()
            yield _folder(folder)
        yield _settings(session)
        log = session.log()
    except EverlogError as error:
        yield Check(_which(error.code), FAIL, str(error), error.hint)
        yield Check("log", SKIP, "the log was not looked at")
        return
    yield Check("log", OK, f"opens, head #{log.head()}, id {log.identity.log_id}")
    path = getattr(log.store, "path", None)
    if isinstance(path, Path):
        yield from _file_checks(path)
        yield from _git(session, path)
        yield from _future(log)
    for check in (_structure, _clock, _refusals, _views, _snapshots):
        yield _guarded(check, log)
    yield _actor(log)
    problems = log.catalog.check()
    yield Check(
        "catalog",
        FAIL if problems else OK,
        "; ".join(problems) or f"{counted(len(log.catalog.types()), 'event type fits', 'event types fit')} together",
        "correct types.toml or the catalog's code" if problems else "",
    )
    if folder is not None:
        yield _lock(folder, log)


def _which(code: str) -> str:
    return {"no_log": "folder", "invalid_settings": "settings"}.get(code, "log")


def _guarded(check: Callable[[Log], Check], log: Log) -> Check:
    """A log that cannot be read in one place is the very thing that the other checks are for."""
    from everlog.errors import EverlogError

    try:
        return check(log)
    except EverlogError as error:
        return Check(check.__name__.strip("_"), FAIL, str(error), error.hint)


def _runtime() -> Check:
    import sqlite3

    python = ".".join(map(str, sys.version_info[:3]))
    detail = f"Python {python}, SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < SQLITE_OLDEST:
        return Check("runtime", FAIL, detail, "use a Python with SQLite 3.37 or newer")
    return Check("runtime", OK, detail)


def _folder(folder: Path) -> Check:
    from everlog.files import DiskFiles, leftover_temps

    if not os.access(folder, os.R_OK | os.X_OK):
        return Check("folder", FAIL, f"{folder} cannot be read by this user", f"ls -ld {quote(str(folder))}")
    if not os.access(folder, os.W_OK):
        return Check(
            "folder", WARN, f"{folder} cannot be written by this user; reading works", f"ls -ld {quote(str(folder))}"
        )
    left = leftover_temps(DiskFiles(), folder)
    if left:
        return Check(
            "folder",
            WARN,
            f"{counted(len(left), 'temporary file')} of writers that were killed",
            f"when nobody writes, {quote(str(left[0]))} may be removed",
        )
    return Check("folder", OK, str(folder))


def _settings(session: Session) -> Check:
    loaded = session.settings()
    given = [name for name, origin in loaded.origins.items() if origin != "default"]
    return Check("settings", OK, f"usable; set: {', '.join(given) or 'none'}")


def _file_checks(path: Path) -> Iterator[Check]:
    import sqlite3
    from contextlib import closing
    from urllib.parse import quote as quoted

    from everlog.files import DiskFiles
    from everlog.stores.contract import FORMAT

    if path.is_dir():
        yield _modes(path)
        yield _disk(path)
        return
    # SQLite is asked: closing a descriptor of the file would drop the locks that this process has on it.
    writable = os.access(path.parent, os.W_OK)
    mode = "mode=ro" if writable else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"file:{quoted(str(path))}?{mode}", uri=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    if not writable:
        # An immutable file has no journal for SQLite. Nobody holds a lock here, so the header may be read:
        # bytes 18 and 19 are 2 in WAL mode.
        files = DiskFiles()
        handle = files.open(path)
        try:
            journal = "wal" if files.read(handle, 2, at=18) == b"\x02\x02" else "other"
        finally:
            files.close(handle)
    yield Check("format", OK, f"format {version}, this everlog writes {FORMAT}; {path.stat().st_size:,} bytes")
    wal = journal == "wal"
    yield Check(
        "journal",
        OK if wal else FAIL,
        "write-ahead log" if wal else "the file is not in WAL mode, which every log is made in",
        "" if wal else "some other program changed it; restore a backup, or copy the log",
    )
    yield _modes(path)
    yield _disk(path)


def _modes(path: Path) -> Check:
    mode = stat.S_IMODE(path.stat().st_mode)
    right = "750" if path.is_dir() else "640"
    return Check(
        "modes",
        WARN if mode & 0o007 else OK,
        f"{path.name} has mode {mode:o}" + (", open to everybody" if mode & 0o007 else ""),
        f"chmod {right} {quote(str(path))}" if mode & 0o007 else "",
    )


def _disk(path: Path) -> Check:
    system = os.statvfs(path.parent)
    free = system.f_bavail * system.f_frsize
    status = FAIL if free < FREE_BYTES_FAIL else WARN if free < FREE_BYTES_WARN else OK
    return Check("disk", status, f"{free / 1e9:.1f} GB free", "" if status == OK else "free some space")


def _git(session: Session, path: Path) -> Iterator[Check]:
    """A log of day files in a repository: does git know how to merge it, and only what it should?"""
    from everlog import wiring
    from everlog.files import DiskFiles
    from everlog.sync.git import findings

    if wiring.git_folder(session.settings().settings.store, base=path) is None:
        return
    found = findings(DiskFiles(), path)
    if found == []:
        yield Check("git", OK, "git unites the day files of clones")
    for finding in found or []:
        yield Check("git", FAIL if finding.grave else WARN, finding.what, finding.fix)


def _future(log: Log) -> Iterator[Check]:
    from everlog.stores.contract import Indexed

    future = log.store.future_files() if isinstance(log.store, Indexed) else []
    if future:
        yield Check(
            "future",
            WARN,
            f"events/{future[0]} is of a day to come{f', and so are {len(future) - 1} more' if future[1:] else ''}:"
            " a clock was wrong when it was written",
            "date, here and where it was written; the events are read as any other, and nothing is lost",
        )


def _structure(log: Log) -> Check:
    """What `verify` finds: of a log that is not too large all of it, of a large one its newest events."""
    from everlog.cli.verify import summarised, way_on

    head = log.head()
    if head > STRUCTURE_EVENTS_MAX:
        newest = sum(1 for _ in log.read(after=head - STRUCTURE_EVENTS_MAX))  # raises at damage
        detail = (
            f"{counted(newest, 'event')} at the end can be read; all before them, and every hash, was not checked"
        )
        return Check("structure", SKIP, detail, "everlog verify")
    report = log.verify()
    if report.ok:
        detail = f"{counted(report.events, 'event')}, every hash, chain and index is as it should be"
        return Check("structure", OK, detail)
    items = summarised(report)
    lines = "; ".join(item.line for item in items[:5])
    detail = f"{counted(len(report.problems) + report.unlisted, 'problem')}: {lines}"
    if len(items) > 5:
        detail += "; all of them: everlog verify"
    return Check("structure", FAIL, detail, way_on(report.problems))


def _clock(log: Log) -> Check:
    last = next(log.read(limit=1, newest_first=True), None)
    if last is None:
        return Check("clock", OK, "no events yet")
    ahead = last.received_at - datetime.now(UTC)
    if ahead > timedelta(minutes=1):
        return Check(
            "clock", WARN, f"the last event was recorded {ahead} in the future", "set this machine's clock; date -u"
        )
    return Check("clock", OK, f"the last event was recorded at {last.received_at:%Y-%m-%d %H:%M:%SZ}")


def _refusals(log: Log) -> Check:
    day = datetime.now(UTC) - timedelta(days=1)
    recent = [refusal for refusal in log.refusals(limit=1000) if refusal.refused_at >= day]
    if len(recent) >= REFUSALS_A_DAY_WARN:
        return Check("refusals", WARN, f"{len(recent)} in the last day", "everlog errors --stats")
    return Check("refusals", OK, f"{len(recent)} in the last day")


def _views(log: Log) -> Check:
    """Only what is kept: nothing is run for it."""
    from everlog.views.overview import DAMAGED, NEVER_RUN, OTHER_CODE, PARKED, STOPPED

    fixes = {
        DAMAGED: "everlog views rebuild {}",
        PARKED: "everlog views dead-letters {}",
        STOPPED: "everlog views dead-letters {}",
        OTHER_CODE: "everlog views rebuild {}",
    }
    kept = [view for view in log.views.overviews() if view.state != NEVER_RUN]
    for view in sorted(kept, key=lambda view: view.state != STOPPED):  # the worst is told
        if view.state in fixes:
            status = FAIL if view.state == STOPPED else WARN
            return Check(
                "views",
                status,
                f"{view.view} is at #{view.position}: {view.state}",
                fixes[view.state].format(view.view),
            )
    damaged = log.views.damaged_rows()
    if damaged:
        name, keys = next(iter(damaged.items()))
        return Check(
            "views",
            WARN,
            f"{counted(len(keys), 'row')} of {name} {'does' if len(keys) == 1 else 'do'} not match the checksum,"
            f" such as {sorted(keys)[0]}; the answers are folded again from the events",
            f"everlog views rebuild {name}",
        )
    mended = next((view for view in kept if view.mended), None)
    if mended is not None:
        return Check(
            "views",
            WARN,
            f"{counted(mended.mended, 'row')} of {mended.view} did not match the checksum and"
            f" {'was' if mended.mended == 1 else 'were'} folded again; check the disk",
            f"everlog views audit {mended.view}; a rebuild ends this warning: everlog views rebuild {mended.view}",
        )
    return Check("views", OK, f"{len(kept)} kept, none of them stuck")


def _snapshots(log: Log) -> Check:
    """Their hashes are proved; what they say is proved by `snapshot verify`."""
    from everlog.errors import EverlogError

    folder = log.views.snapshots.folder
    entries = folder.entries()
    for entry in entries:
        try:
            if entry.header is not None:
                folder.load(entry)
                continue
            problem = entry.problem
        except EverlogError as error:
            problem = str(error)
        # No failure: a snapshot only spares work, and the one before it serves.
        return Check(
            "snapshots", WARN, f"{entry.path.name}: {problem}", f"everlog snapshot create {entry.view} --full"
        )
    return Check("snapshots", OK, f"{len(entries)}, all whole (what they say: everlog snapshot verify)")


def _actor(log: Log) -> Check:
    from everlog.core.fields import require_shape
    from everlog.errors import InvalidField

    try:
        require_shape("actor", log.actor)
    except InvalidField as error:
        return Check("actor", FAIL, str(error), "everlog config set actor user:ada")
    return Check("actor", OK, log.actor)


def _lock(folder: Path, log: Log) -> Check:
    from everlog.catalog.lock import additions, compare
    from everlog.cli.schema import LOCK_FILE
    from everlog.errors import EverlogError
    from everlog.files import DiskFiles

    files = DiskFiles()
    path = folder / LOCK_FILE
    if not files.exists(path):
        return Check(
            "schema", WARN, "the event types are not locked, so a breaking change goes unseen", "everlog schema lock"
        )
    try:
        text = files.read_all(path).decode(errors="replace")
        broken, new = compare(text, log.catalog), additions(text, log.catalog)
    except EverlogError as error:
        return Check("schema", FAIL, str(error), error.hint)
    if broken:
        return Check(
            "schema",
            FAIL,
            f"{counted(len(broken), 'change breaks', 'changes break')} the lock: {broken[0]}",
            "everlog schema check",
        )
    if new:
        return Check(
            "schema",
            WARN,
            f"{counted(len(new), 'addition is', 'additions are')} not locked yet: {new[0]}",
            "everlog schema lock",
        )
    return Check("schema", OK, "the event types are as locked")
