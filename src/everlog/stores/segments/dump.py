"""List the content of a segment file, frame by frame, with offsets. The log is not opened; a file may be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import force_setattr

from everlog.core.event import START, Recorded
from everlog.core.group import Group
from everlog.core.text import counted
from everlog.errors import NotALog
from everlog.files import Files
from everlog.stores.segments.format.frame import (
    CLOSED,
    COMMIT,
    LENGTH,
    PURGING,
    SIGNS,
    SWEPT,
    Frame,
    closing_frame,
    mark_of,
    open_body,
    stored_events,
)
from everlog.stores.segments.format.frames import Found, Gap, TailKind, Walk
from everlog.stores.segments.format.header import (
    HEAD_READ_BYTES,
    HEAD_START,
    MAGIC,
    SegmentHeader,
    decode_header,
    head_size,
)
from everlog.stores.segments.format.source import Source, open_source

KINDS = {COMMIT: "write", CLOSED: "closed", PURGING: "purge", SWEPT: "swept"}
_decode = msgspec.msgpack.Decoder(Frame).decode


class DumpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a segment file: its head, a frame, bytes that are not a frame, or its end."""

    start: int
    end: int
    kind: str
    text: str
    records: tuple[Recorded, ...] = ()


def dump(files: Files, path: Path) -> Iterator[DumpEntry]:
    """Return the entries of a segment file, packed or plain."""
    source = open_source(files, path, packed=path.suffix == ".zst")
    try:
        yield from _entries(source, path)
    finally:
        source.close()


def _entries(source: Source, path: Path) -> Iterator[DumpEntry]:
    data = source.read(0, HEAD_READ_BYTES)
    if data[: len(MAGIC)] != MAGIC and not any(data.find(word) >= 0 for word in SIGNS):
        raise NotALog(
            f"{path} is not a segment file", why="it does not start like one", hint="name a file of segments/"
        )
    found = decode_header(source.read(0, max(head_size(data), len(data))), name=str(path))
    if found is not None:
        header, start = found
        yield DumpEntry(start=0, end=start, kind="head", text=_describe_header(header))
        mark, head = mark_of(header.identity.log_id, header.number), header.before
    else:
        yield DumpEntry(start=0, end=HEAD_START, kind="damaged", text="the head is damaged")
        start, head = HEAD_START, START
        mark = _guessed_mark(data)
    walk = Walk(source, mark=mark, start=start, head=head)
    last: Frame | None = None
    for item in walk:
        if isinstance(item, Gap):
            yield DumpEntry(start=item.start, end=item.end, kind="damaged", text="these bytes are not a frame")
            continue
        frame = last = item.frame
        positions = f"positions {frame.before + 1} to {frame.head}, " if frame.head > frame.before else ""
        yield DumpEntry(
            start=item.start,
            end=item.end,
            kind=KINDS.get(frame.rest.kind, "write"),
            text=f"{positions}{counted(len(frame.records), 'event')}, clock {frame.clock}, fence {frame.fence}",
            records=_with_group(item),
        )
    if walk.tail is not TailKind.END:
        kind, text = {
            TailKind.TORN: ("torn", "a write that was never acknowledged"),
            TailKind.DAMAGED: ("damaged", "a damaged frame"),
        }[walk.tail]
        if last is not None and _is_of_a_mark(walk.tail_bytes, last, walk.end):
            kind = "cut" if walk.tail is TailKind.TORN else kind
            text = "the mark of a clean end, incomplete: it holds no event"
        yield DumpEntry(start=walk.end, end=source.size, kind=kind, text=text)
    if source.damage:
        yield DumpEntry(start=source.size, end=source.size, kind="damaged", text=source.damage)


def _with_group(found: Found) -> tuple[Recorded, ...]:
    """Return the records of a frame with their group, from which the values that they leave out follow."""
    frame = found.frame
    if frame.facts is not None:
        group = Group(frame.facts, partial(stored_events, bytes(found.body)), lambda origin, number: None)
        for record in frame.records:
            force_setattr(record.event, "group", group)
    return tuple(frame.records)


def _is_of_a_mark(found: bytes, last: Frame, at: int) -> bool:
    """Return whether the bytes start the mark that would follow the last frame, or differ from it in one byte."""
    if last.rest.kind == CLOSED:
        return False
    mark = closing_frame(last.mark, at, last.fence, last.clock, last.head)
    wrong = sum(one != other for one, other in zip(found, mark, strict=False))
    return wrong == 0 if len(found) < len(mark) else len(found) == len(mark) and wrong == 1


def _describe_header(header: SegmentHeader) -> str:
    rewritten = f", rewritten {counted(header.generation, 'time')}" if header.generation else ""
    return (
        f"segment {header.number} of log {header.identity.log_id}, after position {header.before},"
        f" fence {header.fence}{rewritten}"
    )


def _guessed_mark(data: bytes) -> int:
    """Return the mark of the first readable frame, for a file whose head is damaged."""
    view = memoryview(data)
    for sign in SIGNS:
        place = data.find(sign)
        while place >= LENGTH.size:
            body = open_body(view, place - LENGTH.size)
            if body is not None:
                return _decode(body).mark
            place = data.find(sign, place + 1)
    return 0
