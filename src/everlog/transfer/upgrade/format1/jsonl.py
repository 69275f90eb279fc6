"""Read a folder of day files in format 1, with the positions that its index has given to the lines.

The index says which position each line has. Without an index, or with one that does not describe the lines as they
are (another branch of git is checked out, say), a line has no position yet: then they follow the lines, and the log
gets a new epoch, as it always does when its index is rebuilt.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import zlib
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from everlog.core.canonical import canonical
from everlog.core.codec import Packed
from everlog.core.event import Position, Purge, microseconds
from everlog.core.fields import TEXT_CHARS_MAX, actor_of, kind_of, name_of, require_shape, require_text
from everlog.core.ids import IdSource, parse_id
from everlog.errors import Damaged, EverlogError, InvalidField
from everlog.files import Files
from everlog.stores.contract import CLAIM_BYTES, Claim, Identity
from everlog.stores.small_state import Row, claim_row, note_row
from everlog.transfer.upgrade.format1.model import Bad, Header1, Slot, encode_header, stub
from everlog.transfer.upgrade.format1.places import LineReader, Place, Places

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl")
_INDEX_FORMAT = 2
_NUMBER_MAX = 2**53 - 1
_WHOLE = b',"whole":"%08x"}'
_WHOLE_BYTES = len(_WHOLE % 0)
_SALT_BYTES = 16
_CLOCK_JUMP_MAX = 2**20

_NO_PATH: tuple[bytes, ...] = ()

_Number = Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]


class Event1(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An event line. What is copied as it is stays text."""

    id: str
    type: str
    version: _Number
    stream: str
    lamport: _Number
    origin: str
    origin_seq: _Number
    occurred_at: str
    actor: str
    scope: str = ""
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    idempotency_key: str = ""
    tags: msgspec.Raw = msgspec.Raw(b"{}")
    commitment: bytes
    previous: bytes = b""
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    received_at: datetime
    via: str = ""
    batch: tuple[int, int] | None = None
    claims: dict[str, _Number] = {}
    whole: str = ""


