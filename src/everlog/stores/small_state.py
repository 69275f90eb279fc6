"""Small state: rows beside the events, by space and key.

    claims    which events a request made; the key is the name of the request (`claim_name`), in hex
    notes     texts that may expire: responses, refusals, cursors and dead letters of consumers
    others    what views derive: states, cursors, dead letters, and the texts that rows are found by

Claims and notes commit with the events, and a copy of the log takes them over. The rows of views do so if the small
state is `in_log`. In other stores they are in a separate file, which may be deleted at any time: all of it can be
rebuilt from the events. Where a space is kept (a table, a file, a frame) is known to each store alone.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable
from zlib import crc32

from everlog.core.event import Position
from everlog.errors import Busy, Damaged
from everlog.stores.contract import Claim
from everlog.stores.texts import MemoryTexts, Text, TextIndex
from everlog.stores.waiting_lines import WaitingLines

CLAIMS, NOTES = "claims", "notes"
"""The spaces of the log itself. The name of a view's space always has a `#`, or is `views` or `builds`."""

_CLAIM = struct.Struct(">QQ")  # first, count
_EMPTIED_MAX = 3  # the first time, a file that seems whole is opened again

T = TypeVar("T")


class StateEmptied(Busy):
    """The small state was damaged and is empty now. Discard what was read of it before, and begin again."""


def again_if_emptied(work: Callable[[], T]) -> T:
    """Return what `work` returns. If the small state is emptied under it, it begins again."""
    for _ in range(_EMPTIED_MAX):
        try:
            return work()
        except StateEmptied:
            continue
    return work()


class Row(NamedTuple):
    """A row of the log itself, for a copy."""

    space: str
    key: str
    value: bytes
    expires_us: int | None = None


class StateReader(Protocol):
    """Rows of views by space and key: a small state, or an open change with what it has put."""

    def get(self, space: str, key: str) -> bytes | None: ...

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]: ...


class RowReader(Protocol):
    """Rows of the log itself, by space and key: its small state, or an open write with what it has put."""

    def claims(self, names: Collection[bytes]) -> Mapping[bytes, Claim]:
        """Return the claims of these names that exist: what `rows` has, without its encoding."""
        ...

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        """Return the rows of these keys that exist."""
        ...

    def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int | None = None, newest_first: bool = False
    ) -> Iterator[tuple[str, bytes]]:
        """Return the rows of a space in order of their keys, above `after`. It may be changed meanwhile.

        `prefix` and `newest_first` (the greatest key first) are for notes.
        """
        ...


