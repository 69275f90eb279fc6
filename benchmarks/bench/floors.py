"""What the machine itself can do, without any rule: the measure that everlog is held against.

disk     one write of a record and one flush; or a hundred records in one write and one flush
rows     plain SQLite: MessagePack bodies read in order into Structs
codec    an event encoded and decoded again
hash     two SHA-256 of an event's size
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from benchmarks.bench.rounds import Sample, timed, timed_each

from everlog.core.event import Event

RECORD_BYTES = 400
flush = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class DiskFloor:
    """A file that grows by whole records and is flushed after each write."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def writes(self, count: int, *, records_each: int = 1) -> Sample:
        data = os.urandom(RECORD_BYTES * records_each)
        return timed_each(records_each, [partial(self._write, data)] * count)

    def close(self) -> None:
        os.close(self._handle)

    def _write(self, data: bytes) -> None:
        os.write(self._handle, data)
        flush(self._handle)


class RowsFloor:
    """The same events in a plain table: what SQLite and msgspec cost when nothing is promised."""

    def __init__(self, path: Path, events: Sequence[Event]) -> None:
        self._connection = sqlite3.connect(path)
        self._decode = msgspec.msgpack.Decoder(Event).decode
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, stream TEXT, type TEXT, body BLOB)")
        self._connection.execute("CREATE INDEX by_stream ON t (stream, seq)")
        self._connection.execute("CREATE INDEX by_type ON t (type, seq)")
        encode = msgspec.msgpack.Encoder().encode
        rows = [(event.stream, event.type, encode(event)) for event in events]
        self._connection.executemany("INSERT INTO t (stream, type, body) VALUES (?, ?, ?)", rows)
        self._connection.commit()

    def read_all(self, events: int) -> Sample:
        return self._read("SELECT body FROM t ORDER BY seq LIMIT ?", (events,), events)

    def read_stream(self, stream: str, events: int, *, times: int) -> Sample:
        sql = "SELECT body FROM t WHERE stream = ? ORDER BY seq LIMIT ?"
        return self._read(sql, (stream, events), events, times=times)

    def read_type(self, type: str, events: int, *, times: int) -> Sample:
        return self._read(
            "SELECT body FROM t WHERE type = ? ORDER BY seq LIMIT ?", (type, events), events, times=times
        )

    def close(self) -> None:
        self._connection.close()

    def _read(self, sql: str, values: tuple[object, ...], events: int, *, times: int = 1) -> Sample:
        def work() -> None:
            found = 0
            for (body,) in self._connection.execute(sql, values):
                self._decode(body)
                found += 1
            require_count(found, events)

        return timed_each(events, [work] * times)


def encode_and_hash(events: Sequence[Event]) -> Sample:
    """What an append cannot do without even in memory: encode the event, hash its payload, hash its header."""
    encode = msgspec.json.Encoder().encode

    def work() -> None:
        for event in events:
            body = encode(event)
            hashlib.sha256(body[:160]).digest()
            hashlib.sha256(body).digest()

    return timed(len(events), work)


def require_count(found: int, wanted: int) -> None:
    """A side that read less than it should would look fast."""
    if found != wanted:
        raise AssertionError(f"read {found} events where {wanted} were to be read")
