"""The head of a segment file: its log, its number, and the state that a writer starts from.

    0         8
    | EVERLOG | length, MessagePack, SHA-256 | frames …
    | 2       |

The name of a segment becomes visible only when its head is on the disk. So a segment without a head, or an empty one,
is damage and never a new segment (F04). The head also records where the segment before it ended, so that a cut there
is noticed.
"""

from __future__ import annotations

import msgspec

from everlog.core.chain import Chain
from everlog.core.event import Position
from everlog.stores.contract import Identity
from everlog.stores.formats import FORMAT, refuse_other_format
from everlog.stores.segments.format.frame import AROUND_BYTES, LENGTH, enclose, open_body

MAGIC = b"EVERLOG"
HEAD_START = len(MAGIC) + 1
HEAD_READ_BYTES = 64 * 1024

END_MARK = 2**32

NoteValue = tuple[str, int | None]


class StartState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a log at the start of a segment, so that earlier segments need not be read for it."""

    clock: int = 0
    chains: dict[str, Chain] = {}
    notes: dict[str, NoteValue] = {}
    id_max: str = ""


class End(msgspec.Struct, frozen=True, array_like=True):
    """Where a segment ended: its size and the hash of its last frame."""

    size: int
    hash: bytes


class SegmentHeader(msgspec.Struct, frozen=True, array_like=True):
    format: int
    identity: Identity
    number: int
    fence: int
    before: Position  # the head when it was begun
    opened_us: int
    state: StartState
    previous: End | None = None  # how the segment before it ended
    generation: int = 0  # how often purges rewrote it
    first_end: End | None = None  # how it ended before it was rewritten
    end_mark: int = 0  # its size if it was rewritten, plus 2^32, so that the size of this field is constant

    @property
    def end(self) -> int:
        return self.end_mark - END_MARK


_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(SegmentHeader).decode


def encode_header(header: SegmentHeader) -> bytes:
    return MAGIC + bytes([FORMAT]) + enclose(_encode(header))


def decode_header(data: bytes, *, name: str) -> tuple[SegmentHeader, int] | None:
    """The head in the first bytes of a segment and its size, or None if they are none."""
    if data[: len(MAGIC)] != MAGIC or len(data) < HEAD_START + LENGTH.size:
        return None
    body = open_body(memoryview(data), HEAD_START)
    if body is None:
        return None
    try:
        header = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        header = None
    if header is not None and header.format == FORMAT:
        return None if data[len(MAGIC)] != FORMAT else (header, HEAD_START + len(body) + AROUND_BYTES)
    refuse_other_format(name, data[len(MAGIC)])
    return None


def head_size(data: bytes) -> int:
    """Return the size that a head declares, so that a long one can be read completely."""
    if data[: len(MAGIC)] != MAGIC or len(data) < HEAD_START + LENGTH.size:
        return 0
    return HEAD_START + int(LENGTH.unpack_from(data, HEAD_START)[0]) + AROUND_BYTES
