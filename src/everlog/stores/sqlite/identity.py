"""The identity of an SQLite log: a row of `identity`, and in `state` its hash, its former origins and its place."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

from everlog.errors import Damaged
from everlog.stores.contract import Identity
from everlog.stores.sqlite.groups import Fetch

_FORMER = "former "


def find_identity(fetch: Fetch) -> tuple[Identity | None, bool]:
    """Return the identity, and whether it is as it was written."""
    rows = fetch("SELECT log_id, origin, epoch, created_us FROM identity", ())
    if len(rows) != 1:
        return None, False
    former = fetch(
        "SELECT name, position FROM state WHERE name >= ? AND name < ? ORDER BY number", (_FORMER, _FORMER[:-1] + "!")
    )
    log_id, origin, epoch, created_us = rows[0]
    names = tuple(name.removeprefix(_FORMER) for name, _ in former)
    lives = tuple(zip((head for _, head in former), (*names, origin)[1:], strict=True))
    identity = Identity(log_id, origin, epoch, created_us, names, lives)
    digests = fetch("SELECT hash FROM state WHERE name = 'identity'", ())
    return identity, digests in ([], [(identity_hash(identity),)])


def read_identity(fetch: Fetch, path: Path) -> Identity:
    identity, whole = find_identity(fetch)
    if identity is None or not whole:
        raise Damaged(
            f"{path} is damaged",
            why="who the log is, is not as it was made",
            hint="restore a backup",
            path=str(path),
        )
    return identity


def write_identity(writer: sqlite3.Connection, identity: Identity) -> None:
    """Set the origin of a log and its former ones."""
    writer.execute("UPDATE identity SET origin = ?", (identity.origin,))
    former = zip(identity.former, identity.lives, strict=True)
    rows = [(_FORMER + origin, number, b"", head) for number, (origin, (head, _)) in enumerate(former, 1)]
    rows.append(("identity", 0, identity_hash(identity), 0))
    writer.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", rows)


def place_in(fetch: Fetch) -> str:
    """Return the place that the log recorded, or nothing: see `everlog.stores.put_back`."""
    rows = fetch("SELECT hash FROM state WHERE name = 'place'", ())
    return rows[0][0].decode() if rows else ""


def write_place(writer: sqlite3.Connection, place: str) -> None:
    writer.execute("INSERT OR REPLACE INTO state VALUES ('place', 0, ?, 0)", (place.encode(),))


def identity_hash(identity: Identity) -> bytes:
    """Return the hash that detects a changed identity: SQLite stores no checksum of a row."""
    text = f"{identity.log_id} {identity.origin} {identity.epoch} {identity.created_us}"
    lives = [f"{head} {origin}" for head, origin in identity.lives]
    return hashlib.sha256(" ".join((text, *identity.former, *lives)).encode()).digest()
