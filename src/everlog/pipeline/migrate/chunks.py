"""Files of foreign history, divided into chunks that are read in parallel and give the same events in every run.

A chunk is a file, or some whole lines of a large one. Its bounds follow from the file's size alone. What a line needs
from the lines above it (a clock value, a time) is passed from chunk to chunk once each has been read: the survey of a
chunk says how it moves the clock, whatever value it starts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.errors import BadFile, NotFound, RejectedEvent
from everlog.files import DiskFiles, Files, replace_file_by
from everlog.transfer.exporting import HEAD
from everlog.transfer.fill import Filler
from everlog.transfer.foreign import Wrong
from everlog.transfer.import_pass import ImportPass, Options, ReadEvent, Seen, Source
from everlog.transfer.importing import check
from everlog.transfer.lines import is_document
from everlog.transfer.problems import Problem

MANIFEST = "manifest.json"  # of a bulk export: it describes the files, and holds no events
CHUNK_BYTES = 64 * 1024 * 1024
LINES, ROWS = (".jsonl", ".ndjson", ".json"), (".csv",)
_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)
_LOOK = 64 * 1024


class Chunk(msgspec.Struct, frozen=True):
    """A range of bytes of a file, from the first line that begins in it to the end of the last such line."""

    number: int
    name: str  # below the folder that was named: the same on every machine
    path: str
    start: int
    end: int


class Start(msgspec.Struct, frozen=True):
    """The clock and the time above a chunk."""

    lamport: int = 0
    moment: datetime = _BEFORE_ALL


class Surveyed(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk holds."""

    number: int
    events: int
    digest: str  # over its bytes
    lamport: int  # the clock at its end, if it began at 0
    counted: int  # events without a clock value
    moment: datetime | None  # the last time in it
    repeated: int
    new_ids: int
    shapes: Mapping[str, int]
    types: Mapping[str, int]
    not_events: Mapping[str, int]
    problems: Sequence[Problem]
    bad: int  # lines that are wrong

    def end(self, start: Start) -> Start:
        """Return the start of the next chunk: each event without a clock value adds one, the others may raise it."""
        return Start(max(start.lamport + self.counted, self.lamport), self.moment or start.moment)


def chunks_of(paths: Iterable[Path], *, mapped: bool, chunk_bytes: int = CHUNK_BYTES) -> list[Chunk]:
    """Return the chunks of files, and of all files below folders, in the order of their events."""
    files, found = DiskFiles(), list[Chunk]()
    for path in paths:
        for file, name in _files_of(path, (*LINES, *ROWS) if mapped else LINES):
            size = _size(files, file)
            step = chunk_bytes if size > chunk_bytes and _is_lines(files, file) else max(size, 1)
            for start in range(0, size, step):
                found.append(Chunk(len(found), name, str(file), start, min(start + step, size)))
    if not found:
        raise NotFound(
            f"there are no events in {', '.join(map(str, paths))}",
            why=f"files that end in {', '.join((*LINES, *ROWS) if mapped else LINES)} were looked for",
            hint="name files, or a folder of them" + ("" if mapped else "; CSV needs --mapping"),
        )
    return found


def survey(chunk: Chunk, options: Options, catalog: Catalog, aside: Path | None, *, now_ms: int) -> Surveyed:
    """Read a chunk once: return what is in it, what is wrong with it, and how it moves the clock.

    What is wrong is written into the folder `aside`: the lines, and their numbers for `items`.
    """
    with _opened(chunk) as source, _pass(chunk, source, options, Start(), go_on=aside is not None) as reading:
        reading.now_ms = now_ms
        for item in reading.items():
            try:
                check(item, catalog, options, now_ms=now_ms)
            except Wrong as wrong:
                reading.refuse_event(item, str(wrong), "bad_line")
            except RejectedEvent as error:
                reading.refuse_event(item, str(error), error.code)
        if aside is not None:
            replace_file_by(DiskFiles(), aside_of(aside, chunk.number), reading.seen.aside())
            numbers = msgspec.msgpack.encode(sorted(reading.bad))
            replace_file_by(DiskFiles(), _bad_of(aside, chunk.number), [numbers])
        filler = reading.filler
        assert filler is not None
        return Surveyed(
            number=chunk.number,
            events=reading.events,
            digest=reading.bytes.hexdigest(),
            lamport=filler.lamport,
            counted=filler.counted,
            moment=None if filler.moment is _BEFORE_ALL else filler.moment,
            repeated=reading.repeated,
            new_ids=reading.new_ids,
            shapes=dict(+reading.shapes),
            types=dict(+reading.types),
            not_events=dict(reading.not_events),
            problems=reading.problems.found,
            bad=len(reading.bad),
        )