class Purged1(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    hash: bytes
    id: str
    origin: str
    origin_seq: _Number
    previous: bytes
    purge: str
    stream: str = ""
    sequence: _Number = 0
    claims: dict[str, _Number] = {}
    via: str = ""
    lamport: _Number = 0


class Purge1(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    actor: str
    id: str
    origin: str
    purged_at: datetime
    reason: str
    scopes: tuple[str, ...]
    stream: str
    sequence: _Number = 0
    lamport: _Number = 0


class _Marked(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    batch: tuple[int, int] | None = None
    purge: Purge1 | None = None
    purged: Purged1 | None = None
    whole: str = ""


class _Note(msgspec.Struct):
    at: int
    claims: dict[str, tuple[int, int]] = {}
    notes: dict[str, tuple[str | None, int | None]] = {}
    of: str = ""
    whole: str = ""


class _Seed(msgspec.Struct, kw_only=True, gc=False):
    """A line of the project from which this layout comes."""

    event_id: str
    event_type: str
    event_version: int = 1
    lamport_clock: int
    entity_id: str
    entity_type: str = "entity"
    timestamp: datetime
    actor: str = "system"
    causation_id: str | None = None
    correlation_id: str | None = None
    payload: dict[str, Any] = {}


_decode_event = msgspec.json.Decoder(Event1).decode
_decode_marked = msgspec.json.Decoder(_Marked).decode
_decode_note = msgspec.json.Decoder(_Note).decode
_decode_seed = msgspec.json.Decoder(_Seed).decode

Line = Event1 | Purged1 | Purge1 | _Seed


class JsonlLog:
    def __init__(self, path: Path, files: Files) -> None:
        self._files = files
        self.path = path
        self._events = path / "events"
        about = self._about(path / "log.json")
        origins = self._about(path / "local" / "origin.json") if self._has("local", "origin.json") else {}
        self.names = [name for name in files.names(self._events) if _DAY.fullmatch(name)]
        self._reader = LineReader(files, self._events)
        self.branch = ""
        self.indexed = True  # whether the index gave the positions
        self.places = Places(self.names)
        self.torn: dict[str, int] = {}  # where an unfinished write begins in a file
        self._bad: list[Bad] = []
        self._seen = _Seen(frozenset(note.of for note in self._notes() if isinstance(note, _Note)))
        epoch = self._from_index(origins.get("origin", ""))
        if not epoch:
            self.indexed = False
            epoch = str(IdSource().take(1)[0])[-8:].lower()
            self._from_lines()
        self.identity = Identity(about["log_id"], str(origins.get("origin", "")), epoch, about["created_us"])
        self.clock = self._clock()

    @property
    def size(self) -> int:
        return len(self.places)

    def purges(self) -> list[Purge]:
        if not self._seen.purges:
            return []
        return [slot for slot in self.slots() if isinstance(slot, Purge)]

    def slots(self) -> Iterator[Slot | Bad]:
        yield from self._bad
        sequences: dict[str, int] = {}
        for place in self.places:
            try:
                line = self.line(place)
            except (msgspec.DecodeError, UnicodeDecodeError, _BadLine) as error:
                yield Bad(f"events/{place.file}, byte {place.at}", str(error))
                continue
            yield self._slot(place, line, sequences)

    def line(self, place: Place) -> Line:
        """Return a line. Raise an error that names what is wrong with it."""
        return read_line(self.text(place))

    def text(self, place: Place) -> bytes:
        """Return the bytes of a line without its newline."""
        return self._reader.read(place.file, place.at, place.size)

    def rows(self) -> Iterator[Row | Bad]:
        positions = self._seen.positions
        # A name that was claimed again after its time is there twice.
        ordered = sorted(self._seen.claims, key=lambda claim: positions[claim[1]])
        claims = {name: Claim(positions[line_id], count) for name, line_id, count in ordered}
        notes: dict[str, tuple[str, int | None]] = {}
        for note in self._notes():
            if isinstance(note, Bad):
                yield note
                continue
            if note.of and note.of not in self._seen.known:
                continue  # its events were never written
            for key, (value, expires_us) in note.notes.items():
                notes.pop(key, None)
                if value is not None:
                    notes[key] = (value, expires_us)
            for name, (first, count) in note.claims.items():
                claims.setdefault(b64decode(name), Claim(Position(first), count))
        for claim_name, claim in claims.items():
            if len(claim_name) == CLAIM_BYTES:
                yield claim_row(claim_name, claim)
        for key, (text_of_note, expires_us) in sorted(notes.items()):
            yield note_row(key, text_of_note, expires_us)

    def close(self) -> None:
        self._reader.close()

    # ---- slots

    def _slot(
        self,
        place: Place,
        line: Line,
        sequences: dict[str, int],
    ) -> Slot | Bad:
        position = Position(place.position)
        match line:
            case Purge1():
                sequence = sequences[line.stream] = max(sequences.get(line.stream, 0), line.sequence)
                count = self._seen.stubs[line.id]
                moment = microseconds(line.purged_at)
                return Purge(position, line.stream, line.scopes, line.actor, line.reason, moment, sequence, count)
            case Purged1():
                sequence = line.sequence
                if line.stream:
                    sequence = sequences[line.stream] = sequences.get(line.stream, 0) + 1
                known = place.sequence or sequence
                rest = line.origin, line.origin_seq, line.hash, line.previous
                reserved = self._seen.positions.get(line.purge, Position(0))
                return stub(position, known, line.id, *rest, reserved, line.lamport)
            case _Seed():
                try:
                    event, payload, salt = _seed_event(line)
                except EverlogError as error:
                    return Bad(f"events/{place.file}, byte {place.at}", str(error))
                header, received_us = encode_header(event), microseconds(event.occurred_at)
                stream, signature, path = event.stream, b"", _NO_PATH
            case Event1():
                header = encode_header(_header_of(line))
                payload = bytes(line.payload) if line.salt else b""
                salt, signature, path = line.salt, line.signature, line.path
                stream, received_us = line.stream, microseconds(line.received_at)
        sequence = sequences[stream] = sequences.get(stream, 0) + 1
        known = place.sequence or sequence
        return Packed(position, known, received_us, header, payload, salt, signature, path)

    # ---- positions

    def _from_index(self, origin: object) -> str:
        """Take the positions from the index, and return its epoch; "" if it cannot be used."""
        path = self.path / "local" / "index.db"
        if not self._files.exists(path):
            return ""
        beside = path.with_name(path.name + "-wal")
        mode = "ro" if self._files.exists(beside) else "ro&immutable=1"
        try:
            connection = sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, isolation_level=None)
            try:
                connection.execute("BEGIN")
                epoch, found, own, self.branch = connection.execute(
                    "SELECT epoch, format, origin, branch FROM about"
                ).fetchone()
                if found != _INDEX_FORMAT or own != origin or not self._place(connection):
                    return ""
            finally:
                connection.close()
        except (sqlite3.Error, TypeError):
            return ""
        return str(epoch)

    def _place(self, connection: sqlite3.Connection) -> bool:
        """Give every line the position that the index has for it. Return False if it lacks a line or has others."""
        if connection.execute("SELECT 1 FROM missing UNION ALL SELECT 1 FROM bad_lines LIMIT 1").fetchone():
            return False
        events = connection.execute(
            "SELECT name, at, position, sequence FROM events JOIN files USING (file) ORDER BY name, at"
        )
        event = events.fetchone()  # in the order of the lines: each is compared with the next one
        purged = {
            found: (position, sequence)
            for found, position, sequence in connection.execute("SELECT id, position, sequence FROM purged")
        }
        own = self.origins()
        purges = {
            found: (position, 0) for found, position in connection.execute("SELECT purge, reserved FROM purges")
        }
        unknown = False  # whether a line is not in the index
        for place, line in self._all_lines():
            if isinstance(line, Purge1):
                known = purges.pop(line.id, None)
            elif isinstance(line, Purged1):
                known = purged.pop(line.id, None)
            else:
                known = None
                if event is not None and event[:2] == (place.file, place.at):
                    known, event = event[2:], events.fetchone()
            if known is None:
                unknown = True
                break
            self._seen.take(line, known[0], own)
            self.places.append(place._replace(position=known[0], sequence=known[1]))
        found_clock = connection.execute("SELECT number FROM state WHERE name = 'clock'").fetchone()
        self._seen.lamport = max(self._seen.lamport, found_clock[0] if found_clock else 0)
        if event or purged or purges or self._bad or unknown:
            self.places.clear()
            self._bad.clear()
            self._seen = _Seen(self._seen.asked)
            return False
        self.places.sort()
        return True

    def _from_lines(self) -> None:
        seen: set[str] = set()
        own = self.origins()
        for place, line in self._all_lines():
            found = _id_of(line)
            if found in seen:
                self._bad.append(Bad(f"events/{place.file}, byte {place.at}", f"{found} is in another line, too"))
                continue
            seen.add(found)
            self.places.append(place._replace(position=len(self.places) + 1))
            self._seen.take(line, len(self.places), own)

    def _all_lines(self) -> Iterator[tuple[Place, Line]]:
        """Return every line, without the end of a write that was never acknowledged."""
        for name in self.names:
            held: list[tuple[Place, Line]] = []
            for at, text, has_end in self._reader.lines(name):
                place = Place(0, name, at, len(text))
                try:
                    line = read_line(text)
                    if not has_end:
                        raise _BadLine("it has no end")
                except (msgspec.DecodeError, UnicodeDecodeError, _BadLine) as error:
                    if name == self.names[-1] and _is_torn(self._reader.rest(name, at)):
                        self.torn[name] = at if not held else held[0][0].at
                        held.clear()
                        break
                    self._bad.append(Bad(f"events/{name}, byte {at}", str(error)))
                    continue
                batch = line.batch if isinstance(line, Event1) else None
                if batch is None or batch[0] == batch[1]:
                    yield from held
                    held.clear()
                    yield place, line
                else:
                    held.append((place, line))
            yield from held  # without its end only if a merge took that: it is complete then

    # ---- small files

    def _has(self, *names: str) -> bool:
        return self._files.exists(self.path.joinpath(*names))

    def _about(self, path: Path) -> dict[str, Any]:
        try:
            content = msgspec.json.decode(self._files.read_all(path), type=dict[str, Any])
            whole = content.pop("whole", None)
            if whole is not None and whole != f"{zlib.crc32(msgspec.json.encode(content, order='sorted')):08x}":
                raise msgspec.DecodeError("its checksum does not match")
            return content
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Damaged(
                f"{path} cannot be read", why=str(error), hint=f"restore {path.name} from git or a backup"
            ) from error

    def origins(self) -> list[str]:
        """Return the origin of this copy and its earlier ones; nothing if it has never written."""
        if not self._has("local", "origin.json"):
            return []
        found = self._about(self.path / "local" / "origin.json")
        return [found["origin"], *found.get("former", ())]

    def _notes(self) -> Iterator[_Note | Bad]:
        if not self._has("local", "notes.jsonl"):
            return
        lines = self._files.read_all(self.path / "local" / "notes.jsonl").split(b"\n")
        for number, text in enumerate(lines[:-1], 1):  # what follows the last newline was never acknowledged
            try:
                _refuse_changed(text)
                yield _decode_note(text)
            except (msgspec.DecodeError, UnicodeDecodeError, _BadLine) as error:
                yield Bad(f"local/notes.jsonl, line {number}", str(error))

    def _clock(self) -> int:
        greatest = self._seen.lamport
        try:  # the file for other tools, which counts unless it is far above the log
            value = msgspec.json.decode(self._files.read_all(self.path / "clock.json"), type=dict[str, Any])["value"]
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, KeyError, EverlogError):
            return greatest
        return max(greatest, value) if type(value) is int and value - greatest <= _CLOCK_JUMP_MAX else greatest


class _Seen:
    """What is remembered of the lines when they are read for the first time."""

    def __init__(self, asked: frozenset[str]) -> None:
        self.asked = asked  # ids that notes wait for
        self.known: set[str] = set()  # those of them that are there
        self.lamport = 0
        self.purges = False  # whether there are any
        self.positions: dict[str, Position] = {}  # of purges, and of first events of requests
        self.stubs: Counter[str] = Counter()  # how many events each purge removed
        self.claims: list[tuple[bytes, str, int]] = []

    def take(self, line: Line, position: int, own: list[str]) -> None:
        lamport = line.lamport_clock if isinstance(line, _Seed) else line.lamport
        if lamport > self.lamport:
            self.lamport = lamport
        if self.asked and _id_of(line) in self.asked:
            self.known.add(_id_of(line))
        if isinstance(line, Purge1):
            self.positions[line.id] = Position(position)
            self.purges = True
        elif isinstance(line, Purged1):
            self.stubs[line.purge] += 1
        if isinstance(line, (Event1, Purged1)) and line.claims and (line.via or line.origin) in own:
            self.positions[line.id] = Position(position)
            self.claims += [(b64decode(name), line.id, count) for name, count in line.claims.items()]


def _id_of(line: Line) -> str:
    return line.event_id if isinstance(line, _Seed) else line.id


class _BadLine(Exception):
    """A line that cannot be read; the text is the reason."""


def read_line(data: bytes) -> Line:
    """Return what a line says. Raise an error that names what is wrong with it."""
    return read_marked_line(data)[0]


def read_marked_line(data: bytes) -> tuple[Line, tuple[int, int] | None]:
    """Return what a line says, and its place in its write."""
    try:
        line = _decode_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if b'"event_id"' in data and b'"lamport_clock"' in data:
            return _decode_seed(data), None
        if not data.startswith((b'{"purge', b'{"batch')):
            raise
        marked = _decode_marked(data)
        found = marked.purge or marked.purged
        if found is None or (marked.purge is not None and marked.purged is not None):
            raise _BadLine("it is neither an event nor a purge") from None
        _refuse_changed(data)
        return found, marked.batch
    _refuse_changed(data)
    return line, line.batch


def _refuse_changed(data: bytes) -> None:
    if data[-_WHOLE_BYTES:] != _WHOLE % zlib.crc32(data[:-_WHOLE_BYTES]):
        raise _BadLine("its checksum does not match: the disk or an editor changed it")


def _is_torn(tail: bytes) -> bool:
    """Return whether the end of a day file can be an unfinished write: it lacks its newline, or zeros fill it."""
    return b"\n" not in tail.rstrip(b"\0") and (not tail.endswith(b"\n"))


def _header_of(line: Event1) -> tuple[Any, ...]:
    return (
        line.id, line.type, line.version, line.stream, line.lamport, line.origin, line.origin_seq, line.occurred_at,
        line.actor, line.scope, line.request_id, line.causation_id, line.correlation_id, line.idempotency_key,
        line.tags, line.commitment, line.previous,
    )  # fmt: skip


def _seed_event(found: _Seed) -> tuple[Header1, bytes, bytes]:
    """Return the header, payload and salt of a seed's line: the first and only event of its own origin."""
    event_id = parse_id(found.event_id)
    if found.lamport_clock < 1:
        raise InvalidField(
            f"its clock value is {found.lamport_clock}", why="values start at 1", field="lamport_clock"
        )
    require_shape("type", found.event_type)
    stream = f"{kind_of(found.entity_type)}/{name_of(found.entity_id)}"
    require_shape("stream", stream)
    actor = actor_of(found.actor, "agent")
    require_shape("actor", actor)
    salt = hashlib.sha256(b"everlog seed event " + event_id.encode()).digest()[:_SALT_BYTES]
    occurred_at = found.timestamp if found.timestamp.tzinfo else found.timestamp.replace(tzinfo=UTC)
    payload = canonical(found.payload)
    causation_id, correlation_id = (
        _text("causation_id", found.causation_id),
        _text("correlation_id", found.correlation_id),
    )
    commitment = hashlib.sha256(salt + payload).digest()
    header = Header1(
        event_id, found.event_type, found.event_version, stream, found.lamport_clock, event_id, 1,
        occurred_at.astimezone(UTC), actor, "", "", causation_id, correlation_id, "", {}, commitment, b"",
    )  # fmt: skip
    return header, payload, salt


def _text(field: str, value: str | None) -> str:
    text = (value or "")[:TEXT_CHARS_MAX]
    require_text(field, text)
    return text
