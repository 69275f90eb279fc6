"""Making a new database: whole, or not there."""

from __future__ import annotations

import hashlib
from pathlib import Path

from everlog.files import Files
from everlog.stores.contract import Identity
from everlog.stores.sqlite import connection


def make_database(files: Files, path: Path, identity: Identity) -> None:
    """A new, empty log under this name; the caller holds its lock."""
    # Built beside and renamed when it is whole: a crash in between leaves no half log under this name.
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
            fresh.execute("COMMIT")
            # Closing would do this too, but a flush that fails there is told to nobody.
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


def identity_hash(identity: Identity) -> bytes:
    """What tells of a changed identity: SQLite keeps no checksum of a row."""
    said = f"{identity.log_id} {identity.origin} {identity.epoch} {identity.created_us}"
    return hashlib.sha256(said.encode()).digest()


def schema_text() -> str:
    from importlib.resources import files as package_files  # only making and checking need it, and it is slow to load

    return (package_files("everlog.stores.sqlite") / "schema.sql").read_text()
