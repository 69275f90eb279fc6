"""Text into a log: everything is read and rehearsed first, and only then written, batch by batch.

Two passes over the same bytes, neither of which holds more than a batch. The first reads every line, fills in what
foreign events lack, asks all that `Log.admit` would ask, and rehearses each batch against the log in a write that is
undone: so it names every line that would be refused, be it for itself or for what is in the log. The second writes. A
file that changed between them is noticed. Stopped anywhere, the same import again ends at the same log: what is there
already is left out.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from everlog.core.clock import JUMP_MAX, LAMPORT_MAX, refuse_clock_jump
from everlog.core.codec import event_from_object
from everlog.core.counted import counted
from everlog.core.event import Event
from everlog.core.ids import EventId
from everlog.cutover import cloudevents, exporting
from everlog.cutover.fill import Filler, said_by
from everlog.cutover.lines import Found, Read, values
from everlog.cutover.mapping import RowMapping, rows
from everlog.cutover.shapes import Foreign, NotAnEvent, Wrong, foreign_of
from everlog.cutover.survey import batches
from everlog.errors import BadFile, Conflict, NewerFormat, NotCanonical, RejectedEvent
from everlog.log.admission import refuse_unacceptable
from everlog.log.log import Log
from everlog.stores.contract import Sealed, Writer, seal

BATCH = 500
PROBLEMS_MAX = 100


@dataclass(frozen=True)
class Source:
    """A file to be imported: its name for messages, and how to read it."""

    name: str
    size: int
    read: Read


@dataclass(frozen=True)
class Options:
    namespace: str = ""
    keep_unknown_types: bool = True
    trust_clock: bool = False
    mapping: RowMapping | None = None  # the files are CSV, and this says what their rows are


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import found and did. The digest is over the header hashes of the events in the files, in order."""

    events: int
    new: int
    known: int
    repeated: int
    digest: str
    origin: str
    shapes: dict[str, int]
    not_events: dict[str, int]
    dry_run: bool