def learn(chunk: Chunk, options: Options, start: Start, *, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield the ids of a chunk that are replaced, with the new ones."""
    with _opened(chunk) as source, _pass(chunk, source, options, start) as reading:
        reading.now_ms = now_ms
        reading.learn()
        yield from reading.seen.replaced()


def items(
    chunk: Chunk, options: Options, start: Start, *, now_ms: int = 0, learnt: str = "", aside: Path | None = None
) -> Iterator[ReadEvent]:
    """Yield the events of a chunk that was surveyed, without the lines that were set aside then."""
    bad: set[int] = set()
    if aside is not None:
        bad = msgspec.msgpack.decode(DiskFiles().read_all(_bad_of(aside, chunk.number)), type=set[int])
    with _opened(chunk) as source, _pass(chunk, source, options, start, go_on=True) as reading:
        reading.now_ms = now_ms
        reading.replaced = Seen.of(learnt) if learnt else None
        yield from (item for item in reading.items() if item.at.number not in bad)
        if new := reading.bad.difference(bad):
            raise BadFile(
                f"{chunk.name} has changed while it was read",
                why=f"value {min(new):,} of it is wrong, and was not",
                hint="leave it alone and run again",
            )


def aside_of(folder: Path, number: int) -> Path:
    """Return the file with the lines of a chunk that were set aside."""
    return folder / f"{number}.lines"


def _bad_of(folder: Path, number: int) -> Path:
    return folder / f"{number}.bad"


@contextmanager
def _pass(
    chunk: Chunk, source: Source, options: Options, start: Start, *, go_on: bool = False
) -> Iterator[ImportPass]:
    # Each chunk is a chain. Without a namespace it is named by its first event, so by nothing of this machine.
    namespace = f"{options.namespace} {chunk.name} {chunk.start}" if options.namespace else ""
    filler = Filler(namespace, lamport=start.lamport, moment=start.moment)
    with closing(ImportPass([source], options, filler=filler, go_on=go_on)) as reading:
        yield reading


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
    """Return True if the lines of a file can be read apart: not in CSV, in an array, in a packed file, nor in an
    export of everlog, whose last line counts all others."""
    handle = files.open(path)
    try:
        head = files.read(handle, _LOOK, at=0).lstrip(b"\xef\xbb\xbf \t\r\n")
    finally:
        files.close(handle)
    return head.startswith(b"{") and not is_document(head) and not head.startswith(b'{"' + HEAD.encode())


@contextmanager
def _opened(chunk: Chunk) -> Iterator[Source]:
    """Open a chunk as if it were a file: from the first line that begins in it to the end of the last."""
    files = DiskFiles()
    try:
        handle = files.open(Path(chunk.path))
    except OSError as error:
        raise NotFound(
            f"{chunk.path} cannot be read",
            why=error.strerror or str(error),
            hint="every worker must see the files under the same path",
        ) from error
    try:
        size = files.size(handle)

        def line_start(at: int) -> int:
            """Return the start of the first line at or after a byte."""
            look = at - 1
            while 0 < at < size:
                found = files.read(handle, _LOOK, at=look)
                if not found:
                    return size
                if (end := found.find(b"\n")) >= 0:
                    return look + end + 1
                look += len(found)
            return min(at, size)

        start, end = line_start(chunk.start), line_start(chunk.end)

        def read(wanted: int, at: int) -> bytes:
            return files.read(handle, min(wanted, end - start - at), at=start + at) if at < end - start else b""

        name = f"{chunk.name}+{start}" if start else chunk.name
        yield Source(name, max(end - start, 0), read)
    finally:
        files.close(handle)


def packed(chunks: Sequence[Chunk], *, tasks: int, task_bytes: int = CHUNK_BYTES) -> list[list[Chunk]]:
    """Divide chunks among about so many tasks, or more: each gets neighbours, of a limited size together."""
    size = sum(chunk.end - chunk.start for chunk in chunks)
    limit = max(min(task_bytes, -(-size // max(tasks, 1))), 1)
    shares: list[list[Chunk]] = []
    room = 0
    for chunk in chunks:
        if room <= 0:
            shares.append([])
            room = limit
        shares[-1].append(chunk)
        room -= chunk.end - chunk.start
    return shares
