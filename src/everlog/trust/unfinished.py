"""A forget that is not finished, noted beside the keys, so that a process that is killed leaves nothing half done.

The note lies in the folder of the key ring, which is neither part of the log nor of its backups. It is encrypted with
the secret of the ring: it has the values that must be gone, to search for them at the end. When the forget is
finished, the file is removed and its bytes are overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everlog.errors import Busy, Damaged
from everlog.files import Files, leftover_temps, replace_file
from everlog.trust.ring import FILE_MODE, KeyRing

_NAME, _LOCK = "forgetting", "forgetting.lock"
_WAIT_S = 10.0


def note_in(files: Files, ring: Path) -> bool:
    """Return whether the folder of a key ring has the note of a forget that is not finished."""
    return files.exists(ring / _NAME)


class Unfinished:
    """The one forget that is being carried out with a key ring."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._in_memory = b""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock: only one process forgets at a time."""
        folder, files = self._ring.folder, self._ring.files
        if folder is None:
            yield
            return
        self._ring.make_folder()
        lock = files.lock(folder / _LOCK)
        try:
            lock.acquire(timeout=_WAIT_S)
        except Busy as error:
            lock.close()
            raise Busy(
                "another process is forgetting somebody", why=error.why, hint="repeat the command when it is done"
            ) from error
        try:
            yield
        finally:
            lock.release()
            lock.close()

    def is_there(self) -> bool:
        folder = self._ring.folder
        return bool(self._in_memory) if folder is None else note_in(self._ring.files, folder)

    def read(self) -> bytes | None:
        folder = self._ring.folder
        if not self.is_there():
            return None
        if folder is None:
            return self._ring.decrypted(self._in_memory)
        try:
            return self._ring.decrypted(self._ring.files.read_all(folder / _NAME))
        except Damaged as error:
            hint = f"remove {folder / _NAME}, and forget that person once more"
            raise Damaged(error.what, why=error.why, hint=hint) from error

    def write(self, data: bytes) -> None:
        """Note what is about to be done. When this returns, it is on the disk."""
        folder, encrypted = self._ring.folder, self._ring.encrypted(data)
        if folder is None:
            self._in_memory = encrypted
        else:
            replace_file(self._ring.files, folder / _NAME, encrypted, mode=FILE_MODE)

    def remove(self) -> None:
        """Remove the note and overwrite its bytes, with what a killed process left of one."""
        folder, files = self._ring.folder, self._ring.files
        self._in_memory = b""
        if folder is None:
            return
        for path in (folder / _NAME, *leftover_temps(files, folder)):
            if not files.exists(path):
                continue
            handle = files.open(path, write=True)
            try:
                files.unlink(path)  # first: a note that is overwritten in part could not be read
                files.fsync_dir(folder)
                files.write_all(handle, bytes(files.size(handle)), at=0)
                files.fsync(handle)
            finally:
                files.close(handle)
