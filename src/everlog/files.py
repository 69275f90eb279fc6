"""The one place that touches files: a small contract, the disk behind it, and an atomic replace.

Storage code takes a `Files` and calls nothing else, so that `everlog.testing.faults.RecordingFiles` can stand
in for the disk, record every operation and let a test cut the power between any two of them.

What a crash keeps (and what the callers must therefore do):

    write, truncate             nothing, until `flush` or `fsync` of that file
    create, rename, unlink      nothing, until `fsync_dir` of the directory that holds the name
    a failed flush              unknown for ever: `WriterStopped`, never try again as if clean (G12)

"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from everlog.errors import EverlogError
from everlog.lock_file import FILE_MODE, LockFile
from everlog.os_errors import Telling, tell

DIR_MODE = 0o750
TEMP_SUFFIX = ".everlog-tmp"


@dataclass(frozen=True, slots=True)
class Handle:
    """An open file. The path is for messages: it is the name the file was opened by."""

    number: int
    path: Path


class Stamp(NamedTuple):
    """What tells at a glance whether a file is the one that was looked at before."""

    size: int
    changed_ns: int
    inode: int


class Lock(Protocol):
    """One holder at a time; not re-entrant."""

    def acquire(self, timeout: float | None = None) -> None: ...  # Busy when it takes longer; None waits for ever

    def release(self) -> None: ...

    def close(self) -> None: ...


class Watch(Protocol):
    """An open file and its name, looked at before every write: what is written must be found under that name."""

    @property
    def inode(self) -> tuple[int, int]:
        """Which file is open."""
        ...

    def holds(self) -> bool:
        """Whether the name stands for the open file now."""
        ...


class Files(Protocol):
    """What storage code may ask of a disk. Offsets are given by the caller: there is no file position."""

    def open(
        self,
        path: Path,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        mode: int = FILE_MODE,
    ) -> Handle:
        """Open for reading, or for both. A created name is durable only after `fsync_dir` of its directory."""
        ...

    def close(self, handle: Handle) -> None: ...

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        """The bytes from `at`, fewer than `size` only at the end of the file."""
        ...

    def write(self, handle: Handle, data: bytes, *, at: int) -> int:
        """One write; may be short. Storage code calls `write_all` or `append`."""
        ...

    def truncate(self, handle: Handle, size: int) -> None: ...

    def size(self, handle: Handle) -> int: ...

    def flush(self, handle: Handle) -> None:
        """Data and size are on the disk (fdatasync): all that an append needs."""
        ...

    def fsync(self, handle: Handle) -> None: ...

    def fsync_dir(self, path: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic for readers; replaces the target. Durable only after `fsync_dir`."""
        ...

    def unlink(self, path: Path) -> None: ...

    def exists(self, path: Path) -> bool: ...

    def inode(self, path: Path) -> tuple[int, int] | None:
        """Which file a name stands for now, or None: a name may come to stand for another one."""
        ...

    def watch(self, handle: Handle) -> Watch:
        """What tells whether the name that a file was opened by still stands for it."""
        ...

    def stamp(self, path: Path) -> Stamp | None:
        """The stamp of a file or a directory, or None if there is none."""
        ...

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def make_dir(self, path: Path, *, mode: int = DIR_MODE) -> None:
        """The directory exists and its name is durable. Its parent must be there.

        The parent is flushed even if the directory exists: its maker may have been killed before the flush.
        """
        ...

    def lock(self, path: Path) -> Lock: ...

    # What follows is the same for every implementation.

    def write_all(self, handle: Handle, data: bytes, *, at: int) -> None:
        """Every byte, in as many writes as it takes. If it raises, some of them may be in the file."""
        done = self.write(handle, data, at=at)
        while done < len(data):
            done += self.write(handle, data[done:], at=at + done)

    def append(self, handle: Handle, data: bytes) -> int:
        """Write all at the end and return where that was. Two appenders need a lock: this is not O_APPEND.

        (O_APPEND would make Linux ignore the offset of every positional write to the same handle.)
        """
        end = self.size(handle)
        self.write_all(handle, data, at=end)
        return end

    def read_all(self, path: Path) -> bytes:
        handle = self.open(path)
        try:
            return self.read(handle, self.size(handle), at=0)
        finally:
            self.close(handle)


