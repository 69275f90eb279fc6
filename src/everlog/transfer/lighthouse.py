"""Segment files of seed 001, read as foreign files: MessagePack records, each with its length before it and its
SHA-256 after it.

     0        4             4+length     36+length
     | length | body        | SHA-256    |            the length is big-endian, and below 16 MiB

A record that does not match its hash is damage. Reading continues at the next place where a whole record begins, and
the bytes between are reported with their offset. Archived files (gzip) are unpacked on the way, piece by piece.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

LENGTH = struct.Struct(">I")
HASH_BYTES = 32
BODY_BYTES_MAX = 16 * 1024 * 1024 - 1
_MAP_MARKS = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])
"""The first byte of a MessagePack map, with which a body begins."""


class Record(NamedTuple):
    """A record as JSON text; or damaged bytes, with the reason."""

    number: int
    data: bytes
    problem: str = ""


def is_segment(start: bytes) -> bool:
    """Recognize a segment file by its first bytes: a record begins with a zero byte, and JSON text has none.

    If the first record is damaged, one of the others tells it.
    """
    if start[:1] == b"\0" and len(start) > LENGTH.size and start[LENGTH.size] in _MAP_MARKS:
        return True
    at = start.find(b"\0")
    while at >= 0:
        if at + LENGTH.size < len(start) and start[at + LENGTH.size] in _MAP_MARKS:
            length = LENGTH.unpack_from(start, at)[0]
            end = at + LENGTH.size + length
            body = start[at + LENGTH.size : end]
            if len(body) == length and hashlib.sha256(body).digest() == start[end : end + HASH_BYTES]:
                return True
        at = start.find(b"\0", at + 1)
    return False


def records(chunks: Iterable[bytes]) -> Iterator[Record]:
    """Yield every record of a file in order, and every damaged range where it is."""
    held, offset, number, lost = bytearray(), 0, 1, bytearray()
    source = iter(chunks)
    ended = False

    def damage() -> Record:
        nonlocal number
        found = Record(number, bytes(lost), _damage(offset - len(lost), len(lost)))
        number += 1
        lost.clear()
        return found

    while True:
        needed = _needed(held)
        while len(held) < needed and not ended:
            chunk = next(source, b"")
            ended = not chunk
            held += chunk
            needed = _needed(held)
        if not held:
            break
        body = _whole(held)
        if body is not None:
            if lost:
                yield damage()
            yield _record(number, body)
            number += 1
            size = LENGTH.size + len(body) + HASH_BYTES
        else:
            size = _next_candidate(held)
            lost += held[:size]
        del held[:size]
        offset += size
        if len(lost) > BODY_BYTES_MAX:
            yield damage()
    if lost:
        yield damage()


def _needed(held: bytearray) -> int:
    """Return how many bytes are needed to check the record that may begin here."""
    if len(held) <= LENGTH.size:
        return LENGTH.size + 1
    length = LENGTH.unpack_from(held)[0]
    if length > BODY_BYTES_MAX or held[LENGTH.size] not in _MAP_MARKS:
        return LENGTH.size + 1
    return int(LENGTH.size + length + HASH_BYTES)


def _whole(held: bytearray) -> bytes | None:
    """Return the body of the record that begins here, if it is intact."""
    needed = _needed(held)
    if needed == LENGTH.size + 1 or len(held) < needed:
        return None
    end = needed - HASH_BYTES
    body = bytes(held[LENGTH.size : end])
    return body if hashlib.sha256(body).digest() == held[end:needed] else None


def _next_candidate(held: bytearray) -> int:
    """Return how many bytes to skip: up to the next zero byte, with which every record begins."""
    found = held.find(b"\0", 1)
    return found if found > 0 else len(held)


def _damage(offset: int, size: int) -> str:
    why = "a length or a SHA-256 does not match, or the file ends in the middle of a record"
    return f"{size:,} bytes from byte {offset:,} on are damaged: {why}"


def _record(number: int, body: bytes) -> Record:
    try:
        found = msgspec.msgpack.decode(body)
        _refuse_odd_keys(found)
        # Through JSON, so that a record is checked like a line: depth, numbers, lone surrogates.
        return Record(number, json.dumps(found).encode())
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        return Record(number, body, f"the record has no form in JSON: {error}")


def _refuse_odd_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"a key is a {type(key).__name__}, not a text")
            _refuse_odd_keys(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_odd_keys(item)
