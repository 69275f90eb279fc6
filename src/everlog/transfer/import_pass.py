"""One pass over the files of an import: it reads every line, recognizes its shape and completes foreign events.

A pass holds no more than one line in memory. What it has seen (ids, lines, replaced ids, lines that are set aside) is
in a private SQLite database without a name, which is in memory while it is small, and in a temporary file after that.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from everlog.core.codec import event_from_object, refuse_wrong_commitment
from everlog.core.event import Event, microseconds
from everlog.core.ids import AHEAD_MS_MAX, EventId, id_time_ms
from everlog.core.text import counted
from everlog.errors import NewerFormat, NotCanonical, RejectedEvent
from everlog.stores.contract import Encoded, encode_event
from everlog.transfer import cloudevents, exporting, kata
from everlog.transfer.fill import Filler, stable_bytes
from everlog.transfer.foreign import Context, Foreign, NotAnEvent, UnknownShape, Wrong, renamed, short_text
from everlog.transfer.lines import Read, ReadValue, values
from everlog.transfer.mapping import RowMapping, is_json, rows
from everlog.transfer.problems import Problems
from everlog.transfer.shapes import foreign_of
from everlog.transfer.upgrade.format1 import model as format1

STANDS_ABOVE = "stands above with other content"
_CACHE_KIB = 8 * 1024
_TABLES = """
    CREATE TABLE ids (id TEXT PRIMARY KEY, hash BLOB) WITHOUT ROWID;
    CREATE TABLE lines (key BLOB PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE ends (origin TEXT PRIMARY KEY, old BLOB, new BLOB) WITHOUT ROWID;
    CREATE TABLE replaced (old TEXT PRIMARY KEY, new TEXT) WITHOUT ROWID;
    CREATE TABLE aside (number INTEGER PRIMARY KEY, line BLOB);
"""


@dataclass(frozen=True)
class Source:
    """A file to import: its name for messages, and how to read it."""

    name: str
    size: int
    read: Read


@dataclass(frozen=True)
class Options:
    namespace: str = ""
    keep_unknown_types: bool = True
    trust_clock: bool = False
    mapping: RowMapping | None = None  # describes the rows of CSV files, or the objects of JSON files
    new_ids: bool = False  # replace ids that are not ULIDs, or that are in the future
    unsigned: bool = False  # record events of keys that are not signed in this log


@dataclass(frozen=True)
class ReadEvent:
    where: str
    sealed: Encoded
    stable: bytes  # 16 bytes of its content: the same for the same line anywhere
    shape: str
    at: SourceLine


@dataclass(frozen=True)
class SourceLine:
    """A line of a file, with its text for the person who corrects it."""

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
class ImportPass:
    """One pass over the files. What it found is known when `items` has ended."""

    sources: Sequence[Source]
    options: Options
    progress: Callable[[int], None] = lambda done: None
    filler: Filler | None = None  # to continue after earlier files
    go_on: bool = False  # continue however many lines are wrong
    problems: Problems = field(default_factory=Problems)
    bad: set[int] = field(default_factory=set)
    events: int = 0
    repeated: int = 0
    new_ids: int = 0
    origin: str = ""
    origins: int = 0  # files that have their own chains
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
        self._mapped = ""  # what the mapping is applied to in this file
        self._part, self._context = _Part(), Context()

    def close(self) -> None:
        self.seen.close()

    def learn(self) -> None:
        """Find out which ids are replaced, and by what: a line may refer to an id further down."""
        self._learning = True
        for _ in self.items():
            pass

    def items(self) -> Iterator[ReadEvent]:
        """Yield the events in order, each once; problems are added to `problems`."""
        for source in self.sources:
            self._part, self._begun = _Part(), False
            self._context = Context(self.options.new_ids, find_mission=partial(_mission_in, source))
            at = SourceLine(self._values_seen, source.name, 1, b"")
            for line, value, problem, raw in self._values(source):
                self._values_seen += 1
                at = SourceLine(self._values_seen, source.name, line, raw)
                if item := self._tried(at, partial(self._item, at, value, problem)):
                    yield item
                if self.problems.are_many and not self.go_on:
                    return
            for value, make in kata.left_over(self._context):
                self._values_seen += 1
                at = SourceLine(self._values_seen, source.name, at.line, stable_bytes(value))
                if item := self._tried(at, partial(self._left_over, at, value, make)):
                    yield item
            if self._part.open:
                self._values_seen += 1
                end = SourceLine(self._values_seen, source.name, at.line, b"")
                self.refuse(end, "the file is cut off: its last line, with the count, is missing", "cut_off")

    def _tried(self, at: SourceLine, make: Callable[[], ReadEvent | None]) -> ReadEvent | None:
        """Return the event of a line, or None; a problem with it is recorded."""
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
            self.refuse(at, str(wrong), "bad_line", of_shape=isinstance(wrong, UnknownShape))
        except RejectedEvent as error:
            self.refuse(at, str(error), error.code)
        return None

    def _left_over(self, at: SourceLine, value: dict[str, Any], make: Callable[[], Foreign]) -> ReadEvent | None:
        return self._taken(at, *self._filled("kata", make(), value))

    def _values(self, source: Source) -> Iterator[ReadValue]:
        if self.options.mapping is not None:
            if not is_json(source.read):
                self._mapped = "csv"
                return rows(source.read, self.options.mapping, seen=self._saw)
            self._mapped = "json"
        return values(source.read, seen=self._saw, past_long_lines=self.go_on)

    def _saw(self, chunk: bytes) -> None:
        self.bytes.update(chunk)
        self._read += len(chunk)
        self.progress(self._read)

    def refuse(self, at: SourceLine, reason: str, code: str, *, of_shape: bool = False) -> None:
        """Record a problem with a line."""
        if at.number in self.bad or self._learning:
            return
        self.bad.add(at.number)
        self.problems.add(f"{at.file}:{at.line}", reason, of_shape=of_shape)
        if self.go_on:
            self.seen.set_aside(at.number, at.set_aside(reason, code))

    def refuse_event(self, item: ReadEvent, reason: str, code: str) -> None:
        """Record a problem with an event that was read; it is not counted as an event."""
        self.events -= 1
        self.shapes[item.shape] -= 1
        self.types[item.sealed.event.type] -= 1
        self.refuse(item.at, reason, code)

    def _item(self, at: SourceLine, value: Any, problem: str) -> ReadEvent | None:
        """Return the event of a value, or None if it is the frame of an export."""
        if problem:
            raise Wrong(problem)
        if not isinstance(value, dict):
            raise Wrong("it is not an object")
        if self._part.frame(value):
            return None
        return self._taken(at, *self._sealed(value))

    def _taken(self, at: SourceLine, shape: str, sealed: Encoded, stable: bytes) -> ReadEvent | None:
        self._part.saw(sealed.hash)
        # Before its id is remembered: a line whose payload was changed must not shadow the intact one further down.
        refuse_wrong_commitment(sealed.event)
        before = self.seen.id(sealed.event.id, sealed.hash)
        if before is not None:
            if before != sealed.hash:
                raise Wrong(f"the id {sealed.event.id} {STANDS_ABOVE}")
            raise _Repeated
        self.events += 1
        self.shapes[shape] += 1
        self.types[sealed.event.type] += 1
        return ReadEvent(f"{at.file}:{at.line}", sealed, stable, shape, at)

    def _sealed(self, value: dict[str, Any]) -> tuple[str, Encoded, bytes]:
        if self.options.mapping is not None:
            return self._filled(self._mapped, self.options.mapping.foreign(value, self._context), value)
        if "commitment" in value and "origin_seq" in value:
            try:
                return self._ours(event_from_object(value))
            except NotCanonical as error:
                raise Wrong(error.reason if error.path == "$" else f"{error.path}: {error.reason}") from None
        if "specversion" in value:
            if cloudevents.is_ours(value):
                return self._ours(cloudevents.event_of(value))
            shape, foreign = "cloudevents", cloudevents.foreign_of(value)
        elif kata.is_kata(value):
            shape, foreign = "kata", kata.foreign_of(value, self._context)
        else:
            shape, foreign = foreign_of(value, self._context)
        return self._filled(shape, foreign, value)

    def _ours(self, event: Event) -> tuple[str, Encoded, bytes]:
        """Return an event of everlog. In a chain of format 1, it follows the new hash of the event before it."""
        sealed = encode_event(event)
        old = format1.header_hash(sealed.header)
        self._part.saw_old(old)
        if event.previous and (new := self.seen.end_of_chain(event.origin, event.previous)):
            sealed = encode_event(msgspec.structs.replace(event, previous=new))
        self.seen.go_on(event.origin, old, sealed.hash)
        return "everlog", sealed, sealed.hash[:16]

    def _filled(self, shape: str, foreign: Foreign, value: dict[str, Any]) -> tuple[str, Encoded, bytes]:
        stable = stable_bytes(value)
        key = hashlib.sha256(stable).digest()[:16]
        if self.seen.line(key):
            raise _Repeated
        self._begin_chain(shape, stable)
        assert self.filler is not None
        if self.options.new_ids:
            foreign = self._with_new_id(foreign, stable)
        if self._learning:
            self.filler.skip(foreign, stable)
            raise _Learnt
        sealed = self.filler.fill(foreign, stable)
        self.origin = self.origin or self.filler.origin
        return shape, sealed, key

    def _begin_chain(self, shape: str, stable: bytes) -> None:
        """Begin a new chain for each file of spec-kitty: each is a separate log, which may grow independently."""
        first_of_its_file, self._begun = not self._begun, True
        if first_of_its_file and (shape == "spec-kitty" or self._context.mission):
            self.origins += 1
            if self.origins > 1:
                named = hashlib.sha256(stable).hexdigest()
                self.filler = Filler(f"{self.options.namespace} {named}" if self.options.namespace else "")

    def _with_new_id(self, foreign: Foreign, stable: bytes) -> Foreign:
        """Return the event with a new id if its own cannot be kept, and with the references to such ids replaced."""
        assert self.filler is not None
        if foreign.old_id and (foreign.id is None or self._is_to_replace(foreign, stable)):
            tags = {**foreign.tags, "was." + foreign.id_field: short_text(foreign.old_id)}
            new = self.filler.new_id(foreign, stable)
            foreign = msgspec.structs.replace(foreign, id=new, tags=tags)
            if self._learning:
                self.seen.replace(foreign.old_id, new)
            else:
                self.new_ids += 1
        if self.replaced is None or not self.replaced.has_replaced:
            return foreign
        return renamed(foreign, self.replaced.replacement)

    def _is_to_replace(self, foreign: Foreign, stable: bytes) -> bool:
        assert foreign.id is not None
        assert self.filler is not None
        claimed_ms = id_time_ms(foreign.id)
        if claimed_ms - self.now_ms > AHEAD_MS_MAX:
            return True
        # An id that was in the future at the first import is in the past one day. Then the event keeps its new id.
        moment = foreign.occurred_at or self.filler.moment
        late = claimed_ms - microseconds(moment) // 1000 > AHEAD_MS_MAX
        return late and self.known(self.filler.new_id(foreign, stable))


def _mission_in(source: Source) -> str:
    """Return the mission of a spec-kitty file, from the first of its lines that names it."""
    for found in values(source.read):
        value = found.value if isinstance(found.value, dict) else {}
        payload = value.get("payload")
        for holder in (value, payload if isinstance(payload, dict) else {}):
            mission = holder.get("mission_slug") or holder.get("feature_slug")
            if isinstance(mission, str) and mission:
                return mission
    return ""


class _Repeated(Exception):
    """An identical line was read before: a merge leaves such lines behind."""


class _Learnt(Exception):
    """Only the id of this line is needed."""


class _Part:
    """The frame of an everlog export: its first line, and its last line with the count of what is in between."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.open = False
        self._count = 0
        self._digest = hashlib.sha256()
        self._old_digest = hashlib.sha256()  # of the hashes of format 1

    def saw_old(self, digest: bytes) -> None:
        self._old_digest.update(digest)

    def saw(self, digest: bytes) -> None:
        self._count += 1
        self._digest.update(digest)

    def frame(self, value: Mapping[str, Any]) -> bool:
        """Return True if the value is part of the frame; raise Wrong if the count does not fit."""
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
                    hint="upgrade everlog; the file was not changed",
                )
            self._begin()
            self.open = True
            return True
        end = value.get(exporting.END) or (cloudevents.end_of(value) if "specversion" in value else None)
        if not isinstance(end, dict):
            return False
        digests = (self._digest.hexdigest(), self._old_digest.hexdigest())
        if end.get("count") != self._count or end.get("digest") not in digests:
            above = counted(self._count, "event stands", "events stand")
            raise Wrong(f"{above} above, and the export says that it has {end.get('count')}")
        self._begin()
        return True


