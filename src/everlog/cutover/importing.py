"""Text into a log: everything is read and rehearsed first, and only then written, batch by batch.

Two passes over the same bytes, neither of which holds more than a batch; a third one before them if ids are replaced,
because a line may refer to an id that stands below it. The first reads every line, fills in what
foreign events lack, asks all that `Log.admit` would ask, and rehearses each batch against the log in a write that is
undone: so it names every line that would be refused, be it for itself or for what is in the log. The second writes. A
file that changed between them is noticed. Stopped anywhere, the same import again ends at the same log: what is there
already is left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from everlog.core.clock import JUMP_MAX, LAMPORT_MAX, refuse_clock_jump
from everlog.core.codec import event_from_object
from everlog.core.counted import counted
from everlog.core.event import microseconds
from everlog.core.ids import AHEAD_MS_MAX, EventId, id_time_ms
from everlog.cutover import cloudevents, exporting, kata
from everlog.cutover.fill import Filler, said_by
from everlog.cutover.lines import Found, Read, values
from everlog.cutover.mapping import RowMapping, rows
from everlog.cutover.seen import Seen
from everlog.cutover.shapes import Context, Foreign, NotAnEvent, Wrong, foreign_of, renamed, short_text
from everlog.cutover.survey import batches
from everlog.errors import BadFile, Conflict, NewerFormat, NotCanonical, RejectedEvent
from everlog.log.admission import refuse_secret, refuse_unacceptable
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
    new_ids: bool = False  # replace ids that are no ULIDs, or that claim a time in the future


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
    origins: int = 0  # how many chains the events of spec-kitty files are: one for each file
    new_ids: int = 0  # events that got a new id
    set_aside: int = 0  # lines that were set aside
    problems: list[str] = []  # what is wrong with them, of the first hundred


SetAside = Callable[[Iterator[bytes]], object]
"""Writes the lines that were set aside, each as a JSON object, before anything is recorded."""


def import_files(
    log: Log,
    sources: Sequence[Source],
    options: Options | None = None,
    *,
    dry_run: bool = False,
    set_aside: SetAside | None = None,
    progress: Callable[[int], None] = lambda done: None,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Imported:
    """Import files in order, as one. `progress` is told bytes out of `passes` times their size.

    With `set_aside`, a line that is wrong does not keep the others from being recorded.
    """
    chosen = options or Options()
    size = sum(source.size for source in sources)
    now_ms = now_us() // 1000
    passed = 0

    def reading(replaced: Seen | None = None) -> Reading:
        nonlocal passed
        before, passed = passed * size, passed + 1
        made = Reading(sources, chosen, lambda done: progress(before + done), go_on=set_aside is not None)
        made.now_ms, made.known, made.replaced = now_ms, lambda id: log.get(id) is not None, replaced
        return made

    with ExitStack() as open_readings:
        learnt = None
        if chosen.new_ids:
            learner = open_readings.enter_context(closing(reading()))
            learner.learn()
            learnt = learner.seen
        first = open_readings.enter_context(closing(reading(learnt)))
        new = _rehearse(log, first)
        if not dry_run:
            if first.bad and set_aside is not None:
                set_aside(first.seen.aside())
            second = open_readings.enter_context(closing(reading(learnt)))
            jump_max = LAMPORT_MAX if chosen.trust_clock else JUMP_MAX
            items = (item for item in second.items() if item.place.number not in first.bad)
            new = sum(
                len(log.admit_sealed([item.sealed for item in batch], jump_max=jump_max))
                for batch in batches(items, BATCH)
            )
            _refuse_changed(first, second)
        return Imported(
            events=first.events,
            new=new,
            known=first.events - new,
            repeated=first.repeated,
            digest=first.digest.hexdigest(),
            origin=first.origin,
            shapes=dict(+first.shapes),
            not_events=dict(first.not_events),
            dry_run=dry_run,
            origins=first.origins,
            new_ids=first.new_ids,
            set_aside=len(first.bad),
            problems=first.problems,
        )


def passes(options: Options, *, dry_run: bool) -> int:
    """Return how often the files are read."""
    return 1 + options.new_ids + (not dry_run)


@dataclass(frozen=True)
class Item:
    where: str
    sealed: Sealed
    said: bytes  # what stood there, as 16 bytes: the same wherever the same line stands
    shape: str
    place: Place


@dataclass(frozen=True)
class Place:
    """A line of a file, with its text for the one who corrects it."""

    number: int  # among all values of all files
    file: str
    line: int
    raw: bytes

    def set_aside(self, reason: str, code: str) -> bytes:
        found: dict[str, Any] = {"file": self.file, "line": self.line, "reason": reason, "code": code}
        try:
            found["text"] = self.raw.decode()
        except UnicodeDecodeError:
            found["base64"] = b64encode(self.raw).decode()
        return json.dumps(found, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"


@dataclass
class Reading:
    """One pass over the files. What it found is known when `items` has ended."""

    sources: Sequence[Source]
    options: Options
    progress: Callable[[int], None] = lambda done: None
    filler: Filler | None = None  # to go on from what stood in earlier files
    go_on: bool = False  # however many lines are wrong
    problems: list[str] = field(default_factory=list)
    bad: set[int] = field(default_factory=set)
    events: int = 0
    repeated: int = 0
    new_ids: int = 0
    origin: str = ""
    origins: int = 0  # files that have chains of their own
    shapes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    not_events: Counter[str] = field(default_factory=Counter)
    now_ms: int = 0
    known: Callable[[EventId], bool] = lambda id: False
    replaced: Seen | None = None

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256()  # of the events that can be recorded
        self.bytes = hashlib.sha256()
        self.seen = Seen()
        self._read = 0
        self._values_seen = 0
        self.filler = self.filler or Filler(self.options.namespace)
        self._learning = self._begun = False
        self._part, self._context = _Part(), Context()

    def close(self) -> None:
        self.seen.close()

    def learn(self) -> None:
        """Find out which ids are replaced, and by what: a line may refer to one that stands below it."""
        self._learning = True
        for _ in self.items():
            pass

    def items(self) -> Iterator[Item]:
        """The events in order, each once; what is wrong is put down in `problems`."""
        for source in self.sources:
            self._part, self._begun = _Part(), False
            self._context = Context(self.options.new_ids, find_mission=partial(_mission_in, source))
            place = Place(self._values_seen, source.name, 1, b"")
            for line, value, problem, raw in self._values(source):
                self._values_seen += 1
                place = Place(self._values_seen, source.name, line, raw)
                if item := self._tried(place, partial(self._item, place, value, problem)):
                    yield item
                if len(self.problems) >= PROBLEMS_MAX and not self.go_on:
                    return
            for value, make in kata.left_over(self._context):
                self._values_seen += 1
                place = Place(self._values_seen, source.name, place.line, said_by(value))
                if item := self._tried(place, partial(self._left_over, place, value, make)):
                    yield item
            if self._part.open:
                self._values_seen += 1
                end = Place(self._values_seen, source.name, place.line, b"")
                self.refuse(end, "the file is cut off: its last line, with the count, is missing", "cut_off")

    def _tried(self, place: Place, make: Callable[[], Item | None]) -> Item | None:
        """The event of a line, or None if there is none; what is wrong with it is put down."""
        try:
            return make()
        except NotAnEvent as other:
            if str(other):
                self.not_events[str(other)] += 1
        except _Repeated:
            self.repeated += 1
        except _Learnt:
            pass
        except Wrong as wrong:
            self.refuse(place, str(wrong), "bad_line")
        except RejectedEvent as error:
            self.refuse(place, str(error), error.code)
        return None

    def _left_over(self, place: Place, value: dict[str, Any], make: Callable[[], Foreign]) -> Item | None:
        return self._taken(place, *self._filled("kata", make(), value))

    def _values(self, source: Source) -> Iterator[Found]:
        if self.options.mapping is not None:
            return rows(source.read, self.options.mapping, seen=self._saw)
        return values(source.read, seen=self._saw, past_long_lines=self.go_on)

    def _saw(self, chunk: bytes) -> None:
        self.bytes.update(chunk)
        self._read += len(chunk)
        self.progress(self._read)

    def refuse(self, place: Place, reason: str, code: str) -> None:
        """Put down what is wrong with a line."""
        if place.number in self.bad or self._learning:
            return
        self.bad.add(place.number)
        self.tell(f"{place.file}:{place.line}: {reason}")
        if self.go_on:
            self.seen.set_aside(place.number, place.set_aside(reason, code))

    def refuse_event(self, item: Item, reason: str, code: str) -> None:
        """Put down what is wrong with an event that was read; it is not counted as one."""
        self.events -= 1
        self.shapes[item.shape] -= 1
        self.types[item.sealed.event.type] -= 1
        self.refuse(item.place, reason, code)

    def tell(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def _item(self, place: Place, value: Any, problem: str) -> Item | None:
        """The event of a value, or None if it is none or was there before."""
        if problem:
            raise Wrong(problem)
        if not isinstance(value, dict):
            raise Wrong("it is not an object")
        if self._part.frame(value):
            return None
        return self._taken(place, *self._sealed(value))

    def _taken(self, place: Place, shape: str, sealed: Sealed, said: bytes) -> Item | None:
        self._part.saw(sealed.hash)
        before = self.seen.id(sealed.event.id, sealed.hash)
        if before is not None:
            if before != sealed.hash:
                raise Wrong(f"the id {sealed.event.id} stands above with other content")
            raise _Repeated
        self.events += 1
        self.shapes[shape] += 1
        self.types[sealed.event.type] += 1
        return Item(f"{place.file}:{place.line}", sealed, said, shape, place)

    def _sealed(self, value: dict[str, Any]) -> tuple[str, Sealed, bytes]:
        if self.options.mapping is not None:
            return self._filled("csv", self.options.mapping.foreign(value), value)
        if "commitment" in value and "origin_seq" in value:
            try:
                return _ours(seal(event_from_object(value)))
            except NotCanonical as error:
                raise Wrong(error.reason if error.path == "$" else f"{error.path}: {error.reason}") from None
        if "specversion" in value:
            if cloudevents.is_ours(value):
                return _ours(seal(cloudevents.event_of(value)))
            shape, foreign = "cloudevents", cloudevents.foreign_of(value)
        elif kata.is_kata(value):
            shape, foreign = "kata", kata.foreign_of(value, self._context)
        else:
            shape, foreign = foreign_of(value, self._context)
        return self._filled(shape, foreign, value)

    def _filled(self, shape: str, foreign: Foreign, value: dict[str, Any]) -> tuple[str, Sealed, bytes]:
        said = said_by(value)
        key = hashlib.sha256(said).digest()[:16]
        if self.seen.line(key):
            raise _Repeated
        self._begin_chain(shape, said)
        assert self.filler is not None
        if self.options.new_ids:
            foreign = self._with_new_id(foreign, said)
        if self._learning:
            self.filler.skip(foreign, said)
            raise _Learnt
        sealed = self.filler.fill(foreign, said)
        self.origin = self.origin or self.filler.origin
        return shape, sealed, key

    def _begin_chain(self, shape: str, said: bytes) -> None:
        """A file of spec-kitty is a log of its own. So it has a chain of its own, and may grow while others do."""
        first_of_its_file, self._begun = not self._begun, True
        if first_of_its_file and (shape == "spec-kitty" or self._context.mission):
            self.origins += 1
            if self.origins > 1:
                named = hashlib.sha256(said).hexdigest()
                self.filler = Filler(f"{self.options.namespace} {named}" if self.options.namespace else "")

    def _with_new_id(self, foreign: Foreign, said: bytes) -> Foreign:
        """The event with a new id in place of one that cannot be kept, and with references to such ids."""
        assert self.filler is not None
        if foreign.old_id and (foreign.id is None or self._is_to_replace(foreign, said)):
            tags = {**foreign.tags, "was." + foreign.id_field: short_text(foreign.old_id)}
            new = self.filler.new_id(foreign, said)
            foreign = msgspec.structs.replace(foreign, id=new, tags=tags)
            if self._learning:
                self.seen.replace(foreign.old_id, new)
            else:
                self.new_ids += 1
        if self.replaced is None or not self.replaced.has_replaced:
            return foreign
        return renamed(foreign, self.replaced.replacement)

    def _is_to_replace(self, foreign: Foreign, said: bytes) -> bool:
        assert foreign.id is not None
        assert self.filler is not None
        claimed_ms = id_time_ms(foreign.id)
        if claimed_ms - self.now_ms > AHEAD_MS_MAX:
            return True
        # What claimed the future when it was imported is the past one day. Then it keeps the id that it got.
        moment = foreign.occurred_at or self.filler.moment
        late = claimed_ms - microseconds(moment) // 1000 > AHEAD_MS_MAX
        return late and self.known(self.filler.new_id(foreign, said))


def _mission_in(source: Source) -> str:
    """The mission that a file of spec-kitty is about, by the first of its lines that says it."""
    for found in values(source.read):
        value = found.value if isinstance(found.value, dict) else {}
        payload = value.get("payload")
        for holder in (value, payload if isinstance(payload, dict) else {}):
            mission = holder.get("mission_slug") or holder.get("feature_slug")
            if isinstance(mission, str) and mission:
                return mission
    return ""


def _ours(sealed: Sealed) -> tuple[str, Sealed, bytes]:
    return "everlog", sealed, sealed.hash[:16]


class _Repeated(Exception):
    """A line that stands above already, as it is: a merge leaves such lines behind."""


class _Learnt(Exception):
    """A line of which only the id is wanted."""


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


def _rehearse(log: Log, reading: Reading) -> int:
    """How many events would be new. What would be refused is named with its line, and nothing is written."""
    clock, new = log.store.clock(), 0
    for batch in batches(reading.items(), BATCH):
        good = []
        for item in batch:
            try:
                _check(item, log, reading.options, clock=clock, now_ms=reading.now_ms)
            except Wrong as wrong:
                reading.refuse_event(item, str(wrong), "bad_line")
            except RejectedEvent as error:
                reading.refuse_event(item, str(error), error.code)
            else:
                good.append(item)
                clock = max(clock, item.sealed.event.lamport)
        try:
            with log.store.write() as writer:
                fresh = _try(writer, good, reading, own=log.identity.origin)
                raise _Undo
        except _Undo:
            new += fresh
        for item in good:
            if item.place.number not in reading.bad:
                reading.digest.update(item.sealed.hash)
    if not reading.go_on:
        refuse(reading.problems, reading.sources)
    return new


_LOOSE = ("kata", "spec-kitty")
"""Rows of these programs' tables have more fields than the types that they become."""


def _check(item: Item, log: Log, options: Options, *, clock: int, now_ms: int) -> None:
    """Refuse an event for what it is."""
    event = item.sealed.event
    refuse_unacceptable(event, now_ms=now_ms)
    if not options.keep_unknown_types and not log.catalog.knows(event.type):
        raise Wrong(f"the type {event.type} is not in this log's catalog")
    # An event of ours was checked where it was recorded, and comes back as it was. One without a salt was erased.
    if item.shape != "everlog" and event.salt:
        log.catalog.refuse_unfit(event, more_fields=item.shape in _LOOSE)
    refuse_secret(item.sealed)
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
                if new and item.sealed.event.origin == own:
                    raise _Undo
        except Conflict as error:
            reading.refuse_event(item, str(error), error.code)
            continue
        except _Undo:
            reading.refuse_event(item, "it claims to be of this log, which never recorded it", "id_conflict")
            continue
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
            hint="nothing was imported and no file was changed; correct these lines and import again, or import the"
            " others with --set-aside FILE",
            problems=problems,
        )
