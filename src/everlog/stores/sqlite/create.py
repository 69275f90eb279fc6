"""Create a new database, completely or not at all."""

from __future__ import annotations

from pathlib import Path

from everlog.errors import Damaged, NotFound
from everlog.files import Files, Lock
from everlog.stores.contract import Identity
from everlog.stores.put_back import remember_end
from everlog.stores.sqlite import connection
from everlog.stores.sqlite.identity import identity_hash, write_place


def make_log(files: Files, lock: Lock, path: Path, identity: Identity, *, allowed: bool, stays: bool) -> None:
    """Create an empty log with this name, unless another process has just done so.

    It records its place if it `stays` there; a copy is renamed when it is complete.
    """
    if not allowed:
        raise NotFound(f"{path} does not exist", why="there is no log to open", hint="everlog init")
    folder = path.absolute().parent
    if not files.exists(folder.parent):
        raise NotFound(
            f"{path} cannot be created", why=f"there is no folder {folder.parent}", hint=f"mkdir -p {folder}"
        )
    files.make_dir(folder)
    lock.acquire(connection.BUSY_TIMEOUT_MS / 1000)
    try:
        if not files.exists(path):
            _refuse_lone_journal(files, path)
            place = lock.place() if stays else ""
            _make_database(files, path, identity, place)
            if place:
                remember_end(lock, identity.origin, 0)
    finally:
        lock.release()


def _refuse_lone_journal(files: Files, path: Path) -> None:
    """Refuse to begin a log beside the write-ahead log of another one: SQLite would replay it into the new file."""
    journal = path.with_name(path.name + "-wal")
    found = files.stamp(journal)
    if found is not None and found.size:  # a log that was closed leaves an empty one
        raise Damaged(
            f"{path} is gone, and {journal.name} is still there",
            why="it holds the last writes of a log that was removed, renamed or not restored with it",
            hint=f"put {path.name} back beside it; or, to begin a new log, move {journal.name} away",
            path=str(path),
        )


def _make_database(files: Files, path: Path, identity: Identity, place: str) -> None:
    """Create the database. The caller holds the log's lock."""
    # Built in another file and renamed when complete: a crash leaves no incomplete log under this name.
    draft = path.with_name(path.name + ".new")
    for leftover in (draft, draft.with_name(draft.name + "-wal"), draft.with_name(draft.name + "-shm")):
        if files.exists(leftover):
            files.unlink(leftover)
    schema = schema_text()
    # SQLite gives its side files the mode of the file itself, so that is set before SQLite sees it.
    files.close(files.open(draft, exclusive=True))
    with connection.own_errors(path, "creating"):
        fresh = connection.create_database(draft, schema)
        try:
            fresh.execute(
                "INSERT INTO identity VALUES (1, ?, ?, ?, ?)",
                (identity.log_id, identity.origin, identity.epoch, identity.created_us),
            )
            fresh.execute("INSERT INTO state VALUES ('identity', 0, ?, 0)", (identity_hash(identity),))
            if place:
                write_place(fresh, place)
            fresh.execute("COMMIT")
            # Closing would do this too, but would not report a failed flush.
            fresh.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            fresh.close()
    handle = files.open(draft, write=True)
    try:
        files.fsync(handle)
    finally:
        files.close(handle)
    files.rename(draft, path)
    files.fsync_dir(path.parent)


def schema_text() -> str:
    # Imported here: only creating and checking need it, and it is slow to load.
    from importlib.resources import files as package_files

    return (package_files("everlog.stores.sqlite") / "schema.sql").read_text()
