"""JSON values out of a file that nobody vouches for: line by line, out of one array or out of the records of a
segment file (`lighthouse.py`), also if it is packed with gzip. Never the whole file at once.

Lines are parted by the byte `\\n` and by nothing else. Every value comes with the line it begins on. What is too
long, too deep, no JSON, or the mark of an unresolved merge is refused with that line; the file is never touched.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from everlog.core.canonical import parse_json
from everlog.errors import NotCanonical
from everlog.transfer import lighthouse

LINE_BYTES_MAX = 16 * 1024 * 1024
"""More than any log accepts in one event; a longer line is refused before it fills the memory."""

_CHUNK = 1024 * 1024
BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b\x08"
_BEGINNING = 1000  # bytes of a line that is too long, so that a person can find it
_MERGE_MARKS = (b"<<<<<<< ", b"=======", b">>>>>>> ", b"||||||| ")
# The object of an event is around a payload of any depth; kata and CloudEvents add one more level.
_LEVELS_AROUND = 2
# Nanoseconds since 1970 are above 2^53. The limit for payloads is checked when a payload is encoded.
_NUMBER_MAX = 2**63 - 1

Read = Callable[[int, int], bytes]
"""Reads bytes of a file: `read(size, at)` returns fewer than `size` only at its end."""


class ReadValue(NamedTuple):
    """A JSON value, or the problem with the bytes in its place."""

    line: int
    value: Any
    problem: str = ""
    raw: bytes = b""  # the bytes of the value, or what of them is known


def values(
    read: Read, *, seen: Callable[[bytes], object] = lambda chunk: None, past_long_lines: bool = False
) -> Iterator[ReadValue]:
    """Yield every JSON value of a file, in order. `seen` is called with each piece of the file.

    A line that is too long ends the reading, unless `past_long_lines` asks for what follows it.
    """
    chunks = _chunks(read, seen)
    first = next(chunks, b"").removeprefix(BOM)
    chunks = _again(first, chunks)
    packed = _Gzip() if first.startswith(GZIP) else None
    if packed is not None:
        chunks = packed.unpacked(chunks)
        first = next(chunks, b"").removeprefix(BOM)
        chunks = _again(first, chunks)
    line = 0
    for line, data, problem in _pieces(first, chunks, past_long_lines):
        yield ReadValue(line, None, problem, data) if problem else _parsed(line, data)
    if packed is not None and packed.problem:
        yield ReadValue(line + 1, None, packed.problem)


def _pieces(first: bytes, chunks: Iterable[bytes], past_long_lines: bool) -> Iterator[_Piece]:
    if lighthouse.is_segment(first):
        return (_Piece(*record) for record in lighthouse.records(chunks))
    if first.lstrip(b" \t\r\n").startswith(b"["):
        return _elements(chunks)
    if is_document(first):
        return _document(chunks)
    return _lines(chunks, past_long_lines)


def is_document(head: bytes) -> bool:
    """Return True if a file begins as one object that is written over several lines: the second one is a member."""
    first, _, rest = head.lstrip(b" \t\r\n").partition(b"\n")
    return first.strip() == b"{" and rest.lstrip(b" \t\r\n")[:1] in (b'"', b"}", b"")


def _document(chunks: Iterable[bytes]) -> Iterator[_Piece]:
    data = b""
    for chunk in chunks:
        data += chunk
        if len(data) > LINE_BYTES_MAX:
            break
    yield _limited(1, data)


def _parsed(line: int, data: bytes) -> ReadValue:
    if data.startswith(_MERGE_MARKS):
        mark = data[:40].decode(errors="replace").strip()
        return ReadValue(line, None, f"{mark!r} is the mark of an unresolved merge", data)
    try:
        return ReadValue(line, parse_json(data, levels_around=_LEVELS_AROUND, number_max=_NUMBER_MAX), "", data)
    except NotCanonical as error:
        return ReadValue(line, None, error.reason if error.path == "$" else f"{error.path}: {error.reason}", data)


class _Gzip:
    """Yield the content of a compressed file, piece by piece, so that a small file cannot fill the memory."""

    def __init__(self) -> None:
        self.problem = ""

    def unpacked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        packed, begun = zlib.decompressobj(wbits=31), False
        try:
            for chunk in chunks:
                while chunk:
                    begun = True
                    piece = packed.decompress(chunk, _CHUNK)
                    if piece:
                        yield piece
                    chunk = packed.unconsumed_tail
                    if packed.eof:
                        chunk, packed, begun = packed.unused_data, zlib.decompressobj(wbits=31), False
            if rest := packed.flush():
                yield rest
        except zlib.error as error:
            self.problem = f"the file is packed with gzip, and what follows is damaged: {error}"
        else:
            if begun:
                self.problem = "the file is packed with gzip and cut off"


class _Piece(NamedTuple):
    line: int
    data: bytes
    problem: str = ""


def _chunks(read: Read, seen: Callable[[bytes], object]) -> Iterator[bytes]:
    at = 0
    while chunk := read(_CHUNK, at):
        seen(chunk)
        at += len(chunk)
        yield chunk


def _again(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from chunks


def _lines(chunks: Iterable[bytes], past_long_lines: bool = False) -> Iterator[_Piece]:
    held, number, too_long = b"", 0, False
    for chunk in chunks:
        *whole, held = (held + chunk).split(b"\n")
        for data in whole:
            number += 1
            if data.strip() and not too_long:
                yield _limited(number, data)
            too_long = False
        if too_long:
            held = b""  # the rest of a line that was reported
        elif len(held) > LINE_BYTES_MAX:
            yield _limited(number + 1, held)
            if not past_long_lines:
                return
            held, too_long = b"", True
    if held.strip():
        yield _limited(number + 1, held)


def _limited(line: int, data: bytes) -> _Piece:
    if len(data) > LINE_BYTES_MAX:
        return _Piece(line, data[:_BEGINNING], f"it is longer than {LINE_BYTES_MAX:,} bytes")
    return _Piece(line, data)


_SPACE = b" \t\r\n"


def _elements(chunks: Iterable[bytes]) -> Iterator[_Piece]:
    """Yield the elements of one JSON array, each as its bytes. Only quotes and brackets are examined."""
    state = _Array()
    for chunk in chunks:
        yield from state.take(chunk)
        if state.broken:
            return
    yield from state.end()


_MARK = re.compile(rb'["{}\[\],]')
_MARK_IN_TEXT = re.compile(rb'["\\]')


class _Array:
    """Finds where the elements of an array begin and end, however it is divided into chunks."""

    def __init__(self) -> None:
        self._line = 1
        self._begun = self._ended = self._text = self._escaped = False
        self._depth = 0
        self._element = bytearray()
        self._element_line = 1
        self._comma = False  # an element must follow
        self.broken = False

    def take(self, chunk: bytes) -> Iterator[_Piece]:
        at = 0
        while at < len(chunk):
            if self._text:
                at = self._past_text(chunk, at)
                continue
            mark = _MARK.search(chunk, at)
            end = len(chunk) if mark is None else mark.start()
            piece = self._plain(chunk[at:end])
            if piece is None and mark is not None:
                piece = self._marked(mark[0])
            at = end + 1
            if piece is not None:
                yield piece
                if piece.problem:
                    self.broken = True
                    return

    def end(self) -> Iterator[_Piece]:
        if not self._ended:
            yield _Piece(self._line, b"", "the array is cut off: it has no end")

    def _past_text(self, chunk: bytes, at: int) -> int:
        """Take the text between quotes, up to its end, the next escape, or the end of the chunk."""
        if self._escaped:
            self._escaped = False
            self._add(chunk[at : at + 1])
            return at + 1
        mark = _MARK_IN_TEXT.search(chunk, at)
        if mark is None:
            self._add(chunk[at:])
            return len(chunk)
        self._add(chunk[at : mark.end()])
        self._escaped = mark[0] == b"\\"
        self._text = self._escaped
        return mark.end()

    def _plain(self, data: bytes) -> _Piece | None:
        """Take what has no quotes, brackets or commas: space, numbers, words."""
        if self._element:
            self._add(data)
            return self._too_long()
        words = data.lstrip(_SPACE)
        self._line += data.count(b"\n", 0, len(data) - len(words))
        if not words:
            return None
        if self._ended:
            return _Piece(self._line, b"", "something stands after the end of the array")
        self._element_line = self._line
        self._add(words)
        return self._too_long()

    def _marked(self, mark: bytes) -> _Piece | None:
        if not self._begun:
            self._begun = True  # the opening bracket, which the caller has read
            return None
        if self._ended:
            return _Piece(self._line, b"", "something stands after the end of the array")
        if self._depth == 0 and mark in b",]":
            return self._element_ends(mark)
        if not self._element:
            self._element_line = self._line
        self._add(mark)
        self._text = mark == b'"'
        self._depth += (mark in b"{[") - (mark in b"}]")
        return self._too_long()

    def _add(self, data: bytes) -> None:
        self._element += data
        self._line += data.count(b"\n")

    def _too_long(self) -> _Piece | None:
        if len(self._element) <= LINE_BYTES_MAX:
            return None
        return _Piece(self._element_line, b"", f"it is longer than {LINE_BYTES_MAX:,} bytes")

    def _element_ends(self, mark: bytes) -> _Piece | None:
        self._ended = mark == b"]"
        data = bytes(self._element)
        self._element.clear()
        if not data.strip():
            if self._ended and not self._comma:
                return None  # an empty array
            return _Piece(self._line, b"", "an element of the array is missing")
        self._comma = not self._ended
        return _Piece(self._element_line, data)
