"""Find how the day files differ from what the index knows, and read the lines that are new."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from zlib import crc32

from everlog.files import Files, Stamp
from everlog.stores.jsonl.day_files import Found, day_names, first_of_open_write, open_names, read_from, scan, torn_at
from everlog.stores.jsonl.index.rows import DISTRUSTED
from everlog.stores.jsonl.index.schema import Index, id_of
from everlog.stores.jsonl.lines import EventLine

PIECE_BYTES = 1 << 20
LATEST = "9999"
_COMPARED_BYTES = 1 << 20
_ID = re.compile(rb'"id":"([^"]{1,64})"')


@dataclass(slots=True)
class Read:
    """The new lines of a day file, from `start` on. It is 0 if the whole file was read. `data` are their bytes, and
    `crc_before` is the CRC-32 of the bytes before them."""

    name: str
    stamp: Stamp
    start: int
    found: list[Found]
    data: bytes
    crc_before: int = 0

    @property
    def end(self) -> int:
        return self.found[-1].end if self.found else self.start

    @property
    def crc(self) -> int:
        """The CRC-32 of the file up to the size in the stamp."""
        return crc32(self.data[: self.stamp.size - self.start], self.crc_before)


KnownFiles = dict[str, tuple[int, Stamp]]


@dataclass(slots=True)
class FileChanges:
    """How the files differ from the index, which had them as in `known`."""

    known: KnownFiles
    read: list[Read] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    appended_only: bool = True

    def __bool__(self) -> bool:
        return bool(self.read or self.gone)

    @property
    def origins(self) -> set[str]:
        return {found.line.origin for read in self.read for found in read.found if found.line is not None}


Repair = Callable[[Read, int | None], None]
"""Flush what is kept, and cut a torn tail if a write is open; see `FileEnds`."""

IsHeld = Callable[[str, int], bool]
"""Return whether this process has a file open, by its name and inode number."""


def find_change(
    index: Index, files: Files, events: Path, *, own: str, repair: Repair | None, is_held: IsHeld, today: str = LATEST
) -> FileChanges:
    """Check every file and read what the index lacks. `repair` is None where nothing can be written."""
    known = index.stamps()
    names = day_names(files, events)
    change = FileChanges(known, gone=[name for name in known if name not in names])
    newest_known = max(known, default="")
    may_be_torn = open_names(names, today)
    for name in names:
        stamp = files.stamp(events / name)
        assert stamp is not None
        start = 0
        file = None
        if name in known:
            file, before = known[name]
            if stamp == before:
                continue
            start = _grown_from(index, files, events / name, file, before, stamp, is_held)
            change.appended_only &= start > 0 or before.size == 0
        elif name < newest_known and name not in may_be_torn:
            change.appended_only = False
        is_lost = None if name not in may_be_torn else partial(_holds_committed, index, None if start else file)
        crc = index.crc(file) if start and file is not None else 0
        change.read.append(_read(files, events, name, start, crc, own=own, repair=repair, is_lost=is_lost))
    change.appended_only &= not change.gone
    if len(change.read) > 1 and any(each.start and each.name != change.read[0].name for each in change.read):
        change.appended_only = False  # two known files grew: no everlog writer does that
    return change


def _grown_from(index: Index, files: Files, path: Path, file: int, before: Stamp, now: Stamp, is_held: IsHeld) -> int:
    """Return where the new lines begin if the file only grew, else 0.

    The inode number of a file that git removed is often reused for the file that replaces it, but not while the file
    is open. So a large file that this process holds open is taken for the one that the index knows; of any other, all
    known bytes are compared.
    """
    if now.inode != before.inode or now.size <= before.size or before.size == 0 or before.changed_ns == DISTRUSTED:
        return 0
    if before.size > _COMPARED_BYTES and is_held(path.name, now.inode):
        return before.size if read_from(files, path, before.size - 1, size=1) == b"\n" else 0
    data = read_from(files, path, size=before.size)
    return before.size if data.endswith(b"\n") and crc32(data) == index.crc(file) else 0


def _holds_committed(index: Index, file: int | None, kept: list[Found], tail: bytes) -> bool:
    """Return whether cutting the tail, so that only `kept` remains, would remove committed lines: then the tail is
    damaged, not torn. `file` is None if all known lines of the file were found at their offsets."""
    stay = {each.line.id for each in kept if each.line is not None}
    if file is not None:
        rows = index.fetch("SELECT id FROM ids JOIN events USING (position) WHERE file = ?", (file,))
        if any(id_of(key) not in stay for (key,) in rows):
            return True
    # The index does not list the file of a purged line: it is found by its id, if that is readable.
    named = {found.decode("utf-8", "replace") for found in _ID.findall(tail)}
    return any(index.knows(line_id) for line_id in named - stay)


IsLost = Callable[[list[Found], bytes], bool]
"""Return whether a tail that looks torn holds committed lines. None for a file whose end is never cut."""


def _never(kept: list[Found], tail: bytes) -> bool:
    return False


def _read(
    files: Files,
    events: Path,
    name: str,
    start: int,
    crc: int,
    *,
    own: str,
    repair: Repair | None,
    is_lost: IsLost | None,
) -> Read:
    path = events / name
    data = read_from(files, path, start)
    found = list(scan(data, start))
    read = Read(name, Stamp(0, 0, 0), start, found, data, crc)
    cut = None
    if is_lost is not None:
        cut = torn_at(data, start, found, own=own)
        if cut is not None:
            kept = [each for each in found if each.at < cut]
            if is_lost(kept, data[cut - start :]):
                cut = None
            else:
                read.found = kept
        if repair is not None:
            repair(read, cut)
    stamp = files.stamp(path)
    assert stamp is not None
    # A tail that stays until the next write is not recorded, so that the next check finds it again.
    read.stamp = stamp if cut is None else stamp._replace(size=cut)
    return read


def only_appended_events(change: FileChanges) -> FileChanges:
    """Return the complete writes of events that were appended, up to anything else: all that may be recorded while
    another process writes."""
    plain = FileChanges(change.known)
    if change.gone or not change.appended_only:
        return plain
    for read in change.read:
        events = list(takewhile(lambda each: isinstance(each.line, EventLine), read.found))
        events = events[: first_of_open_write(events)]
        if events and events[-1].end > read.start + len(read.data):
            events.pop()  # its newline is not there yet
        if events:
            size = events[-1].end
            plain.read.append(
                Read(read.name, read.stamp._replace(size=size), read.start, events, read.data, read.crc_before)
            )
        if len(events) < len(read.found):
            break
    return plain


def last_write(read: Read) -> int:
    """Return where the last complete write begins."""
    if not read.found:
        return read.start
    last = read.found[-1]
    if last.batch is None:
        return last.at
    first = max(len(read.found) - last.batch[0], 0)
    return read.found[first].at


def read_whole(files: Files, events: Path, *, own: str, repair: Repair | None, today: str = LATEST) -> Iterable[Read]:
    """Read every day file in order, in pieces: a whole day of decoded lines would need a multiple of its size."""
    names = day_names(files, events)
    may_be_torn = open_names(names, today)
    for name in names:
        at = crc = 0
        for piece in _pieces(files, events, name):
            piece.crc_before = crc
            yield piece
            at, crc = piece.end, crc32(piece.data, crc)
        is_lost = _never if name in may_be_torn else None
        yield _read(files, events, name, at, crc, own=own, repair=repair, is_lost=is_lost)


def _pieces(files: Files, events: Path, name: str) -> Iterator[Read]:
    """Read all of a file except its end, which may be torn. A piece ends at the end of a write."""
    stamp = files.stamp(events / name)
    assert stamp is not None
    at, want = 0, PIECE_BYTES
    while at + want < stamp.size:
        data = read_from(files, events / name, at, size=want)
        found = list(scan(data[: data.rfind(b"\n") + 1], at))
        found = found[: first_of_open_write(found)]
        if found:
            yield Read(name, stamp, at, found, data[: found[-1].end - at])
            at, want = found[-1].end, PIECE_BYTES
        else:
            want *= 2  # the write is larger than a piece