class DiskFiles(Files):
    """The real thing."""

    def open(
        self,
        path: Path,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        mode: int = FILE_MODE,
    ) -> Handle:
        flags = os.O_CLOEXEC | (os.O_RDWR if write or create or exclusive else os.O_RDONLY)
        if create or exclusive:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        with Telling("open" if flags & os.O_RDWR else "read", path):
            return Handle(os.open(path, flags, mode), path)

    def close(self, handle: Handle) -> None:
        with Telling("close", handle.path):
            os.close(handle.number)

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        with Telling("read", handle.path):
            data = os.pread(handle.number, size, at)
            while len(data) < size:  # one read gives at most 2 GiB, whatever was asked
                more = os.pread(handle.number, size - len(data), at + len(data))
                if not more:
                    break
                data += more
            return data

    def write(self, handle: Handle, data: bytes, *, at: int) -> int:
        try:
            return os.pwrite(handle.number, data, at)
        except OSError as error:
            tell(error, "write", handle.path)
            raise

    def truncate(self, handle: Handle, size: int) -> None:
        with Telling("truncate", handle.path):
            os.ftruncate(handle.number, size)

    def size(self, handle: Handle) -> int:
        return os.fstat(handle.number).st_size

    def flush(self, handle: Handle) -> None:
        try:
            _fdatasync(handle.number)
        except OSError as error:
            tell(error, "flush", handle.path)
            raise

    def fsync(self, handle: Handle) -> None:
        with Telling("flush", handle.path):
            os.fsync(handle.number)

    def fsync_dir(self, path: Path) -> None:
        with Telling("open", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with Telling("flush", path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        with Telling("rename", source):
            source.replace(target)

    def unlink(self, path: Path) -> None:
        with Telling("remove", path):
            path.unlink()

    def exists(self, path: Path) -> bool:
        with Telling("look for", path):
            return path.exists()

    def inode(self, path: Path) -> tuple[int, int] | None:
        try:
            found = os.stat(path)  # noqa: PTH116 - a Path would cost more than the call itself
        except FileNotFoundError:
            return None
        except OSError as error:
            tell(error, "look at", path)
            raise
        return found.st_dev, found.st_ino

    def watch(self, handle: Handle) -> DiskWatch:
        return DiskWatch(handle)

    def stamp(self, path: Path) -> Stamp | None:
        with Telling("look at", path):
            try:
                found = os.stat(path)  # noqa: PTH116 - a Path would cost more than the call itself
            except FileNotFoundError:
                return None
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    def names(self, directory: Path) -> list[str]:
        with Telling("list", directory):
            return sorted(entry.name for entry in directory.iterdir())

    def make_dir(self, path: Path, *, mode: int = DIR_MODE) -> None:
        with Telling("make", path):
            path.mkdir(mode, exist_ok=True)
        self.fsync_dir(path.parent)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory: for a command that gives up what it has just made, never for a store."""
        with Telling("remove", path):
            path.rmdir()

    def lock(self, path: Path) -> LockFile:
        return LockFile(path)


class DiskWatch:
    """Compares the file with its name when there is a sign that something changed, and else looks at the signs only:
    what the system calls the open file, and the stamp of the folder.

    A file whose times are looked at, as by `stat`, gets new ones with the next write, which the flush has to bring to
    the disk too: half as long again for every append.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._folder = str(handle.path.parent)
        self._link = f"/proc/self/fd/{handle.number}"
        self._seen: tuple[str, int, int, int, int] | None = None
        found = os.fstat(handle.number)
        self.inode = (found.st_dev, found.st_ino)

    def holds(self) -> bool:
        try:
            folder = os.stat(self._folder)  # noqa: PTH116 - a Path would cost more than the call itself
            name = os.readlink(self._link)  # noqa: PTH115 - likewise
            signs = (name, folder.st_dev, folder.st_ino, folder.st_mtime_ns, folder.st_ctime_ns)
        except OSError:
            return self._is_the_same()  # there is no /proc, or no folder any more
        if signs != self._seen:
            self._seen = signs if self._is_the_same() else None
        return self._seen is not None

    def _is_the_same(self) -> bool:
        try:
            there = os.stat(self._handle.path)  # noqa: PTH116 - likewise
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            tell(error, "look at", self._handle.path)
            raise
        return (there.st_dev, there.st_ino) == self.inode


# macOS has no fdatasync; its fsync does as much.
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


_temp_count = itertools.count()


def replace_file(files: Files, path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Put `data` under the name: after a crash there is the old content or the new one, when this returns the new.

    On failure the old content stays and no temporary file does. If the *last* flush fails (WriterStopped), the
    new content is in place but may be gone after a power cut.
    """
    replace_file_by(files, path, [data], mode=mode)


def replace_file_by(files: Files, path: Path, pieces: Iterable[bytes], *, mode: int = FILE_MODE) -> None:
    """`replace_file` for what is too large to be held at once: the pieces, one after the other."""
    handle = _open_temp(files, path, mode)
    try:
        try:
            end = 0
            for piece in pieces:
                files.write_all(handle, piece, at=end)
                end += len(piece)
            files.fsync(handle)
        finally:
            files.close(handle)
        files.rename(handle.path, path)
    except BaseException as error:
        try:
            files.unlink(handle.path)
        except (OSError, EverlogError) as also:
            error.add_note(f"and {handle.path} could not be removed: {also}")
        raise
    files.fsync_dir(path.parent)


def _open_temp(files: Files, path: Path, mode: int) -> Handle:
    # A process that was killed may have left a name behind, and the system may give its pid out again.
    for number in _temp_count:
        temp = path.with_name(f".{path.name}.{os.getpid()}.{number}{TEMP_SUFFIX}")
        try:
            return files.open(temp, exclusive=True, mode=mode)
        except FileExistsError:
            continue
    raise AssertionError("itertools.count does not end")


def leftover_temps(files: Files, directory: Path) -> list[Path]:
    """What killed writers left in a directory. Only the holder of its lock may remove them."""
    return [directory / name for name in files.names(directory) if name.endswith(TEMP_SUFFIX)]
