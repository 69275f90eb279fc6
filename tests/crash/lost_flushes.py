"""A flush that fails and loses the data, on a real mount: the n-th one says EIO, the next that all is well (R6).

That is what Linux does after a failed write-back: the pages are marked clean, and flushing again flushes nothing. A
file system of our own in user space (FUSE) behaves so on demand. It keeps what was flushed apart from what is only
visible; when it is unmounted, the first is all that is left, as after a power cut.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.crash.ledger import Ledger
from tests.crash.rows import Row, Skip
from tests.crash.victims import ROOT, Nursery

APPENDS = 9
_MOUNT_S = 20


def lose_flushes(row: Row, *, flushes: int) -> None:
    """Fail the first flush, the second, and so on, each on a new disk."""
    stopped = 0
    with Nursery() as nursery, tempfile.TemporaryDirectory(prefix="everlog-flushes-") as folder:
        for nth in range(1, flushes + 1):
            place, left = Path(folder) / f"mounted{nth}", Path(folder) / f"left{nth}"
            place.mkdir()
            left.mkdir()
            victim_url, ledger = f"{row.subject}:{place}/log", Ledger(f"{row.subject}:{left}/log")
            with _Disk(place, left, nth):
                ledger.take(nursery.start(victim_url, count=APPENDS, name="w", insist=True).wait(), row)
            row.count += 1
            stopped += bool(ledger.failures)
            if ledger.began:
                # A write that failed may be there: its data came to the disk with a later flush of its directory.
                ledger.judge(row, unacknowledged_max=3, when=f"flush {nth} lost")
            elif ledger.acknowledged:
                row.lost(f"flush {nth} lost: acknowledged, and there is no log")
    row.remark = f"{stopped} of them stopped the writer"


class _Disk:
    """The mount, as a process of its own."""

    def __init__(self, place: Path, left: Path, nth: int) -> None:
        self._place, self._left, self._nth = place, left, nth

    def __enter__(self) -> None:
        if shutil.which("fusermount3") is None or not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise Skip("there is no FUSE here: apt-get install fuse3")
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [
            sys.executable,
            "-m",
            "tests.crash.lost_flushes",
            str(self._place),
            str(self._left),
            str(self._nth),
        ]
        self._process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + _MOUNT_S
        while not self._place.is_mount():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise Skip(f"FUSE does not work here: {self._process.communicate()[1].strip()[-200:]}")
            time.sleep(0.005)

    def __exit__(self, *error: object) -> None:
        if self._place.is_mount():
            subprocess.run(["fusermount3", "-u", str(self._place)], check=True)
        self._process.communicate(timeout=_MOUNT_S)


# ---- in the process that is the disk


class _File:
    """What is visible, what is safe, and what was written since the last flush."""

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.data = bytearray()
        self.safe = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []
        self.changed = time.time()

    def write(self, data: bytes, at: int) -> None:
        _put(self.data, data, at)
        self.pending.append((at, data))
        self.changed = time.time()

    def truncate(self, size: int) -> None:
        _cut(self.data, size)
        self.pending.append(size)
        self.changed = time.time()

    def flush(self, *, lost: bool) -> None:
        for step in self.pending if not lost else ():
            if isinstance(step, int):
                _cut(self.safe, step)
            else:
                _put(self.safe, step[1], step[0])
        self.pending.clear()


def _put(content: bytearray, data: bytes, at: int) -> None:
    content.extend(bytes(max(at - len(content), 0)))
    content[at : at + len(data)] = data


def _cut(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def main(place: str, left: Path, nth: int) -> None:
    import mfusepy  # type: ignore[import-untyped]

    class Disk(mfusepy.Operations):  # type: ignore[misc]
        """Names are safe at once; data is, when it is flushed."""

        use_ns = True

        def __init__(self) -> None:
            self.files: dict[str, _File] = {}
            self.dirs = {"/": 0o755}
            self.open_files: dict[int, _File] = {}
            self.next_handle = 0
            self.flushes = 0

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            common = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_atime": 0, "st_ctime": 0}
            if path in self.dirs:
                return {**common, "st_mode": stat.S_IFDIR | self.dirs[path], "st_nlink": 2, "st_mtime": 0}
            file = self.open_files.get(fh or 0) or self.files.get(path)
            if file is None:
                raise mfusepy.FuseOSError(errno.ENOENT)
            changed = int(file.changed * 1e9)
            size = {"st_size": len(file.data), "st_nlink": 1, "st_mtime": changed}
            return {**common, **size, "st_mode": stat.S_IFREG | file.mode}

        def readdir(self, path: str, fh: int) -> list[str]:
            inside = path.rstrip("/") + "/"
            names = [name for name in (*self.files, *self.dirs) if name.startswith(inside) and name != path]
            return [".", "..", *(name[len(inside) :] for name in names if "/" not in name[len(inside) :])]

        def mkdir(self, path: str, mode: int) -> int:
            self.dirs[path] = mode & 0o777
            return 0

        def rmdir(self, path: str) -> int:
            del self.dirs[path]
            return 0

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            self.files[path] = _File(mode & 0o777)
            return self.open(path, 0)

        def open(self, path: str, flags: int) -> int:
            if path not in self.files:
                raise mfusepy.FuseOSError(errno.ENOENT)
            self.next_handle += 1
            self.open_files[self.next_handle] = self.files[path]
            return self.next_handle

        def release(self, path: str, fh: int) -> int:
            self.open_files.pop(fh, None)
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return bytes(self.open_files[fh].data[offset : offset + size])

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            self.open_files[fh].write(bytes(data), offset)
            return len(data)

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            file = self.open_files.get(fh or 0) or self.files.get(path)
            if file is None:
                raise mfusepy.FuseOSError(errno.ENOENT)
            file.truncate(length)
            return 0

        def chmod(self, path: str, mode: int) -> int:
            if path in self.files:
                self.files[path].mode = mode & 0o777
            return 0

        def chown(self, path: str, uid: int, gid: int) -> int:
            return 0

        def utimens(self, path: str, times: Any = None) -> int:
            return 0

        def unlink(self, path: str) -> int:
            del self.files[path]
            return 0

        def rename(self, old: str, new: str) -> int:
            self.files[new] = self.files.pop(old)
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            self.flushes += 1
            self.open_files[fh].flush(lost=self.flushes == nth)
            if self.flushes == nth:
                raise mfusepy.FuseOSError(errno.EIO)
            return 0

        def destroy(self, path: str) -> None:
            for name in sorted(self.dirs):
                (left / name.lstrip("/")).mkdir(exist_ok=True)
            for name, file in self.files.items():
                (left / name.lstrip("/")).write_bytes(file.safe)

    mfusepy.FUSE(Disk(), place, foreground=True, nothreads=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
