"""A row: the state of one key with what is needed to continue it, and its stored bytes.

count    the number of events that made it
last     the greatest `(lamport, id)` among them
sources  the streams that they came from, as long as these are few

Stored, a row is MessagePack: `[count, lamport, id, sources, state, checksum]`, the lowest byte of the checksum first.
The checksum is the CRC-32 of the space, the key and the bytes before it. The space is the name of the view and the
number of the build, so a row that belongs to another key or another build does not match either. The checksum detects
accidents. A writer of the database can also write a checksum: `everlog views audit` folds the events again.

A row that does not match is folded again from the events; see `OpenBuild.mend`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from struct import Struct
from zlib import crc32

import msgspec

from everlog.core.text import counted
from everlog.errors import Damaged
from everlog.views.view import State, View, state_bytes

SOURCES_MAX = 32
"""The number of streams that a row names. A row with more is folded again from the whole log when one is purged."""

CausalOrder = tuple[int, str]
_NOTHING: CausalOrder = (0, "")


class Row:
    """The state of one key, and how it was made."""

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
        self.sources = sources  # None: more than SOURCES_MAX, or the key is the stream itself
        self.is_new = is_new  # nothing is stored under this key yet


def new_row(view: View) -> Row:
    return Row(view.initial(), sources=None if view.by_stream else set())


def remember_source(row: Row, stream: str) -> None:
    sources = row.sources
    if sources is not None:
        sources.add(stream)
        if len(sources) > SOURCES_MAX:
            row.sources = None


# ---- stored bytes


class _Kept(msgspec.Struct, array_like=True):
    """The first five values of a stored row."""

    count: int
    lamport: int
    id: str
    sources: list[str] | None
    state: bytes


class JsonRow(msgspec.Struct, array_like=True):
    """A stored row, written as JSON."""

    count: int
    lamport: int
    id: str
    sources: list[str] | None
    state: msgspec.Raw


UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError)
"""The errors of reading damaged bytes."""

_json = msgspec.json.Encoder().encode
_encode = msgspec.msgpack.Encoder().encode
parsed_kept = msgspec.msgpack.Decoder(_Kept).decode
parsed_state = msgspec.json.Decoder().decode
parsed_row = msgspec.json.Decoder(JsonRow).decode


def row_bytes(row: Row) -> bytes:
    """Return the bytes of a row. A state that JSON cannot express is refused."""
    sources = None if row.sources is None else sorted(row.sources)
    return _encode(_Kept(row.count, *row.last, sources, state_bytes(row.state)))


def row_of(data: bytes) -> Row:
    kept = parsed_kept(data)
    sources = None if kept.sources is None else set(kept.sources)
    return Row(parsed_state(kept.state), kept.count, (kept.lamport, kept.id), sources, is_new=False)


def row_json(data: bytes) -> bytes:
    """Return a stored row as canonical JSON: `[count, lamport, id, sources, state]`."""
    kept = parsed_kept(data)
    return b"[%d,%d,%b,%b,%b]" % (kept.count, kept.lamport, _json(kept.id), _json(kept.sources), kept.state)


def row_of_json(text: bytes) -> bytes:
    """Return the bytes of a row that was written as JSON."""
    found = parsed_row(text)
    return _encode(_Kept(found.count, found.lamport, found.id, found.sources, bytes(found.state)))


def kept_of(count: int, lamport: int, id: str, sources: list[str] | None, state: bytes) -> bytes:
    """Return the bytes of a row from its parts; the state is canonical JSON already."""
    return _encode(_Kept(count, lamport, id, sources, state))


def kept_parts(data: bytes) -> tuple[int, int, str, list[str] | None, bytes]:
    """Return the parts of a stored row: count, lamport, id, sources, and the canonical JSON of its state."""
    kept = parsed_kept(data)
    return kept.count, kept.lamport, kept.id, kept.sources, kept.state


def kept_state(data: bytes) -> bytes:
    """Return the canonical JSON of a stored row's state."""
    return parsed_kept(data).state


# ---- checksums

_logger = logging.getLogger("everlog")

_RESIDUE = 0x2144DF1C
"""The CRC-32 of any bytes followed by their own CRC-32, the lowest byte first."""

_four_bytes = Struct("<I").pack


def begin(space: str) -> int:
    """Return the value that the checksums of all rows of a space start from."""
    return crc32(f"{space}\n".encode())


def seal_row(begun: int, key: str, row: bytes) -> bytes:
    """Add its checksum to a row of five values."""
    body = b"\x96" + row[1:] + b"\xce"
    return body + _four_bytes(crc32(key.encode() + b"\n" + body, begun))


def row_matches(begun: int, key: str, data: object, *, sealed: bool) -> bool:
    """Return whether these bytes are the row that was stored. In a build that is not `sealed` it may have no
    checksum."""
    if type(data) is not bytes:
        return False
    if crc32(key.encode() + b"\n" + data, begun) == _RESIDUE:
        return data[:1] == b"\x96"
    return not sealed and data[:1] == b"\x95"


def all_match(begun: int, rows: list[tuple[str, bytes]]) -> bool:
    """Return whether all of these rows have checksums and match them: `row_matches` without a call for each row."""
    try:
        return [crc32(key.encode() + b"\n" + data, begun) for key, data in rows].count(_RESIDUE) == len(rows)
    except TypeError:  # something is not bytes
        return False


def is_sealed(data: bytes) -> bool:
    return data[:1] == b"\x96"


# ---- damage


class DamagedRows(Damaged):
    """Rows of a view that do not match their checksums."""

    def __init__(self, view: str, keys: Collection[str]) -> None:
        self.keys = frozenset(keys)
        some = sorted(map(repr, keys))
        super().__init__(
            f"{counted(len(some), 'row')} of the view {view} {'does' if len(some) == 1 else 'do'} not match"
            f" {'its checksum' if len(some) == 1 else 'their checksums'}, such as {some[0]}",
            why="what the view stores was changed or damaged on disk; the events are not affected",
            hint=f"everlog views rebuild {view}",
            view=view,
            keys=sorted(map(str, keys))[:20],
        )


class LostRows(Damaged):
    """A view has fewer rows than it recorded, or more; which ones is not known."""

    def __init__(self, view: str, found: int, kept: int) -> None:
        super().__init__(
            f"the view {view} has {counted(found, 'row')}, and {kept} were stored",
            why="what the view stores was changed or damaged on disk; the events are not affected",
            hint=f"everlog views rebuild {view}",
            view=view,
            found=found,
            kept=kept,
        )


def warn_of_damage(view: str, keys: Collection[str]) -> None:
    _logger.warning(
        "%s of the view %s did not match the checksum: %s%s. The events were folded again; the answer is right."
        " Check the disk, and the rest of the view: everlog views audit %s",
        counted(len(keys), "row"),
        view,
        ", ".join(sorted(map(repr, keys))[:5]),
        ", ..." if len(keys) > 5 else "",
        view,
    )
