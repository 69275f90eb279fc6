"""The straight line: one thread that does only what no store with this contract can leave out.

Convert, canonical payload, salt and commitment, header bytes and hash (of a zero byte followed by the header, as in
format 2), frame, SHA-256, write, flush. It has no validation of names, secret scan, idempotency, sequences, index,
locks or recovery. So it is not a store: it bounds what a store in Python can reach.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from benchmarks.bench.events import MODELS, Pool
from benchmarks.bench.floors import flush
from benchmarks.bench.rounds import Sample, timed_each

from everlog.core.ids import IdSource
from everlog.log.write.draft import Draft

ORIGIN = "01K0000000000000000000000A"


class StraightLine:
    def __init__(self, path: Path, pool: Pool) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pool = pool
        self._ids = IdSource()
        self._count, self._previous = 0, b""

    def append(self, drafts: Sequence[Draft], key: str) -> None:
        sha256, now, first_previous = hashlib.sha256, datetime.now(UTC), self._previous
        rows = []
        for draft, event_id in zip(drafts, self._ids.take(len(drafts)), strict=True):
            self._count += 1
            body = _payload(msgspec.convert(draft.payload, MODELS[draft.type]))
            salt = os.urandom(16)
            commitment = sha256(salt + body).digest()
            start = (event_id, draft.type, 1, draft.stream, self._count)
            end = (
                draft.actor,
                draft.scope,
                draft.request_id,
                draft.causation_id,
                draft.correlation_id,
                key,
                draft.tags,
            )
            header = _header((*start, ORIGIN, self._count, now, *end, commitment, self._previous))
            self._previous = sha256(b"\0" + header).digest()
            rows.append((*start, *end, body, salt))  # the rest follows from the frame
        frame = _frame((ORIGIN, self._count, now, first_previous, self._previous, rows))
        os.write(self._handle, len(frame).to_bytes(4, "big") + frame + sha256(frame).digest())
        flush(self._handle)

    def appends(self, count: int, *, events_each: int = 1) -> Sample:
        works = [(self._pool.take(events_each), self._pool.key()) for _ in range(count)]
        return timed_each(events_each, [partial(self.append, drafts, key) for drafts, key in works])

    def close(self) -> None:
        os.close(self._handle)


_payload = msgspec.json.Encoder(order="sorted").encode
_header = msgspec.json.Encoder(order="deterministic").encode
_frame = msgspec.msgpack.Encoder().encode
