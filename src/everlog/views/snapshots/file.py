"""The file of a snapshot: three lines of JSON, compressed with gzip.

    {"format":1,"id":…,"view":…,"cursor":…,"base":…}          what it covers, and which code made it
    {"rows":{KEY:[count,lamport,id,sources,state]},"places":{…},"letters":{…}}
                                                             or, on a base: a JSON patch (RFC 6902) of such a body
    {"sha256":…,"key":…,"signature":…}                        over the two lines above, line ends included

`zcat FILE | head -1` shows the header. The signature is empty in a log without a key. A snapshot of
`everlog.aio.EventStore` is a file of the same form with another header; its second line is the state.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from typing import Protocol

import msgspec

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import Damaged, InvalidField
from everlog.views.snapshots.patch import SECTIONS, Body

FORMAT = 1
LEVEL = 6
_SIGNED = b"everlog snapshot\n"
PEEKED_BYTES = 64 * 1024
_SEAL_BYTES_MAX = 4096


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a view's snapshot covers, and what made it."""

    format: int = FORMAT
    id: str
    view: str
    version: int
    by_stream: bool
    code: str  # fingerprints of what made it: the view's code,
    catalog: str  # and how events are read
    log_id: str
    epoch: str
    cursor: str  # how far it has read the log, and which purges it has followed
    lamport: int
    last: tuple[int, str]  # the last event at or below that, by position and id
    base: str = ""  # the full snapshot that this is a patch on; empty: it is full itself
    base_sha256: str = ""
    keys: int
    applied: int
    stopped_at: int = 0
    standing: str = ""  # the verdicts on chains that its states follow
    digest: str  # over all states
    body_bytes: int  # of the full body, before compression
    log_bytes: int = 0  # the size of the log
    created_us: int
    reason: str = ""  # which trigger made it
    forgets: int = 0  # how often somebody had been forgotten

    @property
    def reached(self) -> Cursor:
        return Cursor.of(self.cursor)

    @property
    def position(self) -> Position:
        return self.reached.position


class Seal(msgspec.Struct, frozen=True):
    sha256: str
    key: str = ""  # the name of the key that signed
    signature: str = ""


class Signer(Protocol):
    """Signs and verifies snapshots. A log with a key has one, and uses no snapshot without a right signature."""

    def sign(self, data: bytes) -> tuple[str, bytes]:
        """Return the name of the key, and the signature."""
        ...

    def is_right(self, key: str, data: bytes, signature: bytes) -> bool: ...


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(SnapshotHeader).decode
_seal = msgspec.json.Decoder(Seal).decode
_body = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]]).decode


def body_bytes(body: Body) -> bytes:
    return _encode({section: {key: msgspec.Raw(text) for key, text in body[section].items()} for section in SECTIONS})


def body_of(data: bytes) -> Body:
    try:
        found = _body(data)
        return {section: {key: bytes(text) for key, text in found[section].items()} for section in SECTIONS}
    except (KeyError, msgspec.MsgspecError) as error:
        raise Damaged("the snapshot has no body", why=str(error)) from error


def pack(header: msgspec.Struct, content: bytes, signer: Signer | None = None) -> bytes:
    """Return the file of a snapshot. `content` is its body, or the patch on its base."""
    data = _encode(header) + b"\n" + content + b"\n"
    sha = hashlib.sha256(data)
    key, signature = signer.sign(_SIGNED + sha.digest()) if signer is not None else ("", b"")
    seal = Seal(sha.hexdigest(), key, signature.hex())
    return gzip.compress(data + _encode(seal) + b"\n", LEVEL, mtime=0)


def unpack(packed: bytes, signer: Signer | None = None) -> tuple[SnapshotHeader, bytes, Seal]:
    """Return the header, the content and the seal of a view's snapshot; Damaged if they are not what was written."""
    stated = peek(packed)
    # A patch is limited by the size that the gzip file states.
    most = None if stated.base else PEEKED_BYTES + stated.body_bytes + _SEAL_BYTES_MAX
    line, content, seal = proved_lines(decompress(packed, most), signer)
    return _parsed(line), content, seal


def decompress(packed: bytes, most: int | None = None) -> bytes:
    """Return the bytes of a snapshot, never more than the file states, and not more than `most`."""
    stated = int.from_bytes(packed[-4:], "little")  # a gzip file ends with its size before compression
    limit = stated if most is None else min(stated, most)
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(packed, limit + 1)
    except zlib.error as error:
        raise Damaged("the snapshot cannot be decompressed", why=str(error)) from error
    if len(data) > limit or not unpacker.eof or unpacker.unused_data:
        raise Damaged("the snapshot cannot be decompressed", why=f"it has not the {limit} bytes that it states")
    return data


def proved_lines(data: bytes, signer: Signer | None = None) -> tuple[bytes, bytes, Seal]:
    """Return the header and the content as they were written, and the seal that proves it; Damaged if it does not."""
    end = data.rfind(b"\n", 0, -1) + 1
    try:
        seal = _seal(data[end:])
    except msgspec.MsgspecError as error:
        raise Damaged("the snapshot has no seal", why=str(error)) from error
    sha = hashlib.sha256(data[:end])
    if sha.hexdigest() != seal.sha256:
        raise Damaged("the snapshot is not what was written", why="its SHA-256 differs")
    if signer is not None:
        if not seal.signature:
            raise Damaged("the snapshot is not signed", why="this log has a key, and uses what its key has signed")
        try:
            right = signer.is_right(seal.key, _SIGNED + sha.digest(), bytes.fromhex(seal.signature))
        except ValueError:
            right = False
        if not right:
            raise Damaged("the snapshot's signature is not valid", why=f"it names the key {seal.key}")
    line, _, content = data[:end].partition(b"\n")
    return line, content[:-1], seal


def peek(packed: bytes) -> SnapshotHeader:
    """Return the header alone, without proof: enough to list snapshots without reading all of them."""
    try:
        line = b""
        unpacker = zlib.decompressobj(wbits=31)
        data = packed[:PEEKED_BYTES]
        while b"\n" not in line:
            found = unpacker.decompress(data, PEEKED_BYTES)
            if not found or len(line) >= PEEKED_BYTES:
                raise Damaged("the snapshot has no header", why="it ends before the first line does")
            line += found
            data = unpacker.unconsumed_tail
        return _parsed(line.partition(b"\n")[0])
    except zlib.error as error:
        raise Damaged("the snapshot cannot be decompressed", why=str(error)) from error


def _parsed(line: bytes) -> SnapshotHeader:
    try:
        header = _header(line)
        Cursor.of(header.cursor)
    except (msgspec.MsgspecError, InvalidField) as error:
        raise Damaged("the snapshot's header cannot be read", why=str(error)) from error
    if header.format != FORMAT:
        raise Damaged(
            "the snapshot has another format",
            why=f"it has format {header.format}; this version reads format {FORMAT}",
        )
    return header