class SmallState(StateReader, TextIndex, Protocol):
    """The rows of views, in a log or in memory."""

    @property
    def in_log(self) -> bool:
        """True when a change may be part of an open write of the log and commits with it."""
        ...

    def scan(self, space: str, *, after: str = "", limit: int | None = None) -> Iterator[tuple[str, bytes]]: ...

    def count(self, space: str) -> int: ...

    def change(self) -> AbstractContextManager[StateChanges]:
        """Open a change. Nobody else changes the rows until it closes; an exception undoes all of it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class OwnFile(Protocol):
    """Derived rows in a separate file, which can be rebuilt."""

    def make_again(self, error: Exception) -> None:
        """Remove the file, because what it has cannot be repaired in any other way."""
        ...


class LostNotes(NamedTuple):
    """Notes may be missing or outdated: why, and whose events are in the log as far as is known."""

    error: Damaged
    origins: Collection[str]


class Beside(NamedTuple):
    """How a store looks up its claims and notes."""

    claims: Callable[[Collection[bytes]], Mapping[bytes, Claim]]
    note: Callable[[str], str | None]
    notes: Callable[[str, int | None, bool], Mapping[str, str]]  # prefix, limit, newest first
    every: Callable[[], Iterator[Row]]
    lost: Callable[[], LostNotes | None] = lambda: None


NOTHING = Beside(lambda names: {}, lambda key: None, lambda prefix, limit, newest_first: {}, lambda: iter(()))


class StoreState:
    """All small state of a log: its claims and notes, and the rows of views."""

    def __init__(
        self, beside: Beside, make_derived: Callable[[], SmallState], waiting: WaitingLines | None = None
    ) -> None:
        self.waiting = waiting  # lines that go into the notes with the next write; a server needs no such file
        self._beside = beside
        self.claims = beside.claims
        self._make_derived = make_derived
        self._derived: SmallState | None = None

    @property
    def derived(self) -> SmallState:
        """The rows of views, opened when they are first needed: most logs are written without."""
        if self._derived is None:
            self._derived = self._make_derived()
        return self._derived

    @property
    def in_log(self) -> bool:
        return self.derived.in_log

    def get(self, space: str, key: str) -> bytes | None:
        return self.rows(space, (key,)).get(key)

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        if space == CLAIMS:
            return claims_as_rows(self.claims(list(map(bytes.fromhex, keys))))
        if space == NOTES:
            notes = {key: self._beside.note(key) for key in keys}
            return {key: value.encode() for key, value in notes.items() if value is not None}
        return self.derived.rows(space, keys)

    def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int | None = None, newest_first: bool = False
    ) -> Iterator[tuple[str, bytes]]:
        if space == NOTES:
            return iter(
                [(key, text.encode()) for key, text in self._beside.notes(prefix, limit, newest_first).items()]
            )
        if space == CLAIMS:
            return iter(sorted((row.key, row.value) for row in self._beside.every() if row.space == CLAIMS))
        return self.derived.scan(space, after=after, limit=limit)

    def lost_notes(self) -> LostNotes | None:
        """Return None if all notes can be read. It is cheap."""
        return self._beside.lost()

    def refuse_lost_notes(self) -> None:
        """Raise Damaged if notes may be missing: a list of them would be incomplete."""
        lost = self.lost_notes()
        if lost is not None:
            raise lost.error

    def kept_in_memory(self) -> StoreState:
        """Return the claims and notes that can be read, with rows of views that are not kept on the disk."""
        return StoreState(self._beside._replace(lost=lambda: None), MemoryState, self.waiting)

    def every_row(self) -> Iterator[Row]:
        """Return what a copy takes over: every claim and every note that has not expired, each once."""
        return self._beside.every()

    def count(self, space: str) -> int:
        return self.derived.count(space)

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        return self.derived.holding(space, words, within=within, limit=limit)

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        return self.derived.alike(space, words, part=part, least=least, limit=limit)

    def change(self) -> AbstractContextManager[StateChanges]:
        """Change rows of views outside a write of the log."""
        return self.derived.change()

    def make_again(self, error: Exception) -> bool:
        """Remove the rows of views, if they have a separate file; they are then rebuilt from the events."""
        if not isinstance(self.derived, OwnFile):
            return False
        self.derived.make_again(error)
        return True

    def close(self) -> None:
        if self._derived is not None:
            self._derived.close()


# ---- claims and notes as rows


def claim_value(first: int, count: int) -> bytes:
    return _CLAIM.pack(first, count)


def claim_of(value: bytes) -> Claim:
    first, count = _CLAIM.unpack(value)
    return Claim(Position(first), count)


def claims_as_rows(claims: Mapping[bytes, Claim]) -> dict[str, bytes]:
    return {name.hex(): claim_value(claim.first, claim.count) for name, claim in claims.items()}


def claim_row(name: bytes, claim: Claim) -> Row:
    return Row(CLAIMS, name.hex(), claim_value(claim.first, claim.count))


def note_row(key: str, value: str, expires_us: int | None) -> Row:
    return Row(NOTES, key, value.encode(), expires_us)


def read_claim(state: RowReader, name: bytes) -> Claim | None:
    """Return what the request of this name has made, as long as it is remembered: a day at least."""
    return state.claims((name,)).get(name)


def read_note(state: RowReader, key: str) -> str | None:
    """Return the note under exactly this key, unless it has expired."""
    value = state.rows(NOTES, (key,)).get(key)
    return None if value is None else value.decode()


def read_notes(
    state: RowReader, prefix: str, *, limit: int | None = None, newest_first: bool = False
) -> dict[str, str]:
    """Return the notes whose key starts with `prefix`, in order of their keys, without expired ones."""
    found = state.scan(NOTES, prefix=prefix, limit=limit, newest_first=newest_first)
    return {key: value.decode() for key, value in found}


def with_checksum(text: bytes) -> bytes:
    """Return the text of a note with its checksum, for `without_checksum`."""
    return b"%08x %b" % (crc32(text), text)


def without_checksum(key: str, text: str | bytes) -> bytes:
    """Return the text of a note. Raise Damaged if it is not as it was put."""
    data = text.encode() if isinstance(text, str) else text
    found = data[9:]
    if with_checksum(found) != data:
        raise Damaged(
            f"the note {key} is damaged", why="its checksum does not match", hint="everlog verify; restore a backup"
        )
    return found


class StateChanges:
    """A change held in memory until it commits, over what is committed."""

    def __init__(self, committed: StateReader) -> None:
        self._committed = committed
        self.scrub = False
        self.cleared: dict[str, None] = {}  # spaces to empty before the rows are set
        self.changed: dict[str, dict[str, bytes | None]] = {}
        self.texts: dict[str, dict[str, Text | None]] = {}

    def __bool__(self) -> bool:
        return bool(self.cleared or self.changed)

    def get(self, space: str, key: str) -> bytes | None:
        return self.rows(space, (key,)).get(key)

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        put = self.changed.get(space, {})
        found = {} if space in self.cleared else self._committed.rows(space, [key for key in keys if key not in put])
        for key in keys:
            value = put.get(key)
            if value is not None:
                found[key] = value
        return found

    def put(self, space: str, rows: Mapping[str, bytes | None]) -> None:
        if rows:
            self.changed.setdefault(space, {}).update(rows)

    def put_texts(self, space: str, texts: Mapping[str, Text | None]) -> None:
        if texts:
            self.texts.setdefault(space, {}).update(texts)

    def clear(self, space: str) -> None:
        self.cleared[space] = None
        self.changed.pop(space, None)
        self.texts.pop(space, None)

    def take(self, changes: StateChanges) -> None:
        """Add a change that was made over this one."""
        self.scrub |= changes.scrub
        for space in changes.cleared:
            self.clear(space)
        for space, rows in changes.changed.items():
            self.put(space, rows)
        for space, texts in changes.texts.items():
            self.put_texts(space, texts)


class MemoryState:
    """The reference: rows in memory, gone with the process."""

    in_log = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._spaces: dict[str, dict[str, bytes]] = {}
        self._texts = MemoryTexts()

    def get(self, space: str, key: str) -> bytes | None:
        return self._spaces.get(space, {}).get(key)

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        rows = self._spaces.get(space, {})
        return {key: rows[key] for key in keys if key in rows}

    def scan(self, space: str, *, after: str = "", limit: int | None = None) -> Iterator[tuple[str, bytes]]:
        with self._lock:
            rows = sorted(self._spaces.get(space, {}).items())
        first = bisect_right(rows, after, key=lambda row: row[0]) if after else 0
        yield from rows[first : None if limit is None else first + limit]

    def count(self, space: str) -> int:
        return len(self._spaces.get(space, {}))

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        with self._lock:
            return self._texts.holding(space, words, within=within, limit=limit)

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        with self._lock:
            return self._texts.alike(space, words, part=part, least=least, limit=limit)

    @contextmanager
    def change(self) -> Iterator[StateChanges]:
        with self._lock:
            changes = StateChanges(self)
            yield changes
            self.take(changes)

    def take(self, changes: StateChanges) -> None:
        """Make a change that was staged elsewhere."""
        with self._lock:
            for space in changes.cleared:
                self._spaces.pop(space, None)
                self._texts.clear(space)
            for space, texts in changes.texts.items():
                self._texts.put(space, texts)
            for space, rows in changes.changed.items():
                there = self._spaces.setdefault(space, {})
                for key, value in rows.items():
                    if value is None:
                        there.pop(key, None)
                    else:
                        there[key] = value

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class MemoryStateInLog(MemoryState):
    """A memory store's own: it may also be changed within a write of the log."""

    in_log = True
