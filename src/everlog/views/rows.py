"""A row: a key's state with what the runner must know of it, and the bytes that are kept of it.

count    how many events made it
last     the greatest `(lamport, id)` among them
sources  the streams that they came from, as long as these are few
"""

from __future__ import annotations

import msgspec

from everlog.views.view import State, View, state_bytes

SOURCES_MAX = 32
"""Streams that a row remembers by name. A row fed by more is made again from the whole log when one is purged."""

CausalOrder = tuple[int, str]
_NOTHING: CausalOrder = (0, "")


class Row:
    """What is known of one key."""

    __slots__ = ("count", "is_new", "last", "sources", "state")

    def __init__(
        self,
        state: State,
        count: int = 0,
        last: CausalOrder = _NOTHING,
        sources: set[str] | None = None,
        *,
        is_new: bool = True,
    ) -> None:
        self.state = state
        self.count = count
        self.last = last
        self.sources = sources  # None: more than are remembered, or the key is the stream itself
        self.is_new = is_new  # nothing is kept under this key yet


def new_row(view: View) -> Row:
    return Row(view.initial(), sources=None if view.by_stream else set())


def remember_source(row: Row, stream: str) -> None:
    sources = row.sources
    if sources is not None:
        sources.add(stream)
        if len(sources) > SOURCES_MAX:
            row.sources = None


# ---- as it is kept


class _Kept(msgspec.Struct, array_like=True):
    """On a shelf a sixth value follows, which is the checksum (`everlog.views.checksums`)."""

    count: int
    lamport: int
    id: str
    sources: list[str] | None
    state: bytes


class JsonRow(msgspec.Struct, array_like=True):
    """A kept row that was written as JSON."""

    count: int
    lamport: int
    id: str
    sources: list[str] | None
    state: msgspec.Raw


UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError)
"""What reading garbage may raise."""

_json = msgspec.json.Encoder().encode
_encode = msgspec.msgpack.Encoder().encode
parsed_kept = msgspec.msgpack.Decoder(_Kept).decode
parsed_state = msgspec.json.Decoder().decode
parsed_row = msgspec.json.Decoder(JsonRow).decode


def row_bytes(row: Row) -> bytes:
    """A row as it is kept. A state that JSON cannot say is refused here."""
    sources = None if row.sources is None else sorted(row.sources)
    return _encode(_Kept(row.count, *row.last, sources, state_bytes(row.state)))


def row_of(data: bytes) -> Row:
    kept = parsed_kept(data)
    sources = None if kept.sources is None else set(kept.sources)
    return Row(parsed_state(kept.state), kept.count, (kept.lamport, kept.id), sources, is_new=False)


def row_json(data: bytes) -> bytes:
    """A kept row as canonical JSON: `[count, lamport, id, sources, state]`."""
    kept = parsed_kept(data)
    return b"[%d,%d,%b,%b,%b]" % (kept.count, kept.lamport, _json(kept.id), _json(kept.sources), kept.state)


def row_of_json(text: bytes) -> bytes:
    """The other way round: what is kept of a row that was written as JSON."""
    found = parsed_row(text)
    return _encode(_Kept(found.count, found.lamport, found.id, found.sources, bytes(found.state)))


def kept_of(count: int, lamport: int, id: str, sources: list[str] | None, state: bytes) -> bytes:
    """A row as it is kept, of its parts; the state is canonical JSON already."""
    return _encode(_Kept(count, lamport, id, sources, state))


def kept_parts(data: bytes) -> tuple[int, int, str, list[str] | None, bytes]:
    """The parts of a kept row: count, lamport, id, sources, and the canonical JSON of its state."""
    kept = parsed_kept(data)
    return kept.count, kept.lamport, kept.id, kept.sources, kept.state


def kept_state(data: bytes) -> bytes:
    """The canonical JSON of a kept row's state."""
    return parsed_kept(data).state
