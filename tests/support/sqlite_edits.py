"""Edit single events of an SQLite log with SQL, as an owner of the file could: with the right checksum, too.

The log has one row per group. Here `events` is a temporary view with one row per event, and its triggers write a
changed event back into its group:

    position  sequence  header  payload  salt  received_us  origin

`header` are the first 17 values of a stored event. A value that follows from the group is null there.
"""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

_encode = msgspec.json.Encoder().encode
_pieces = msgspec.json.Decoder(list[msgspec.Raw]).decode
_HEADER = 17

_VIEW = """
CREATE TEMP VIEW events AS SELECT
    json_extract(value, '$[0]') AS position, json_extract(value, '$[1]') AS sequence, header_of(value) AS header,
    payload_of(value) AS payload, salt_of(value) AS salt, received_us, origin, first AS stored_in
FROM groups, json_each(groups.events);
CREATE TEMP TRIGGER changed INSTEAD OF UPDATE ON events BEGIN
    UPDATE groups SET events = CAST(replaced(CAST(events AS BLOB), OLD.position, record_of(NEW.position,
        NEW.sequence, NEW.header, NEW.payload, NEW.salt)) AS TEXT) WHERE first = OLD.stored_in;
    UPDATE groups SET first = NEW.position, last = NEW.position WHERE first = OLD.stored_in AND kept = 1
        AND NEW.position <> OLD.position;
    UPDATE groups SET checksum = checksum_of(first, last, kept, received_us, origin, first_seq, count, previous, hash,
        signature, claims, CAST(events AS BLOB)) WHERE first IN (OLD.stored_in, NEW.position);
END;
CREATE TEMP TRIGGER deleted INSTEAD OF DELETE ON events BEGIN
    UPDATE groups SET events = CAST(replaced(CAST(events AS BLOB), OLD.position, NULL) AS TEXT), kept = kept - 1
        WHERE first = OLD.stored_in;
    DELETE FROM groups WHERE first = OLD.stored_in AND kept = 0;
    UPDATE groups SET checksum = checksum_of(first, last, kept, received_us, origin, first_seq, count, previous, hash,
        signature, claims, CAST(events AS BLOB)) WHERE first = OLD.stored_in;
END;
CREATE TEMP TRIGGER inserted INSTEAD OF INSERT ON events BEGIN
    INSERT INTO groups VALUES (NEW.position, NEW.position, 1, NEW.received_us, NEW.origin,
        json_extract(NEW.header, '$[6]'), 1, x'', x'', x'', x'',
        CAST('[' || record_of(NEW.position, NEW.sequence, NEW.header, NEW.payload, NEW.salt) || ']' AS TEXT), 0);
    UPDATE groups SET checksum = checksum_of(first, last, kept, received_us, origin, first_seq, count, previous, hash,
        signature, claims, CAST(events AS BLOB)) WHERE first = NEW.position;
END;
"""


def edit(path: Path, *statements: str) -> None:
    """Run statements that the triggers would refuse, and leave the log without its triggers."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        let_edit(connection)
        for statement in statements:
            connection.execute(statement)


def let_edit(connection: sqlite3.Connection) -> None:
    """Make `events` a view that can be changed, for this connection."""
    connection.create_function("header_of", 1, _header_of)
    connection.create_function("payload_of", 1, lambda record: bytes(_values(record)[_HEADER]).decode())
    connection.create_function("salt_of", 1, lambda record: msgspec.json.decode(_values(record)[18], type=bytes))
    connection.create_function("record_of", 5, _record_of)
    connection.create_function("replaced", 3, _replaced)
    connection.create_function("checksum_of", 12, _checksum_of)
    connection.executescript(_VIEW)


def _values(record: str) -> list[msgspec.Raw]:
    return _pieces(_pieces(record)[3])


def _header_of(record: str) -> str:
    return "[" + ",".join(bytes(value).decode() for value in _values(record)[:_HEADER]) + "]"


def _record_of(position: int, sequence: int, header: str, payload: str | bytes, salt: bytes) -> bytes:
    text = payload if isinstance(payload, bytes) else payload.encode()
    encoded = base64.b64encode(salt).decode()
    return f"[{position},{sequence},0,{header[:-1]},".encode() + (text or b"{}") + f',"{encoded}"]]'.encode()


def _replaced(events: bytes, position: int, record: bytes | None) -> bytes:
    """Return the text of a group with another record, or without it."""
    kept = [bytes(piece) for piece in _pieces(events)]
    found = [record if piece.startswith(f"[{position},".encode()) else piece for piece in kept]
    return b"[" + b",".join(piece for piece in found if piece is not None) + b"]"


def _checksum_of(*row: Any) -> int:
    return crc32(row[-1], crc32(_encode(row[:-1])))
