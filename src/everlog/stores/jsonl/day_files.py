"""The day files: find them, read their lines, append, and distinguish a torn tail from damage.

Lines end with the byte 0x0A and with nothing else: U+2028, U+0085 and a carriage return are part of a text (F02).

A crash can leave an unacknowledged write at the end of the newest file: some of its lines, a line without its end, or
sectors that read as zeros. The next write cuts it. Damage looks different: a complete line that cannot be decoded,
junk after a complete line, a few zeros, or zeros within a sector. Damage is reported and not changed, and so is a
torn tail that the index lists as committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from everlog.files import Files, Handle, Watch
from everlog.stores.jsonl.lines import BadLine, Batch, Line, is_whole_object, read_marked_line, writer_of

SCAN_BYTES = 1024 * 1024
"""How much of a file is read at a time when all its lines are read."""

NAME = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl")
_SECTOR_BYTES = 512
_ZEROS = re.compile(rb"\x00+")
_ZEROS_MIN = 8  # fewer may be damage


@dataclass(slots=True)  # not frozen: that would triple the cost of creating one, and there is one per line
class Found:
    """A line and its offset. `size` excludes the newline. An unreadable line has a reason instead of content."""

    at: int
    size: int
    line: Line | None
    batch: Batch | None = None
    reason: str = ""

    @property
    def end(self) -> int:
        return self.at + self.size + 1


def day_name(now_us: int) -> str:
    """Return the file name of a time, by its UTC day."""
    return datetime.fromtimestamp(now_us // 1_000_000, UTC).strftime("%Y-%m-%d") + ".jsonl"


def day_names(files: Files, events: Path) -> list[str]:
    """Return the names of the day files in order, which is the order of the lines."""
    return [name for name in files.names(events) if NAME.fullmatch(name)] if files.exists(events) else []


def open_names(names: list[str], today: str) -> list[str]:
    """Return the files that may end in an unfinished write: the newest one that is not in the future, and all later
    ones, which a wrong clock creates."""
    return [name for name in names if name >= max([each for each in names if each <= today], default="")]


def other_names(files: Files, events: Path) -> list[str]:
    """Return files that are not day files but could be mistaken for them."""
    if not files.exists(events):
        return []
    return [name for name in files.names(events) if name.endswith(".jsonl") and not NAME.fullmatch(name)]


def read_from(files: Files, path: Path, at: int = 0, *, size: int | None = None) -> bytes:
    """Return the bytes from `at` on: `size` of them, or all."""
    handle = files.open(path)
    try:
        return files.read(handle, max(files.size(handle) - at, 0) if size is None else size, at=at)
    finally:
        files.close(handle)


def scan(data: bytes, start: int = 0) -> Iterator[Found]:
    """Return every line of the bytes, which begin at `start` in their file."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        if end < 0:
            end = len(data)
        yield found_at(start + at, data[at:end])
        at = end + 1


def found_at(at: int, text: bytes) -> Found:
    """Return the line with these bytes, without its newline, at this offset."""
    try:
        line, batch = read_marked_line(text)
    except BadLine as error:
        return Found(at, len(text), None, None, str(error))
    return Found(at, len(text), line, batch)


