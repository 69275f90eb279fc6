"""The bytes of one segment, from its plain file or from an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from everlog.files import Files


class Source(Protocol):
    damage: str  # what is wrong with the file, or empty

    @property
    def size(self) -> int: ...

    def read(self, at: int, size: int) -> bytes:
        """Return the bytes from `at` on, fewer than `size` only at the end."""
        ...

    def flush(self) -> None:
        """Flush, so that the bytes that were read survive a power cut."""
        ...

    def close(self) -> None: ...


class PlainSource:
    damage = ""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._handle = files.open(path)

    @property
    def size(self) -> int:
        return self._files.size(self._handle)

    def read(self, at: int, size: int) -> bytes:
        return self._files.read(self._handle, size, at=at)

    def flush(self) -> None:
        self._files.flush(self._handle)

    def close(self) -> None:
        self._files.close(self._handle)


def open_source(files: Files, path: Path, *, packed: bool) -> Source:
    """Open a segment file. Most logs have no archive, so that its library is loaded with the first one."""
    if not packed:
        return PlainSource(files, path)
    from everlog.stores.segments.format.archive_source import ArchiveSource

    return ArchiveSource(files, path)
