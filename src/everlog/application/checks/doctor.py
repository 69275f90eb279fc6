"""The checks of `everlog doctor`. They change nothing, and each says how to fix what it found.

Settings and folder are checked first: without them nothing else can be. A check that could not run has the status
skip.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import ClassVar
from urllib.parse import quote as url_quote

import msgspec

from everlog import wiring
from everlog.application.checks.problems import remedy, summarize
from everlog.application.folder.open import Location
from everlog.catalog.lock import LOCK_FILE, additions, compare
from everlog.core.fields import require_shape
from everlog.core.text import counted
from everlog.errors import EverlogError, InvalidField
from everlog.files import DiskFiles, leftover_temps
from everlog.log.log import Log
from everlog.stores.contract import CanBeOlder, Indexed
from everlog.stores.formats import FORMAT
from everlog.transfer.git import findings
from everlog.views.builds.overview import DAMAGED, NEVER_RUN, OTHER_CODE, PARKED, STOPPED

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
FREE_BYTES_FAIL = 50 * 1024 * 1024
FREE_BYTES_WARN = 1024 * 1024 * 1024
REFUSALS_A_DAY_WARN = 10
STRUCTURE_EVENTS_MAX = 50_000
SQLITE_OLDEST = (3, 37, 0)


class Check(msgspec.Struct, frozen=True):
    """One check. Its id never changes, so that a program can look for it."""

    columns: ClassVar[tuple[str, ...]] = ("status", "id", "detail", "fix")

    id: str
    status: str
    detail: str
    fix: str = ""


def checks(location: Location, open_log: Callable[[], Log]) -> Iterator[Check]:
    """Yield the result of every check of the log at a location. The log is opened, and closed by the caller."""
    yield _runtime()
    folder: Path | None = None
    try:
        if not location.url:
            folder = location.folder()
            yield _folder(folder)
        yield _settings(location)
        log = open_log()
    except EverlogError as error:
        yield Check(_which(error.code), FAIL, str(error), error.hint)
        yield Check("log", SKIP, "the log was not checked")
        return
    yield Check(
        "log", OK, f"opens, head #{log.head()}, id {log.identity.log_id}, origin {log.identity.origin or 'none yet'}"
    )
    path = getattr(log.stored, "path", None)
    if isinstance(path, Path):
        yield from _file_checks(path)
        yield from _git(location, path)
        yield from _future(log)
        yield from _older(log)
    yield from checks_of_log(log)
    if folder is not None:
        yield _lock(folder, log)


def checks_of_log(log: Log) -> Iterator[Check]:
    """Yield the checks of an open log, wherever it is."""
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


def _which(code: str) -> str:
    return {"no_log": "folder", "invalid_settings": "settings"}.get(code, "log")


def _guarded(check: Callable[[Log], Check], log: Log) -> Check:
    """Run a check. If the log cannot be read there, that is its result, and the other checks still run."""
    try:
        return check(log)
    except EverlogError as error:
        return Check(check.__name__.strip("_"), FAIL, str(error), error.hint)


def _runtime() -> Check:
    python = ".".join(map(str, sys.version_info[:3]))
    detail = f"Python {python}, SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < SQLITE_OLDEST:
        return Check("runtime", FAIL, detail, "use a Python with SQLite 3.37 or newer")
    return Check("runtime", OK, detail)


def _folder(folder: Path) -> Check:
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
            f"{counted(len(left), 'temporary file')} left by killed writers",
            f"when nobody writes, {quote(str(left[0]))} can be removed",
        )
    return Check("folder", OK, str(folder))


def _settings(location: Location) -> Check:
    loaded = location.settings()
    given = [name for name, origin in loaded.origins.items() if origin != "default"]
    return Check("settings", OK, f"usable; set: {', '.join(given) or 'none'}")


def _file_checks(path: Path) -> Iterator[Check]:
    if path.is_dir():
        yield _modes(path)
        yield _disk(path)
        return
    # Read through SQLite: closing a file descriptor of our own would drop the locks that this process holds on it.
    writable = os.access(path.parent, os.W_OK)
    mode = "mode=ro" if writable else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"file:{url_quote(str(path))}?{mode}", uri=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    if not writable:
        # SQLite reports no journal for an immutable file. Nobody holds a lock here, so the header can be read:
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
        "write-ahead log" if wal else "the file is not in WAL mode, in which every log is created",
        "" if wal else "another program changed it; restore a backup, or copy the log",
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


def _git(location: Location, path: Path) -> Iterator[Check]:
    """Check a log of day files in a repository: git merges them, and tracks only what it should."""
    if wiring.git_folder(location.settings().settings.store, base=path) is None:
        return
    found = findings(DiskFiles(), path)
    if found == []:
        yield Check("git", OK, "git merges the day files of clones")
    for finding in found or []:
        yield Check("git", FAIL if finding.grave else WARN, finding.what, finding.fix)


def _future(log: Log) -> Iterator[Check]:
    future = log.stored.future_files() if isinstance(log.stored, Indexed) else []
    if future:
        more = f" (and {len(future) - 1} more)" if future[1:] else ""
        yield Check(
            "future",
            WARN,
            f"events/{future[0]}{more} is dated in the future: a clock was wrong when it was written",
            "check the clock here and where it was written: date; the events can be read, and nothing is lost",
        )


def _older(log: Log) -> Iterator[Check]:
    missing = log.stored.missing_own_events() if isinstance(log.stored, CanBeOlder) else 0
    if missing:
        yield Check(
            "older",
            WARN,
            f"{counted(missing, 'event')} that this log wrote {'is' if missing == 1 else 'are'} not in it: a backup"
            " was restored, or the newest events were removed (the journal of a database, lines of a day file)",
            "if nobody restored a backup, put the newest copy of the files in place (of a database also its -wal),"
            " before anything is written; the next write continues under a new origin",
        )


def _structure(log: Log) -> Check:
    """Verify the log. Of a large log, only read its newest events."""
    head = log.head()
    if head > STRUCTURE_EVENTS_MAX:
        newest = sum(1 for _ in log.read(after=head - STRUCTURE_EVENTS_MAX))  # raises at damage
        detail = (
            f"{counted(newest, 'event')} at the end can be read; earlier events, and all hashes, were not checked"
        )
        return Check("structure", SKIP, detail, "everlog verify")
    report = log.verify()
    if report.ok:
        detail = f"{counted(report.events, 'event')}, every hash, chain and index is correct"
        return Check("structure", OK, detail)
    items = summarize(report)
    lines = "; ".join(item.line for item in items[:5])
    detail = f"{counted(len(report.problems) + report.unlisted, 'problem')}: {lines}"
    if len(items) > 5:
        detail += "; all of them: everlog verify"
    return Check("structure", FAIL, detail, remedy(report.problems))


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
    found = f"{len(recent)} in the last day"
    if damaged := log.writer.refusals.damaged():
        found += f"; left out because they were damaged: {damaged}"
    if len(recent) >= REFUSALS_A_DAY_WARN:
        return Check("refusals", WARN, found, "everlog errors --stats")
    return Check("refusals", OK, found)


def _views(log: Log) -> Check:
    """Check the stored builds. No view is run for it."""
    fixes = {
        DAMAGED: "everlog views rebuild {}",
        PARKED: "everlog views dead-letters {}",
        STOPPED: "everlog views dead-letters {}",
        OTHER_CODE: "everlog views rebuild {}",
    }
    kept = [view for view in log.views.overviews() if view.state != NEVER_RUN]
    for view in sorted(kept, key=lambda view: view.state != STOPPED):  # the worst is reported
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
            f" such as {sorted(keys)[0]}; answers are computed from the events again",
            f"everlog views rebuild {name}",
        )
    mended = next((view for view in kept if view.mended), None)
    if mended is not None:
        return Check(
            "views",
            WARN,
            f"{counted(mended.mended, 'row')} of {mended.view} did not match the checksum and"
            f" {'was' if mended.mended == 1 else 'were'} computed again; check the disk",
            f"everlog views audit {mended.view}; a rebuild ends this warning: everlog views rebuild {mended.view}",
        )
    return Check("views", OK, f"{len(kept)} kept, none of them stuck")


def _snapshots(log: Log) -> Check:
    """Check the hashes of the snapshots. Their content is checked by `snapshot verify`."""
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
        # A warning only: a snapshot saves work, and the one before it is used instead.
        return Check(
            "snapshots", WARN, f"{entry.path.name}: {problem}", f"everlog snapshot create {entry.view} --full"
        )
    return Check("snapshots", OK, f"{len(entries)}, none is damaged (their content: everlog snapshot verify)")


def _actor(log: Log) -> Check:
    try:
        require_shape("actor", log.actor)
    except InvalidField as error:
        return Check("actor", FAIL, str(error), "everlog config set actor user:ada")
    return Check("actor", OK, log.actor)


def _lock(folder: Path, log: Log) -> Check:
    files = DiskFiles()
    path = folder / LOCK_FILE
    if not files.exists(path):
        return Check(
            "schema",
            WARN,
            "the event types are not locked, so breaking changes go unnoticed",
            "everlog schema lock",
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
