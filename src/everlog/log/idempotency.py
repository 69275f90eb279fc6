"""One mechanism for safe retries: `(scope, actor, operation, key)` names a request, claimed in the append's own
transaction (F82). The same request again gets the stored response; another request under the same key is refused.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any

import msgspec

from everlog.core.canonical import canonical
from everlog.core.ids import EventId
from everlog.errors import KeyReuse
from everlog.log.drafts import Prepared
from everlog.stores.contract import Writer

KEPT_US_MIN = 24 * 60 * 60 * 1_000_000
"""The seeds' minimum. Kept longer only by setting; never for ever."""

_PREFIX = "key/"


class Key(msgspec.Struct, frozen=True):
    """A request's name and what it would record. `note` is where the record of it is kept."""

    key: str
    operation: str
    actor: str
    fingerprint: str
    note: str


def key_of(prepared: Sequence[Prepared], key: str, operation: str, request: Any) -> Key:
    """The key of a request; its scope and its actor are those of its first event."""
    first = prepared[0]
    # Hashed, because the parts are free text that could imitate a separator.
    name = hashlib.sha256(_encode((first.draft.scope, first.actor, operation, key))).digest()
    return Key(key, operation, first.actor, fingerprint(prepared, request), _PREFIX + _short(name))


def _short(digest: bytes) -> str:
    """128 bits of a hash as 22 characters: the records are many and live in an index."""
    return b2a_base64(digest[:16], newline=False)[:22].decode()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a request: enough to answer it again and to tell another one apart."""

    fingerprint: str
    ids: list[str]
    response: Any


def fingerprint(prepared: Sequence[Prepared], extra: Any = None) -> str:
    """A hash of everything that makes the request what it is, in its canonical form."""
    parts = [
        (
            item.draft.type,
            item.draft.stream,
            item.actor,
            item.draft.scope,
            item.draft.tags,
            item.body,
        )
        for item in prepared
    ]
    # Names and tags have one form already, and the body is canonical: only what else the caller gave may not be.
    said = _encode(parts) if extra is None else _encode(parts) + canonical(extra)
    return _short(hashlib.sha256(said).digest())


_encode = msgspec.json.Encoder(order="deterministic").encode


def find(writer: Writer, key: Key) -> Record | None:
    """The record of the same request, None if the key is free; another request under the key is refused."""
    found = writer.noted(key.note)
    if found is None:
        return None
    record = msgspec.json.decode(found, type=Record)
    if record.fingerprint != key.fingerprint:
        raise KeyReuse(
            f"the idempotency key {key.key!r} was used for another request",
            why=f"a key names one {key.operation} of {key.actor}; this one differs in what it would record",
            hint="use a new key for a new request, or repeat the first one exactly",
            key=key.key,
            operation=key.operation,
        )
    return record


def claim(writer: Writer, key: Key, ids: Sequence[str], response: Any, *, expires_us: int) -> None:
    record = Record(key.fingerprint, list(ids), response)
    writer.note(key.note, _encode(record).decode(), expires_us=expires_us)


def forget_responses(writer: Writer, event_ids: set[EventId]) -> None:
    """Empty the stored responses of requests whose events are being purged; the keys stay claimed."""
    for name, text in writer.notes(_PREFIX).items():
        record = msgspec.json.decode(text, type=Record)
        if record.response is not None and event_ids.intersection(record.ids):
            emptied = Record(record.fingerprint, record.ids, None)
            writer.note(name, _encode(emptied).decode(), expires_us=writer.now_us + KEPT_US_MIN)
