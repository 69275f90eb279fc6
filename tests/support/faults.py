"""A disk in memory that records what is asked of it, and fails on demand.

`RecordingFiles` is a `Files`: hand it to a store instead of the disk. It keeps two things: what a reader sees now
(as the kernel would show it), and the trace of everything that was done, from which
`tests.support.crash_states` works out what a power cut would leave.

    files = RecordingFiles()
    files.fail("write", nth=3, error=errno.ENOSPC)      # the third write from now
    files.shorten_write(nth=1, to_bytes=5)
    files.fail("fsync", nth=2, drop=True)               # fails, and the data never reaches the disk
    files.tried(1); ...; files.acked(1)                 # marks: the caller of the store was told "done"
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tests.support.steps import (
    Acked,
    Create,
    Dropped,
    MakeDir,
    Rename,
    RenameDir,
    Step,
    Sync,
    SyncDir,
    Tried,
    Truncate,
    Unlink,
    Write,
    change_content,
    change_names,
)

from everlog.errors import Busy
from everlog.files import DIR_MODE, Files, Handle, Stamp
from everlog.lock_file import FILE_MODE
from everlog.os_errors import explained, failed_flush

Operation = Literal[
    "open",
    "read",
    "write",
    "truncate",
    "flush",
    "fsync",
    "fsync_dir",
    "rename",
    "unlink",
    "mkdir",
]

_TOP = Path("/")


@dataclass
class _Fault:
    operation: Operation
    nth: int
    times: int
    error: int | None
    drop: bool
    to_bytes: int


class RecordedWatch:
    """An open file and its name on the disk in memory."""

    def __init__(self, files: RecordingFiles, path: Path, file: int) -> None:
        self._files = files
        self._path = path
        self.inode = (0, file)

    def holds(self) -> bool:
        return self._files.inode(self._path) == self.inode


class RecordingFiles(Files):
    """Files in memory, with a trace and with faults. `contents` is on its disk, safe, from the beginning."""

    def __init__(self, contents: Mapping[Path, bytes] | None = None, *, dirs: Iterable[Path] = ()) -> None:
        self.base = dict(contents or {})
        self.base_dirs = frozenset(dirs).union(*map(_parents, self.base), [_TOP])
        self.trace: list[Step] = []
        self.contents: dict[int, bytearray] = {}
        self.by_name: dict[Path, int] = {}
        self.dirs = set(self.base_dirs)
        for number, path in enumerate(sorted(self.base, key=str)):
            self.contents[number] = bytearray(self.base[path])
            self.by_name[path] = number
        self._next_file = len(self.base)
        self._next_handle = 0
        self._open: dict[int, int] = {}
        self._faults: list[_Fault] = []
        self._calls: Counter[str] = Counter()
        self._changes: Counter[int] = Counter()
        self._locks: dict[Path, threading.Lock] = {}
        self._lists: dict[Path, tuple[list[str], int]] = {}  # of directories, since a name changed

    # --- marks and faults

    def tried(self, number: int) -> None:
        """The store is about to be asked to keep this."""
        self.trace.append(Tried(number))

    def acked(self, number: int) -> None:
        """The store said that it has it."""
        self.trace.append(Acked(number))

    def fail(
        self,
        operation: Operation,
        *,
        nth: int = 1,
        times: int = 1,
        error: int = errno.EIO,
        drop: bool = False,
    ) -> None:
        """The n-th call from now fails, and so do the `times - 1` after it. `drop`: a flush loses its data, too."""
        self._faults.append(_Fault(operation, self._calls[operation] + nth, times, error, drop, 0))

    def shorten_write(self, *, nth: int = 1, times: int = 1, to_bytes: int) -> None:
        """The n-th write from now takes at most this many bytes and says so."""
        self._faults.append(_Fault("write", self._calls["write"] + nth, times, None, False, to_bytes))

    def calls(self, operation: Operation) -> int:
        return self._calls[operation]

    def after_kill(self, steps: int | None = None) -> RecordingFiles:
        """What the next process finds after a kill: the kernel's view, not the disk's. Nothing is open, or faulty.

        The first `steps` of the trace come along (all, if None): what they left pending can still be lost.
        """
        fresh = RecordingFiles(self.base, dirs=self.base_dirs)
        for step in self.trace[:steps]:
            fresh._do(step)
        return fresh

    def visible(self) -> dict[Path, bytes]:
        """Every file as a reader sees it now."""
        return {path: bytes(self.contents[file]) for path, file in self.by_name.items()}

    # --- Files

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
        self._call("open", path)
        file = self.by_name.get(path)  # asked once: to compare paths takes most of the time of an open
        if file is not None:
            if exclusive:
                raise _os_error(errno.EEXIST, path)
        elif path in self.dirs:
            raise _os_error(errno.EISDIR, path)
        elif not (create or exclusive) or path.parent not in self.dirs:
            raise _os_error(errno.ENOENT, path)
        else:
            file = self._next_file
            self._do(Create(path, file))
        self._next_handle += 1
        self._open[self._next_handle] = file
        return Handle(self._next_handle, path)

    def close(self, handle: Handle) -> None:
        self._file(handle)
        del self._open[handle.number]

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        self._call("read", handle.path)
        return bytes(self.contents[self._file(handle)][at : at + size])

    def write(self, handle: Handle, data: bytes, *, at: int) -> int:
        fault = self._call("write", handle.path)
        if fault is not None:
            data = data[: fault.to_bytes]
        self._do(Write(self._file(handle), at, bytes(data)))
        return len(data)

    def truncate(self, handle: Handle, size: int) -> None:
        self._call("truncate", handle.path)
        self._do(Truncate(self._file(handle), size))

    def size(self, handle: Handle) -> int:
        return len(self.contents[self._file(handle)])

    def flush(self, handle: Handle) -> None:
        self._sync("flush", handle)

    def fsync(self, handle: Handle) -> None:
        self._sync("fsync", handle)

    def fsync_dir(self, path: Path) -> None:
        if path not in self.dirs:
            raise _os_error(errno.ENOENT, path)
        fault = self._fault("fsync_dir")
        if fault is not None and fault.error is not None:
            raise failed_flush(_os_error(fault.error, path), path)
        self._do(SyncDir(path))

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", source)
        if source in self.dirs and target.parent in self.dirs:
            if any(target in path.parents or path == target for path in {*self.by_name, *self.dirs}):
                raise _os_error(errno.ENOTEMPTY, target)
            self._do(RenameDir(source, target))
            return
        if source not in self.by_name or target.parent not in self.dirs:
            raise _os_error(errno.ENOENT, source)
        self._do(Rename(source, target, self.by_name[source]))

    def unlink(self, path: Path) -> None:
        self._call("unlink", path)
        if path not in self.by_name:
            raise _os_error(errno.ENOENT, path)
        self._do(Unlink(path, self.by_name[path]))

    def exists(self, path: Path) -> bool:
        return path in self.by_name or path in self.dirs

    def inode(self, path: Path) -> tuple[int, int] | None:
        found = self.by_name.get(path)
        return None if found is None else (0, found)

    def watch(self, handle: Handle) -> RecordedWatch:
        return RecordedWatch(self, handle.path, self._file(handle))

    def stamp(self, path: Path) -> Stamp | None:
        if path in self.dirs:
            return Stamp(0, self._listed(path)[1], 0)
        file = self.by_name.get(path)
        return None if file is None else Stamp(len(self.contents[file]), self._changes[file], file)

    def names(self, directory: Path) -> list[str]:
        if directory not in self.dirs:
            raise _os_error(errno.ENOENT, directory)
        return list(self._listed(directory)[0])

    def make_dir(self, path: Path, *, mode: int = DIR_MODE) -> None:
        self._call("mkdir", path)
        if path.parent not in self.dirs:
            raise _os_error(errno.ENOENT, path)
        if path in self.by_name:
            raise _os_error(errno.EEXIST, path)
        if path not in self.dirs:
            self._do(MakeDir(path))
        self.fsync_dir(path.parent)

    def lock(self, path: Path) -> MemoryLock:
        return MemoryLock(path, self._locks.setdefault(path, threading.Lock()))

    def hold(self, handle: Handle, *, wait_s: float) -> None:
        """Nobody else has this disk."""

    # --- inside

    def _fault(self, operation: Operation) -> _Fault | None:
        """Count the call, and say whether it is one that has to go wrong."""
        self._calls[operation] += 1
        count = self._calls[operation]
        for fault in self._faults:
            if fault.operation == operation and fault.nth <= count < fault.nth + fault.times:
                return fault
        return None

    def _call(self, operation: Operation, path: Path) -> _Fault | None:
        """Raise if a fault says so, as DiskFiles would; return one that shortens the call."""
        fault = self._fault(operation)
        if fault is None or fault.error is None:
            return fault
        error = _os_error(fault.error, path)
        raise explained(error, f"cannot {operation} {path}") or error

    def _sync(self, operation: Literal["flush", "fsync"], handle: Handle) -> None:
        file = self._file(handle)
        fault = self._fault(operation)
        if fault is None or fault.error is None:
            self._do(Sync(file, data_only=operation == "flush"))
            return
        if fault.drop:
            self._do(Dropped(file))
        raise failed_flush(_os_error(fault.error, handle.path), handle.path)

    def _listed(self, directory: Path) -> tuple[list[str], int]:
        """The names in a directory, and how many of them are files."""
        found = self._lists.get(directory)
        if found is None:
            files = set(_names_in(directory, self.by_name))
            found = self._lists[directory] = (sorted({*files, *_names_in(directory, self.dirs)}), len(files))
        return found

    def _file(self, handle: Handle) -> int:
        if handle.number not in self._open:
            raise _os_error(errno.EBADF, handle.path)
        return self._open[handle.number]

    def _do(self, step: Step) -> None:
        self.trace.append(step)
        match step:
            case Write() | Truncate():
                change_content(self.contents[step.file], step)
                self._changes[step.file] += 1
            case Create() | Rename() | RenameDir() | Unlink() | MakeDir():
                if isinstance(step, Create):
                    self.contents[step.file] = bytearray()
                    self._next_file = max(self._next_file, step.file + 1)
                change_names(self.by_name, self.dirs, step)
                self._lists.clear()
            case Sync() | Dropped() | SyncDir() | Tried() | Acked():
                pass  # nothing that a reader could see


class MemoryLock:
    """The lock of a disk that lives in one process."""

    def __init__(self, path: Path, lock: threading.Lock) -> None:
        self._path = path
        self._lock = lock
        self._held = False

    def acquire(self, timeout: float | None = None) -> None:
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise Busy(f"{self._path} is locked", why="another opener in this process holds it")
        self._held = True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError(f"{self._path} is not locked")
        self._held = False
        self._lock.release()

    def close(self) -> None:
        if self._held:
            self.release()

    def has_its_name(self) -> bool:
        return True

    def place(self) -> str:
        return ""  # a disk in memory is never copied

    def remember(self, note: bytes) -> None:
        raise AssertionError("nothing is remembered where there is no place")

    def remembered(self, size: int) -> bytes:
        raise AssertionError("nothing is remembered where there is no place")


@cache
def _parents(path: Path) -> tuple[Path, ...]:
    return tuple(path.parents)  # thousands of disks have the same files


def _names_in(directory: Path, paths: Iterable[Path]) -> Iterator[str]:
    """The names of those that are in a directory. As texts: `Path.parent` would take most of a test's time."""
    start = f"{str(directory).rstrip('/')}/"
    for path in paths:
        text = str(path)
        if text.startswith(start) and "/" not in (name := text[len(start) :]) and name:
            yield name


def _os_error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