def import_files(
    log: Log,
    sources: Sequence[Source],
    options: Options | None = None,
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Imported:
    """Import files in order, as one. `progress` is told bytes out of twice their size."""
    chosen = options or Options()
    size = sum(source.size for source in sources)

    def reading(number: int) -> Reading:
        return Reading(sources, chosen, lambda done: progress(number * size + done))

    first = reading(0)
    new = _rehearse(log, first, now_ms=now_us() // 1000)
    if not dry_run:
        second = reading(1)
        jump_max = LAMPORT_MAX if chosen.trust_clock else JUMP_MAX
        new = sum(
            len(log.admit([item.sealed.event for item in batch], jump_max=jump_max))
            for batch in batches(second.items(), BATCH)
        )
        _refuse_changed(first, second)
    return Imported(
        events=first.events,
        new=new,
        known=first.events - new,
        repeated=first.repeated,
        digest=first.digest.hexdigest(),
        origin=first.origin,
        shapes=dict(first.shapes),
        not_events=dict(first.not_events),
        dry_run=dry_run,
    )


@dataclass(frozen=True)
class Item:
    where: str
    sealed: Sealed
    said: bytes  # what stood there, as 16 bytes: the same wherever the same line stands


@dataclass
class Reading:
    """One pass over the files. What it found is known when `items` has ended."""

    sources: Sequence[Source]
    options: Options
    progress: Callable[[int], None] = lambda done: None
    filler: Filler | None = None  # to go on from what stood in earlier files
    problems: list[str] = field(default_factory=list)
    events: int = 0
    repeated: int = 0
    origin: str = ""
    shapes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    not_events: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256()
        self.bytes = hashlib.sha256()
        self._read = 0
        self.filler = self.filler or Filler(self.options.namespace)
        self._ids: dict[EventId, bytes] = {}
        self._foreign: set[bytes] = set()
        self._part = _Part()

    def items(self) -> Iterator[Item]:
        """The events in order, each once; what is wrong is put down in `problems`."""
        for source in self.sources:
            self._part = _Part()
            line = 1
            for line, value, problem in self._values(source):
                where = f"{source.name}:{line}"
                try:
                    if problem:
                        raise Wrong(problem)
                    item = self._item(where, value)
                except Wrong as wrong:
                    self.tell(f"{where}: {wrong}")
                except RejectedEvent as error:
                    self.tell(f"{where}: {error}")
                else:
                    if item is not None:
                        yield item
                if len(self.problems) >= PROBLEMS_MAX:
                    return
            if self._part.open:
                self.tell(f"{source.name}:{line}: the file is cut off: its last line, with the count, is missing")

    def _values(self, source: Source) -> Iterator[Found]:
        if self.options.mapping is not None:
            return rows(source.read, self.options.mapping, seen=self._saw)
        return values(source.read, seen=self._saw)

    def _saw(self, chunk: bytes) -> None:
        self.bytes.update(chunk)
        self._read += len(chunk)
        self.progress(self._read)

    def tell(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def _item(self, where: str, value: Any) -> Item | None:
        """The event of a value, or None if it is none or was there before."""
        if not isinstance(value, dict):
            raise Wrong("it is not an object")
        if self._part.frame(value):
            return None
        try:
            shape, sealed, said = self._sealed(value)
        except NotAnEvent as other:
            self.not_events[str(other)] += 1
            return None
        except _Repeated:
            self.repeated += 1
            return None
        self._part.saw(sealed.hash)
        before = self._ids.get(sealed.event.id)
        if before is not None:
            if before != sealed.hash:
                raise Wrong(f"the id {sealed.event.id} stands above with other content")
            self.repeated += 1
            return None
        self._ids[sealed.event.id] = sealed.hash
        self.events += 1
        self.shapes[shape] += 1
        self.types[sealed.event.type] += 1
        self.digest.update(sealed.hash)
        return Item(where, sealed, said)

    def _sealed(self, value: dict[str, Any]) -> tuple[str, Sealed, bytes]:
        if self.options.mapping is not None:
            return "csv", *self._filled(self.options.mapping.foreign(value), value)
        if "commitment" in value and "origin_seq" in value:
            try:
                return _ours(seal(event_from_object(value)))
            except NotCanonical as error:
                raise Wrong(error.reason if error.path == "$" else f"{error.path}: {error.reason}") from None
        if "specversion" in value:
            if cloudevents.is_ours(value):
                return _ours(seal(cloudevents.event_of(value)))
            foreign, shape = cloudevents.foreign_of(value), "cloudevents"
        else:
            shape, foreign = foreign_of(value)
        return shape, *self._filled(foreign, value)

    def _filled(self, foreign: Foreign, value: dict[str, Any]) -> tuple[Sealed, bytes]:
        said = said_by(value)
        key = hashlib.sha256(said).digest()[:16]
        if key in self._foreign:
            raise _Repeated
        self._foreign.add(key)
        assert self.filler is not None
        sealed = self.filler.fill(foreign, said)
        self.origin = self.filler.origin
        return sealed, key


def _ours(sealed: Sealed) -> tuple[str, Sealed, bytes]:
    return "everlog", sealed, sealed.hash[:16]


class _Repeated(Exception):
    """A line that stands above already, as it is: a merge leaves such lines behind."""


class _Part:
    """The frame of an export of ours: its first line and its last, which counts what stands between them."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.open = False
        self._count = 0
        self._digest = hashlib.sha256()

    def saw(self, digest: bytes) -> None:
        self._count += 1
        self._digest.update(digest)

    def frame(self, value: Mapping[str, Any]) -> bool:
        """True if the value is part of the frame; Wrong if it does not fit what stood between."""
        if isinstance(head := value.get(exporting.HEAD), dict):
            if self.open:
                raise Wrong("an export begins here before the one above it has ended")
            format = head.get("format")
            if not isinstance(format, int) or format < 1:
                raise Wrong("the first line of the export does not say its format")
            if format > exporting.FORMAT:
                raise NewerFormat(
                    f"the export has format {format}, this everlog reads up to {exporting.FORMAT}",
                    why="it was written by a newer everlog",
                    hint="upgrade everlog; the file was not touched",
                )
            self._begin()
            self.open = True
            return True
        end = value.get(exporting.END) or (cloudevents.end_of(value) if "specversion" in value else None)
        if not isinstance(end, dict):
            return False
        if (end.get("count"), end.get("digest")) != (self._count, self._digest.hexdigest()):
            above = counted(self._count, "event stands", "events stand")
            raise Wrong(f"{above} above, and the export says that it has {end.get('count')}")
        self._begin()
        return True


class _Undo(Exception):
    """Ends a rehearsal: the write that it raises in is undone."""


def _rehearse(log: Log, reading: Reading, *, now_ms: int) -> int:
    """How many events would be new. What would be refused is named with its line, and nothing is written."""
    clock, new = log.store.clock(), 0
    for batch in batches(reading.items(), BATCH):
        good = []
        for item in batch:
            try:
                _check(item.sealed.event, log, reading.options, clock=clock, now_ms=now_ms)
                good.append(item)
            except (Wrong, RejectedEvent) as wrong:
                reading.tell(f"{item.where}: {wrong}")
            clock = max(clock, item.sealed.event.lamport)
        try:
            with log.store.write() as writer:
                fresh = _try(writer, good, reading, own=log.identity.origin)
                raise _Undo
        except _Undo:
            new += fresh
    refuse(reading.problems, reading.sources)
    return new


def _check(event: Event, log: Log, options: Options, *, clock: int, now_ms: int) -> None:
    """Refuse an event for what it is."""
    refuse_unacceptable(event, now_ms=now_ms)
    if not options.keep_unknown_types and not log.catalog.knows(event.type):
        raise Wrong(f"the type {event.type} is not in this log's catalog")
    if not options.trust_clock:
        refuse_clock_jump(clock, event.lamport)


def _try(writer: Writer, batch: list[Item], reading: Reading, *, own: str) -> int:
    """Refuse events for what is in the log; how many are new."""
    try:
        with writer.attempt():
            recorded = writer.append([item.sealed for item in batch])
            if not any(new.event.origin == own for new in recorded):
                return len(recorded)
            raise _Undo
    except (Conflict, _Undo):
        fresh = 0  # something is wrong with some of them: one by one, to name the lines
    for item in batch:
        try:
            with writer.attempt():
                new = len(writer.append([item.sealed]))
        except Conflict as error:
            reading.tell(f"{item.where}: {error}")
            continue
        if new and item.sealed.event.origin == own:
            reading.tell(f"{item.where}: it claims to be of this log, which never recorded it")
        fresh += new
    return fresh


def _refuse_changed(before: Reading, after: Reading) -> None:
    if before.bytes.digest() != after.bytes.digest():
        raise BadFile(
            f"{after.sources[0].name} changed while it was imported",
            why="what was checked is not what was read afterwards",
            hint="import it again: what is in the log already is left out",
        )


def refuse(problems: list[str], sources: Sequence[Source]) -> None:
    if problems:
        more = "or more " if len(problems) >= PROBLEMS_MAX else ""
        names = ", ".join(source.name for source in sources)[:200]
        raise BadFile(
            f"{names} cannot be imported: {counted(len(problems), 'line is', f'{more}lines are')} wrong",
            why="; ".join(problems[:20]),
            hint="nothing was imported and no file was changed; correct these lines and import again",
            problems=problems,
        )
