"""Access to files: a small contract, its implementation for the disk, and an atomic replace.

Storage code takes a `Files` and uses nothing else. So a test can replace the disk by
`tests.support.faults.RecordingFiles`, which records every operation and can cut the power between any two of them.

What survives a crash, and what callers must therefore do:

    write, truncate             nothing, until `flush` or `fsync` of that file
    create, rename, unlink      nothing, until `fsync_dir` of the directory that holds the name
    a failed flush              not known: `WriterStopped`; never retry as if nothing had happened (G12)

"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from everlog.errors import Busy, EverlogError
from everlog.lock_file import FILE_MODE, LockFile, try_lock
from everlog.os_errors import ExplainedErrors, raise_explained

DIR_MODE = 0o750
TEMP_SUFFIX = ".everlog-tmp"


@dataclass(frozen=True, slots=True)
class Handle:
    """An open file. The path is for messages: it is the name by which the file was opened."""

    number: int
    path: Path


class Stamp(NamedTuple):
    """A cheap way to see whether a file is the same, and unchanged."""

    size: int
    changed_ns: int
    inode: int


class Lock(Protocol):
    """One holder at a time; not re-entrant."""

    def acquire(
        self, timeout: float | None = None
    ) -> None: ...  # raises Busy after the timeout; None waits without limit

    def release(self) -> None: ...

    def close(self) -> None: ...

    def has_its_name(self) -> bool:
        """Return whether the lock that is held is the one that others see."""
        ...

    def place(self) -> str:
        """Return what tells the files of the lock from any copy of them, or "" if nothing does."""
        ...

    def remember(self, note: bytes) -> None:
        """Keep a few bytes with the lock, without a flush."""
        ...

    def remembered(self, size: int) -> bytes: ...


class Watch(Protocol):
    """An open file and its name, compared before every write: what is written must be found under that name."""

    @property
    def inode(self) -> tuple[int, int]:
        """Which file is open."""
        ...

    def holds(self) -> bool:
        """Return whether the name still refers to the open file."""
        ...


class Files(Protocol):
    """The operations that storage code uses. The caller gives every offset: there is no file position."""

    def open(
        self,
        path: Path,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        append: bool = False,
        mode: int = FILE_MODE,
    ) -> Handle:
        """Open for reading, or for both. A created name is durable only after `fsync_dir` of its directory.

        With `append`, the system puts every write at the end, whatever its offset (O_APPEND).
        """
        ...

    def close(self, handle: Handle) -> None: ...

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        """Return the bytes from `at`, fewer than `size` only at the end of the file."""
        ...

    def write(self, handle: Handle, data: bytes, *, at: int) -> int:
        """Write once, and return the number of bytes, which may be smaller. Storage code calls `write_all` or
        `append`."""
        ...

    def truncate(self, handle: Handle, size: int) -> None: ...

    def size(self, handle: Handle) -> int: ...

    def flush(self, handle: Handle) -> None:
        """Put data and size on the disk (fdatasync), which is enough for an append."""
        ...

    def fsync(self, handle: Handle) -> None: ...

    def fsync_dir(self, path: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target; atomic for readers, durable only after `fsync_dir`."""
        ...

    def unlink(self, path: Path) -> None: ...

    def exists(self, path: Path) -> bool: ...

    def inode(self, path: Path) -> tuple[int, int] | None:
        """Return which file a name refers to now, or None; this may change."""
        ...

    def watch(self, handle: Handle) -> Watch:
        """Return an object that knows whether the name of an open file still refers to it."""
        ...

    def stamp(self, path: Path) -> Stamp | None:
        """Return the stamp of a file or a directory, or None if there is none."""
        ...

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def make_dir(self, path: Path, *, mode: int = DIR_MODE) -> None:
        """Create a directory if it is missing, and make its name durable. Its parent must exist.

        The parent is flushed even if the directory exists: its maker may have been killed before the flush.
        """
        ...

    def lock(self, path: Path) -> Lock: ...

    def hold(self, handle: Handle, *, wait_s: float) -> None:
        """Lock an open file against every other `hold` until it is closed, or raise Busy after `wait_s`."""
        ...

    # The following methods are the same for every implementation.

    def write_all(self, handle: Handle, data: bytes, *, at: int) -> None:
        """Write every byte, in as many writes as necessary. If it raises, some of them may be in the file."""
        done = self.write(handle, data, at=at)
        while done < len(data):
            done += self.write(handle, data[done:], at=at + done)

    def append(self, handle: Handle, data: bytes) -> int:
        """Write all at the end, and return the offset. Two appenders need a lock: this is not O_APPEND.

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
    """The files of the operating system."""

    def open(
        self,
        path: Path,
        *,
        write: bool = False,
        create: bool = False,
        exclusive: bool = False,
        append: bool = False,
        mode: int = FILE_MODE,
    ) -> Handle:
        flags = os.O_CLOEXEC | (os.O_RDWR if write or create or exclusive else os.O_RDONLY)
        flags |= os.O_APPEND if append else 0
        if create or exclusive:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        with ExplainedErrors("open" if flags & os.O_RDWR else "read", path):
            return Handle(os.open(path, flags, mode), path)

    def close(self, handle: Handle) -> None:
        with ExplainedErrors("close", handle.path):
            os.close(handle.number)

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        with ExplainedErrors("read", handle.path):
            data = os.pread(handle.number, size, at)
            while len(data) < size:  # one read returns at most 2 GiB
                more = os.pread(handle.number, size - len(data), at + len(data))
                if not more:
                    break
                data += more
            return data

    def write(self, handle: Handle, data: bytes, *, at: int) -> int:
        try:
            return os.pwrite(handle.number, data, at)
        except OSError as error:
            raise_explained(error, "write", handle.path)
            raise

    def truncate(self, handle: Handle, size: int) -> None:
        with ExplainedErrors("truncate", handle.path):
            os.ftruncate(handle.number, size)

    def size(self, handle: Handle) -> int:
        return os.fstat(handle.number).st_size

    def flush(self, handle: Handle) -> None:
        try:
            _fdatasync(handle.number)
        except OSError as error:
            raise_explained(error, "flush", handle.path)
            raise

    def fsync(self, handle: Handle) -> None:
        with ExplainedErrors("flush", handle.path):
            os.fsync(handle.number)

    def fsync_dir(self, path: Path) -> None:
        with ExplainedErrors("open", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with ExplainedErrors("flush", path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        with ExplainedErrors("rename", source):
            source.replace(target)

    def unlink(self, path: Path) -> None:
        with ExplainedErrors("remove", path):
            path.unlink()

    def exists(self, path: Path) -> bool:
        with ExplainedErrors("look for", path):
            return path.exists()

    def inode(self, path: Path) -> tuple[int, int] | None:
        try:
            found = os.stat(str(path))  # noqa: PTH116 - a Path would cost more than the call itself
        except FileNotFoundError:
            return None
        except OSError as error:
            raise_explained(error, "look at", path)
            raise
        return found.st_dev, found.st_ino

    def watch(self, handle: Handle) -> DiskWatch:
        return DiskWatch(handle)

    def stamp(self, path: Path) -> Stamp | None:
        with ExplainedErrors("look at", path):
            try:
                found = os.stat(path)  # noqa: PTH116 - a Path would cost more than the call itself
            except FileNotFoundError:
                return None
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ino)

    def names(self, directory: Path) -> list[str]:
        with ExplainedErrors("list", directory):
            return sorted(entry.name for entry in directory.iterdir())

    def make_dir(self, path: Path, *, mode: int = DIR_MODE) -> None:
        with ExplainedErrors("make", path):
            path.mkdir(mode, exist_ok=True)
        self.fsync_dir(path.parent)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory: for a command that undoes what it has just created, never for a store."""
        with ExplainedErrors("remove", path):
            path.rmdir()

    def lock(self, path: Path) -> LockFile:
        return LockFile(path)

    def hold(self, handle: Handle, *, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while not try_lock(handle.number):
            if time.monotonic() > deadline:
                raise Busy(
                    f"{handle.path} is locked",
                    why=f"another process held it for {wait_s:g} s",
                    hint="wait for that process, or end it",
                    path=str(handle.path),
                )
            time.sleep(0.001)


class DiskWatch:
    """Compares the file with its name only when something may have changed: the name that the system has for the open
    file, or the stamp of the folder.

    `stat` of the file before every write would make the next write update its times, which the flush would have to
    put on the disk too: every append would take half as long again.
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
            return self._is_the_same()  # there is no /proc, or the folder is gone
        if signs != self._seen:
            self._seen = signs if self._is_the_same() else None
        return self._seen is not None

    def _is_the_same(self) -> bool:
        try:
            there = os.stat(self._handle.path)  # noqa: PTH116 - likewise
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise_explained(error, "look at", self._handle.path)
            raise
        return (there.st_dev, there.st_ino) == self.inode


# macOS has no fdatasync; its fsync does as much.
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


_temp_count = itertools.count()


def replace_file(files: Files, path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Replace the content of a file: after a crash it has the old or the new content, and after return the new.

    On failure the old content stays and no temporary file does. If the *last* flush fails (WriterStopped), the
    new content is in place but may be gone after a power cut.
    """
    replace_file_by(files, path, [data], mode=mode)


def replace_file_by(files: Files, path: Path, pieces: Iterable[bytes], *, mode: int = FILE_MODE) -> None:
    """Do what `replace_file` does, with pieces: for content that is too large for the memory."""
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
    # A killed process may have left a file with this name, and the system may reuse its pid.
    for number in _temp_count:
        temp = path.with_name(f".{path.name}.{os.getpid()}.{number}{TEMP_SUFFIX}")
        try:
            return files.open(temp, exclusive=True, mode=mode)
        except FileExistsError:
            continue
    raise AssertionError("itertools.count does not end")


def leftover_temps(files: Files, directory: Path) -> list[Path]:
    """Return the files that killed writers left in a directory. Only the holder of its lock may remove them."""
    return [directory / name for name in files.names(directory) if name.endswith(TEMP_SUFFIX)]