class Seen:
    """What a pass has seen. At a path, it is a file that other processes can read once it is closed."""

    def __init__(self, path: str = "") -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{_CACHE_KIB}; {_TABLES}")
        self._database.execute("BEGIN")
        self._run = self._database.execute
        self.has_replaced = False

    @classmethod
    def of(cls, path: str) -> Seen:
        """Open what another process has closed, to look up replaced ids."""
        found = cls.__new__(cls)
        found._database = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
        found._run = found._database.execute
        found.has_replaced = True
        return found

    def id(self, id: EventId, hash: bytes) -> bytes | None:
        """Remember an id; return the hash that it had before, or None if it is new."""
        if self._run("INSERT OR IGNORE INTO ids VALUES (?, ?)", (id, hash)).rowcount:
            return None
        found: bytes = self._run("SELECT hash FROM ids WHERE id = ?", (id,)).fetchone()[0]
        return found

    def go_on(self, origin: str, old: bytes, new: bytes) -> None:
        """Remember the last event of a chain: its hash in format 1, and the one that it has now."""
        self._run("INSERT OR REPLACE INTO ends VALUES (?, ?, ?)", (origin, old, new))

    def end_of_chain(self, origin: str, old: bytes) -> bytes:
        """Return the hash of the last event of a chain if it had this one in format 1, otherwise nothing."""
        found = self._run("SELECT new FROM ends WHERE origin = ? AND old = ?", (origin, old)).fetchone()
        return found[0] if found else b""

    def line(self, key: bytes) -> bool:
        """Remember a line; return True if it was there before."""
        return not self._run("INSERT OR IGNORE INTO lines VALUES (?)", (key,)).rowcount

    def replace(self, old: str, new: EventId) -> None:
        """Remember that an id was replaced; of two lines with one id, the first counts."""
        self.has_replaced = True
        self._run("INSERT OR IGNORE INTO replaced VALUES (?, ?)", (old, new))

    def replacement(self, old: str) -> str:
        """Return the new id, or the old one if it was not replaced."""
        found = self._run("SELECT new FROM replaced WHERE old = ?", (old,)).fetchone()
        return found[0] if found else old

    def replaced(self) -> Iterator[tuple[str, EventId]]:
        yield from self._run("SELECT old, new FROM replaced ORDER BY old")

    def set_aside(self, number: int, line: bytes) -> None:
        """Keep a line that is set aside; of two problems with one line, the first counts."""
        self._run("INSERT OR IGNORE INTO aside VALUES (?, ?)", (number, line))

    def aside(self) -> Iterator[bytes]:
        for row in self._run("SELECT line FROM aside ORDER BY number"):
            yield row[0]

    def close(self) -> None:
        if self._database.in_transaction:
            self._run("COMMIT")
        self._database.close()