def lines_of_file(files: Files, path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Return every line in the first `size` bytes of a file as its offset and bytes. The file is read in pieces."""
    handle = files.open(path)
    try:
        at, rest = 0, b""
        while at + len(rest) < size:
            there = at + len(rest)
            read = files.read(handle, min(SCAN_BYTES, size - there), at=there)
            if not read:
                break
            *whole, rest = (rest + read).split(b"\n")
            for text in whole:
                yield at, text
                at += len(text) + 1
        if rest:
            yield at, rest
    finally:
        files.close(handle)


def torn_at(data: bytes, start: int, found: list[Found], *, own: str) -> int | None:
    """Return where the torn last write begins, or None if the end is complete (or damaged, which must not be cut).

    `data` begins at `start` in its file and `found` are its lines; both may be a tail of the file that begins at the
    start of a write. Only lines written by the origin `own` are cut: an incomplete batch of another origin came
    through git, and is not torn.
    """
    first = first_of_open_write(found)
    if first is None:
        return None
    rest = found[first:]
    if any(each.line is not None and writer_of(each.line) != own for each in rest):
        return None
    begin = rest[0].at
    tail = data[begin - start :]
    if _is_prefix_of_batch(rest):
        return begin  # complete lines, but not all of the batch
    if _only_one_batch(rest) and looks_torn(tail, begin, rest[-1].at):
        return begin
    return None


def first_of_open_write(found: list[Found]) -> int | None:
    """Return the index of the first line after the last complete write, or None if there is none."""
    index = 0
    last = None
    while index < len(found):
        size = _whole_write(found, index)
        if size == 0:
            last = index if last is None else last
            index += 1
        else:
            last = None
            index += size
    return last


def _whole_write(found: list[Found], index: int) -> int:
    """Return the number of lines of the complete write that begins here, or 0 if none does."""
    first = found[index]
    if first.line is None:
        return 0
    if first.batch is None:
        return 1
    count = first.batch[1]
    group = found[index : index + count]
    whole = len(group) == count and all(each.batch == (number, count) for number, each in enumerate(group, 1))
    return count if whole else 0


def _is_prefix_of_batch(rest: list[Found]) -> bool:
    count = rest[0].batch[1] if rest[0].batch else 0
    return count > len(rest) and all(each.batch == (number, count) for number, each in enumerate(rest, 1))


def _only_one_batch(rest: list[Found]) -> bool:
    """Return whether the readable lines of the rest may all come from one unfinished write."""
    marks = [each.batch for each in rest if each.line is not None]
    if None in marks:
        return False
    numbers = [mark[0] for mark in marks if mark is not None]
    counts = {mark[1] for mark in marks if mark is not None}
    return len(counts) <= 1 and numbers == sorted(set(numbers))


def looks_torn(tail: bytes, begin: int, last_at: int) -> bool:
    """Return whether the end of a file, from `begin` on, can be an unfinished write. `last_at` is its last line."""
    zeros = list(_ZEROS.finditer(tail))
    if zeros:
        # Unwritten bytes read as zeros, up to the next sector or to the end. A flipped bit makes one zero at most.
        return all(
            run.end() == len(tail)
            or ((begin + run.end()) % _SECTOR_BYTES == 0 and (run.start() == 0 or len(run[0]) >= _ZEROS_MIN))
            for run in zeros
        )
    return not tail.endswith(b"\n") and not is_whole_object(tail[last_at - begin :])


class OpenDayFile:
    """The end of the newest day file, open for appending."""

    def __init__(self, files: Files, events: Path) -> None:
        self._files = files
        self._events = events
        self._handle: Handle | None = None
        self._watch: Watch | None = None
        self.name = ""

    def open(self, name: str) -> bool:
        """Make `name` the file that is appended to. Return whether it is new.

        A purge of another handle, or git, may have replaced the file. An append to the old one would be lost."""
        if self._handle is not None and self.name == name and self._watch is not None and self._watch.holds():
            return False
        self.close()
        path = self._events / name
        fresh = not self._files.exists(path)
        self._handle = self._files.open(path, create=True)
        self._watch = self._files.watch(self._handle)
        self.name = name
        return fresh

    def is_open(self, name: str, inode: int) -> bool:
        """Return whether the open file is the one with this name and inode number."""
        return self._watch is not None and self.name == name and self._watch.inode[1] == inode

    def append(self, data: bytes, *, at: int) -> None:
        """Write at the end and flush. A full disk leaves the file as it was."""
        assert self._handle is not None
        try:
            self._files.write_all(self._handle, data, at=at)
        except BaseException:
            self._files.truncate(self._handle, at)  # or the next line would be appended to a part of this one
            raise
        self._files.flush(self._handle)

    def settle(self, data: bytes, *, at: int) -> None:
        """Write the last write again and flush it. A killed writer may have left it in memory only. After a failed
        flush the kernel even treats it as clean, so that another flush alone would do nothing."""
        assert self._handle is not None
        if data:
            self._files.write_all(self._handle, data, at=at)
        self._files.flush(self._handle)
        self._files.fsync_dir(self._events)

    def flush(self) -> None:
        """Flush what anyone has written. The system reports a flush that failed to everyone who has the file open."""
        assert self._handle is not None
        self._files.flush(self._handle)

    def cut(self, size: int) -> None:
        assert self._handle is not None
        self._files.truncate(self._handle, size)

    def close(self) -> None:
        if self._handle is not None:
            self._files.close(self._handle)
            self._handle = None
            self._watch = None
            self.name = ""
