"""A shelf: rows of derived state, by space and key, that change all at once or not at all.

What views keep lies here: their states, their cursors, their dead letters, and the texts that rows are found by. A
store whose shelf is `in_log` writes the rows in the transaction of the events themselves; elsewhere they lie in a
file of their own, which may be deleted at any time: everything on a shelf can be made again from the events.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

from everlog.errors import Busy
from everlog.stores.texts import MemoryTexts, Text, TextIndex


class ShelfEmptied(Busy):
    """The shelf was damaged and is empty now. What was read of it before does not count: begin again."""


class ShelfReader(Protocol):
    def get(self, space: str, key: str) -> bytes | None: ...

    def get_many(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        """The rows that are there, of those asked for."""
        ...


class ShelfWriter(ShelfReader, Protocol):
    """One change of a shelf. What it reads includes what it has put."""

    scrub: bool
    """Set to have nothing of what the change removes stay behind on the disk: it belongs to a purge."""

    def put(self, space: str, rows: Mapping[str, bytes | None]) -> None:
        """Set rows; None removes one."""
        ...

    def put_texts(self, space: str, texts: Mapping[str, Text | None]) -> None:
        """Set what rows are found by; None for a row that is not to be found, or not there any more."""
        ...

    def clear(self, space: str) -> None:
        """Remove every row of a space, and every text."""
        ...


class Shelf(ShelfReader, TextIndex, Protocol):
    @property
    def in_log(self) -> bool:
        """True when a change may be staged in an open write of the log (`Staged.shelved`) and commits with it."""
        ...

    def scan(self, space: str, *, after: str = "", limit: int | None = None) -> Iterator[tuple[str, bytes]]:
        """The rows of a space in order of their keys, above `after`. It may be changed meanwhile."""
        ...

    def count(self, space: str) -> int: ...

    def change(self) -> AbstractContextManager[ShelfWriter]:
        """Nobody else changes the shelf until it closes; an exception undoes all of it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class OwnFile(Protocol):
    """A shelf that has a file of its own, which can be made again."""

    def make_again(self, error: Exception) -> None:
        """Remove the file, because what is on the shelf cannot be repaired in any other way."""
        ...


@runtime_checkable
class Shelved(Protocol):
    """A store that has a shelf."""

    @property
    def shelf(self) -> Shelf: ...


class ShelfChanges:
    """A change held in memory until it commits, over what is committed."""

    def __init__(self, committed: ShelfReader) -> None:
        self._committed = committed
        self.scrub = False
        self.cleared: dict[str, None] = {}  # spaces to empty before the rows are set
        self.rows: dict[str, dict[str, bytes | None]] = {}
        self.texts: dict[str, dict[str, Text | None]] = {}

    def __bool__(self) -> bool:
        return bool(self.cleared or self.rows)

    def get(self, space: str, key: str) -> bytes | None:
        return self.get_many(space, (key,)).get(key)

    def get_many(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        put = self.rows.get(space, {})
        found = (
            {} if space in self.cleared else self._committed.get_many(space, [key for key in keys if key not in put])
        )
        for key in keys:
            value = put.get(key)
            if value is not None:
                found[key] = value
        return found

    def put(self, space: str, rows: Mapping[str, bytes | None]) -> None:
        if rows:
            self.rows.setdefault(space, {}).update(rows)

    def put_texts(self, space: str, texts: Mapping[str, Text | None]) -> None:
        if texts:
            self.texts.setdefault(space, {}).update(texts)

    def clear(self, space: str) -> None:
        self.cleared[space] = None
        self.rows.pop(space, None)
        self.texts.pop(space, None)


class MemoryShelf:
    """The reference: rows in memory, gone with the process."""

    in_log = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._spaces: dict[str, dict[str, bytes]] = {}
        self._texts = MemoryTexts()

    def get(self, space: str, key: str) -> bytes | None:
        return self._spaces.get(space, {}).get(key)

    def get_many(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
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
    def change(self) -> Iterator[ShelfChanges]:
        with self._lock:
            changes = ShelfChanges(self)
            yield changes
            self.take(changes)

    def take(self, changes: ShelfChanges) -> None:
        """Make a change that was staged elsewhere."""
        with self._lock:
            for space in changes.cleared:
                self._spaces.pop(space, None)
                self._texts.clear(space)
            for space, texts in changes.texts.items():
                self._texts.put(space, texts)
            for space, rows in changes.rows.items():
                there = self._spaces.setdefault(space, {})
                for key, value in rows.items():
                    if value is None:
                        there.pop(key, None)
                    else:
                        there[key] = value

    def close(self) -> None:
        """Nothing to let go of."""


class StagedShelf(MemoryShelf):
    """A memory store's own: it may also be changed within a write of the log."""

    in_log = True
