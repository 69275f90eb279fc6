"""Send the few statements of every write as bytes: prepared once, several at a time, with one wait for all answers.

psycopg's cursors adapt every value and run every statement as a coroutine, which costs more than the server needs for
the write. Here the values are made in PostgreSQL's binary form by hand:

    number   8 bytes, the most significant first
    array    dimensions (1), flags (0), type, length, lower bound (1), then for each its length (int32) and its bytes
"""

from __future__ import annotations

import select
import struct
from collections.abc import Sequence
from typing import NamedTuple

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from everlog.stores.postgres.connection import Connection

INT8, INT4, TEXT, BYTEA, UUID = 20, 23, 25, 17, 2950
"""The type numbers, which are the same in every PostgreSQL."""

number = struct.Struct(">q").pack
small_number = struct.Struct(">i").pack
_ARRAY = struct.Struct(">iiIii").pack
_NO_ITEMS = struct.Struct(">iiI").pack
_BINARY = pq.Format.BINARY


def array(kind: int, items: Sequence[bytes]) -> bytes:
    if not items:
        return _NO_ITEMS(0, 0, kind)
    parts = [_ARRAY(1, 0, kind, len(items), 1)]
    for item in items:
        parts.append(small_number(len(item)))
        parts.append(item)
    return b"".join(parts)


class Statement(NamedTuple):
    name: bytes
    sql: bytes
    values: Sequence[bytes] = ()


class Wire:
    """The protocol of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._pgconn = connection.pgconn
        self._prepared: set[bytes] = set()
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket)

    def run(self, *wanted: Statement) -> list[pq.abc.PGresult]:
        """Run the statements in order and return the result of each. Raise the first error."""
        pgconn = self._pgconn
        for statement in wanted:
            if statement.name not in self._prepared:
                _require_done(pgconn.prepare(statement.name, statement.sql), pgconn)
                self._prepared.add(statement.name)
        pgconn.enter_pipeline_mode()
        for name, _, values in wanted:
            pgconn.send_query_prepared(name, values, [_BINARY] * len(values), _BINARY)
        pgconn.pipeline_sync()
        answers = [self._answer() for _ in wanted]
        if self._next().status != pq.ExecStatus.PIPELINE_SYNC:
            raise psycopg.OperationalError(pgconn.get_error_message())
        pgconn.exit_pipeline_mode()
        for answer in answers:
            _require_done(answer, pgconn)
        return answers

    def _answer(self) -> pq.abc.PGresult:
        """Return the result of the next statement, which must be a single one."""
        answer = self._next()
        self._await()
        if self._pgconn.get_result() is not None:
            raise psycopg.OperationalError(self._pgconn.get_error_message())
        return answer

    def _next(self) -> pq.abc.PGresult:
        self._await()
        answer = self._pgconn.get_result()
        if answer is None:  # the connection is lost
            raise psycopg.OperationalError(self._pgconn.get_error_message())
        return answer

    def _await(self) -> None:
        """Wait for an answer with poll, so that other threads run: libpq's own waits would block them."""
        pgconn = self._pgconn
        unsent = pgconn.flush()
        while pgconn.is_busy():
            self._poll.modify(pgconn.socket, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
            self._poll.poll()
            pgconn.consume_input()
            unsent = unsent and pgconn.flush()

    def roll_back(self) -> None:
        """Undo the open transaction. A cursor is not used, because psycopg would then drop every prepared
        statement."""
        _require_done(self._pgconn.exec_(b"ROLLBACK"), self._pgconn)


def _require_done(answer: pq.abc.PGresult, pgconn: pq.abc.PGconn) -> None:
    if answer.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return
    if pgconn.status == pq.ConnStatus.BAD and not answer.error_field(pq.DiagnosticField.SQLSTATE):
        raise psycopg.OperationalError(pgconn.get_error_message())
    raise error_from_result(answer)
