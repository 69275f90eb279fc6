"""Read the frames of a segment in order, past damage, to its end.

Bytes that are not a frame are the end (only zeros follow), a torn tail (a write that was never acknowledged), or
damage. Damage with a valid frame after it is a `Gap` with an offset and a size, and the walk continues after it.

At the end of a live segment a write may be incomplete: some of its frames are there and others are not. None of them
counts then, whichever are there. If what is missing was changed and not torn, the write was complete once: its other
frames count, and the rest is damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

from everlog.core.event import START, Position
from everlog.stores.segments.format.frame import (
    AROUND_BYTES,
    HASH_BYTES,
    LENGTH,
    Frame,
    decode_frame,
    find_frame,
    open_body,
)
from everlog.stores.segments.format.source import Source
from everlog.stores.segments.format.torn import is_torn

CHUNK_BYTES_FIRST = 128 * 1024
CHUNK_BYTES_MAX = 1024 * 1024
"""How many bytes are read at first, and how many then: a page needs few. Steps in between would slow a replay."""


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """Bytes that are not frames, with what is known of the positions that they held."""

    start: int
    end: int
    before: Position  # the head before it
    head: Position  # the head after it: everything between is lost


class TailKind(Enum):
    END = "end"
    TORN = "torn"
    DAMAGED = "damaged"


class Found(msgspec.Struct, frozen=True, gc=False):
    """A frame with its offsets, and the bytes that contain it, which start at `at`."""

    frame: Frame
    start: int
    end: int
    data: memoryview
    at: int

    @property
    def body(self) -> memoryview:
        """The bytes that the frame was decoded from."""
        return self.data[self.start - self.at + LENGTH.size : self.end - self.at - HASH_BYTES]


class Walk:
    """The frames from an offset on. `tail` and `end` are valid after the last frame, `head` at any time.

    `limit` is where the frames must end, if that is known; then any bytes before it that are not a frame are damage.
    With `holding`, records that hold none of these texts may be left out of their frames (`decode_frame`), and with
    `after` those up to this position.
    """

    def __init__(
        self,
        source: Source,
        *,
        mark: int,
        start: int,
        head: Position,
        limit: int | None = None,
        holding: Sequence[bytes] = (),
        after: Position = START,
    ) -> None:
        self._source = source
        self._after = after
        self._holding = holding
        self._mark = mark
        self._limit = limit
        self._reached = head  # the head after the last step
        self.end = start
        self.head = head
        self.tail = TailKind.END
        self.tail_bytes = b""

    def __iter__(self) -> Iterator[Found | Gap]:
        if self._limit is not None:  # every write before it is complete
            for step in self._steps(self.end):
                yield self._passed(step)
            return
        write: list[Found | Gap] = []
        for step in self._steps(self.end):
            if write and (isinstance(step, Gap) or step.frame.write_at != _start_of(write)):
                if isinstance(step, Gap) and not _is_complete(write):
                    write.append(step)
                    continue
                yield from map(self._passed, write)  # another write follows: this one was complete
                write = []
            write.append(step)
            if isinstance(step, Found) and step.frame.is_last and not any(isinstance(one, Gap) for one in write):
                yield from map(self._passed, write)
                write = []
        if write and self._is_torn(write):
            self.tail_bytes = self._read(write[0].start, self._stop() - write[0].start).rstrip(b"\0")
            self.tail = TailKind.TORN
            return
        yield from map(self._passed, write)

    def _passed(self, step: Found | Gap) -> Found | Gap:
        self.end, self.head = step.end, step.head if isinstance(step, Gap) else step.frame.head
        return step

    def _is_torn(self, write: Sequence[Found | Gap]) -> bool:
        """Return whether the last write, some of whose frames are not there, was never acknowledged."""
        if _is_complete(write) and self.tail is not TailKind.END:
            return False  # another one was begun after it
        if not _is_complete(write) and self.tail is not TailKind.DAMAGED:
            return True
        gaps = [one for one in write if isinstance(one, Gap)]
        return any(is_torn(self._read(gap.start, gap.end - gap.start), gap.start) for gap in gaps)

    def _steps(self, at: int) -> Iterator[Found | Gap]:
        mark, holding, chunk = self._mark, self._holding, CHUNK_BYTES_FIRST
        while True:
            data = memoryview(self._read(at, chunk))
            chunk = CHUNK_BYTES_MAX
            place = 0
            while True:
                after = self._after if self._reached < self._after else START  # START: nothing is left out
                found = decode_frame(data, place, mark=mark, offset=at + place, holding=holding, after=after)
                if found is None:
                    break
                frame, size = found
                place += size
                self._reached = frame.head
                yield Found(frame, at + place - size, at + place, data, at)
            rest = len(data) - place
            if place and not self._at_end(at + len(data)):
                at += place  # the frame continues after the bytes that were read
                continue
            at += place
            wanted = self._wanted(data[place:])
            if wanted > rest and not self._at_end(at + rest):
                data = memoryview(self._read(at, wanted))
                found = decode_frame(data, 0, mark=mark, offset=at, holding=holding)
                if found is not None:
                    self._reached = found[0].head
                    yield Found(found[0], at, at + found[1], data, at)
                    at += found[1]
                    continue
            data = memoryview(self._settled(at))
            found = decode_frame(data, 0, mark=mark, offset=at, holding=holding)
            if found is not None:  # a writer has written it since
                self._reached = found[0].head
                yield Found(found[0], at, at + found[1], data[: found[1]], at)
                at += found[1]
                continue
            gap = self._gap(at, bytes(data))
            if gap is None:
                return
            self._reached = gap.head
            yield gap
            at = gap.end

    def _settled(self, at: int) -> bytes:
        """Return all bytes from here on, read until two reads agree.

        A read is not atomic beside a writer: it may return a new frame after space as it was before. And a writer
        that recovers zeroes a torn write while it is being read.
        """
        data = self._read(at, self._stop() - at)
        if self._limit is not None:
            return data  # no writer changes these bytes
        while data != bytes(len(data)) and open_body(memoryview(data)) is None:
            again = self._read(at, self._stop() - at)
            if again == data:
                break
            data = again
        return data

    def _gap(self, at: int, data: bytes) -> Gap | None:
        """Return the damage up to the next frame, or None at the end; `tail` then describes the end."""
        if self._limit is None and data == bytes(len(data)):
            return None
        found = find_frame(memoryview(data), 0, mark=self._mark, offset=at)
        if found is not None:
            return Gap(at, at + found[1], self._reached, found[0].before)
        if self._limit is not None:
            if at < self._limit:
                self.tail = TailKind.DAMAGED
            return None
        self.tail = TailKind.TORN if is_torn(data, at) else TailKind.DAMAGED
        self.tail_bytes = data.rstrip(b"\0")
        return None

    def _wanted(self, data: memoryview) -> int:
        if len(data) < LENGTH.size:
            return AROUND_BYTES
        length: int = LENGTH.unpack_from(data)[0]
        return length + AROUND_BYTES

    def _read(self, at: int, size: int) -> bytes:
        if self._limit is not None:
            size = min(size, self._limit - at)
        return self._source.read(at, size) if size > 0 else b""  # the file may have become shorter meanwhile

    def _stop(self) -> int:
        return self._source.size if self._limit is None else self._limit

    def _at_end(self, at: int) -> bool:
        return at >= self._stop()


def _start_of(write: Sequence[Found | Gap]) -> int:
    first = write[0]
    return first.start if isinstance(first, Gap) else first.frame.write_at


def _is_complete(write: Sequence[Found | Gap]) -> bool:
    """Return whether the last frame of a write is there."""
    last = write[-1]
    return isinstance(last, Found) and last.frame.is_last
