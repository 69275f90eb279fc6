"""Files of foreign history, cut into pieces that are read side by side, and give the same events at every run.

A piece is a file, or a stretch of whole lines of a large one. Its bounds follow from the file's size alone. What a
line needs of the lines above it (a clock value, a time) is handed on from piece to piece once each has been read: a
piece tells how it moves the clock, whatever it begins at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from everlog.cutover.exporting import HEAD
from everlog.cutover.fill import Filler
from everlog.cutover.importing import PROBLEMS_MAX, Item, Options, Reading, Source
from everlog.errors import BadFile, NotFound, RejectedEvent
from everlog.files import DiskFiles, Files
from everlog.log.admission import refuse_unacceptable

MANIFEST = "manifest.json"  # of a bulk export: it is about the files, and none of them
PIECE_BYTES = 64 * 1024 * 1024
LINES, ROWS = (".jsonl", ".ndjson", ".json"), (".csv",)
_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)
_LOOK = 64 * 1024


class Piece(msgspec.Struct, frozen=True):
    """A stretch of a file. It begins with the first line that begins in it, and ends with the last such line."""

    number: int
    name: str  # below the folder that was named: the same on every machine
    path: str
    start: int
    end: int


class Start(msgspec.Struct, frozen=True):
    """What stood above a piece."""

    lamport: int = 0
    moment: datetime = _BEFORE_ALL


class Surveyed(msgspec.Struct, frozen=True, kw_only=True):
    """What a piece holds."""

    number: int
    events: int
    digest: str  # over its bytes
    lamport: int  # the clock at its end, if it began at 0
    counted: int  # events that had no clock value of their own
    moment: datetime | None  # the last time in it
    shapes: Mapping[str, int]
    types: Mapping[str, int]
    not_events: Mapping[str, int]
    problems: Sequence[str]

    def end(self, start: Start) -> Start:
        """What stands above the next piece: every event without a clock value adds one, the others may raise it."""
        return Start(max(start.lamport + self.counted, self.lamport), self.moment or start.moment)


def pieces_of(paths: Iterable[Path], *, csv: bool, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of files and of all files below folders, in the order in which their events are meant."""
    files, found = DiskFiles(), list[Piece]()
    for path in paths:
        for file, name in _files_of(path, ROWS if csv else LINES):
            size = _size(files, file)
            step = piece_bytes if not csv and size > piece_bytes and _is_lines(files, file) else max(size, 1)
            for start in range(0, size, step):
                found.append(Piece(len(found), name, str(file), start, min(start + step, size)))
    if not found:
        raise NotFound(
            f"there are no events in {', '.join(map(str, paths))}",
            why=f"files that end in {', '.join(ROWS if csv else LINES)} were looked for",
            hint="name files, or a folder of them" + ("" if csv else "; CSV needs --mapping"),
        )
    return found


def survey(piece: Piece, options: Options, *, now_ms: int) -> Surveyed:
    """Read a piece once: what is in it, what is wrong with it, and what it does to the clock."""
    reading, filler = _reading(piece, options, Start())
    with _opened(piece) as source:
        reading.sources = [source]
        for item in reading.items():
            _refuse(reading, item, now_ms)
    return Surveyed(
        number=piece.number,
        events=reading.events,
        digest=reading.bytes.hexdigest(),
        lamport=filler.lamport,
        counted=filler.counted,
        moment=None if filler.moment is _BEFORE_ALL else filler.moment,
        shapes=dict(reading.shapes),
        types=dict(reading.types),
        not_events=dict(reading.not_events),
        problems=list(reading.problems[:PROBLEMS_MAX]),
    )


def items(piece: Piece, options: Options, start: Start) -> Iterator[Item]:
    """The events of a piece that was surveyed and found good."""
    reading, _ = _reading(piece, options, start)
    with _opened(piece) as source:
        reading.sources = [source]
        yield from reading.items()
    if reading.problems:
        raise BadFile(
            f"{piece.name} has changed while it was read",
            why=reading.problems[0],
            hint="leave it alone and run again",
        )


def _reading(piece: Piece, options: Options, start: Start) -> tuple[Reading, Filler]:
    # A piece is a chain of its own. Without a name it is named by its first event, and so by nothing of this machine.
    namespace = f"{options.namespace} {piece.name} {piece.start}" if options.namespace else ""
    filler = Filler(namespace, lamport=start.lamport, moment=start.moment)
    return Reading([], options, filler=filler), filler


def _refuse(reading: Reading, item: Item, now_ms: int) -> None:
    try:
        refuse_unacceptable(item.sealed.event, now_ms=now_ms)
    except RejectedEvent as error:
        reading.tell(f"{item.where}: {error}")


def _files_of(path: Path, endings: Sequence[str]) -> Iterator[tuple[Path, str]]:
    if not path.is_dir():
        yield path, path.name
        return
    for file in sorted(path.rglob("*")):
        if file.suffix.lower() in endings and file.name != MANIFEST and file.is_file():
            yield file, file.relative_to(path).as_posix()


def _size(files: Files, path: Path) -> int:
    stamp = files.stamp(path)
    if stamp is None:
        raise NotFound(f"{path} cannot be read", why="it is not there", hint="check its name")
    return stamp.size


def _is_lines(files: Files, path: Path) -> bool:
    """False for one array and for an export of ours, whose last line counts all of it: those are read as a whole."""
    handle = files.open(path)
    try:
        head = files.read(handle, _LOOK, at=0).lstrip(b"\xef\xbb\xbf \t\r\n")
    finally:
        files.close(handle)
    return not head.startswith((b"[", b'{"' + HEAD.encode()))


@contextmanager
def _opened(piece: Piece) -> Iterator[Source]:
    """A piece as a file of its own: from the first line that begins in it to the end of the last."""
    files = DiskFiles()
    try:
        handle = files.open(Path(piece.path))
    except OSError as error:
        raise NotFound(
            f"{piece.path} cannot be read",
            why=error.strerror or str(error),
            hint="every worker must see the files under the same path",
        ) from error
    try:
        size = files.size(handle)

        def line_start(at: int) -> int:
            """The first line that begins at or after a byte."""
            look = at - 1
            while 0 < at < size:
                chunk = files.read(handle, _LOOK, at=look)
                if not chunk:
                    return size
                if (end := chunk.find(b"\n")) >= 0:
                    return look + end + 1
                look += len(chunk)
            return min(at, size)

        start, end = line_start(piece.start), line_start(piece.end)

        def read(wanted: int, at: int) -> bytes:
            return files.read(handle, min(wanted, end - start - at), at=start + at) if at < end - start else b""

        name = f"{piece.name}+{start}" if start else piece.name
        yield Source(name, max(end - start, 0), read)
    finally:
        files.close(handle)
