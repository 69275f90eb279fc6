"""Where the lines of a log of day files are, in few bytes for each, and a reader of them: there may be millions."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from everlog.files import Files

_WINDOW_BYTES = 256 * 1024


class Place(NamedTuple):
    """Where a line is, and its place in the log."""

    position: int
    file: str
    at: int
    size: int  # without the newline
    sequence: int = 0  # 0: it is not known


class Places:
    """Places in order of position, five numbers each."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._numbers = {name: number for number, name in enumerate(names)}
        self.clear()

    def clear(self) -> None:
        self._columns = [array("q") for _ in Place._fields]

    def append(self, place: Place) -> None:
        values = (place.position, self._numbers[place.file], *place[2:])
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def sort(self) -> None:
        """Sort them by position. Only a merge of branches leaves them in another order."""
        positions = self._columns[0]
        if any(positions[at - 1] > positions[at] for at in range(1, len(positions))):
            order = sorted(range(len(positions)), key=positions.__getitem__)
            self._columns = [array("q", (column[at] for at in order)) for column in self._columns]

    def in_files(self) -> Iterator[tuple[int, Place]]:
        """Return the places in the order of the files, each with its number in the order of positions."""
        _, files, offsets, *_ = self._columns
        numbers: Sequence[int] = range(len(files))
        if any((files[at - 1], offsets[at - 1]) > (files[at], offsets[at]) for at in numbers[1:]):
            numbers = sorted(numbers, key=lambda at: (files[at], offsets[at]))
        for number in numbers:
            yield number, self[number]

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Place]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> Place:
        position, file, at, size, sequence = [column[number] for column in self._columns]
        return Place(position, self._names[file], at, size, sequence)


class LineReader:
    """Reads parts of files, each file through a window: most lines are adjacent."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._windows: dict[str, tuple[int, bytes]] = {}

    def read(self, name: str, at: int, size: int) -> bytes:
        begin, data = self._windows.get(name, (0, b""))
        start = at - begin
        if start < 0 or start + size > len(data):
            handle = self._files.open(self._folder / name)
            try:
                data = self._files.read(handle, max(size, _WINDOW_BYTES), at=at)
            finally:
                self._files.close(handle)
            self._windows[name] = (at, data)
            start = 0
        return data[start : start + size]

    def lines(self, name: str) -> Iterator[tuple[int, bytes, bool]]:
        """Return the lines of a file: where each begins, without its newline, and whether it has one."""
        handle = self._files.open(self._folder / name)
        try:
            at, held = 0, b""
            while data := self._files.read(handle, _WINDOW_BYTES, at=at + len(held)):
                *whole, held = (held + data).split(b"\n")
                for line in whole:
                    yield at, line, True
                    at += len(line) + 1
            if held:
                yield at, held, False
        finally:
            self._files.close(handle)

    def rest(self, name: str, at: int) -> bytes:
        """Return everything from a place on."""
        handle = self._files.open(self._folder / name)
        try:
            return self._files.read(handle, self._files.size(handle) - at, at=at)
        finally:
            self._files.close(handle)

    def close(self) -> None:
        self._windows.clear()
