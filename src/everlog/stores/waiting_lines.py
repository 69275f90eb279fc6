"""Lines beside a log that wait for its next write, in a small file that is never flushed.

    {"log":"<id of the log>",…,"whole":"<CRC-32>"}

A process that closes the log adds its lines with one write. The next write of any process takes them into the log and
then removes them here. A process that adds or removes holds a lock on the file for that moment, so no line is lost
between the two; reading takes no lock. A kill may leave a part of a line, and a power cut may leave anything: such a
line is left out and counted. A file of another program under this name is neither read nor changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from everlog.errors import EverlogError
from everlog.files import Files, Handle

BYTES_MAX = 256 * 1024
"""The file does not grow beyond this. What does not fit is written into the log at once."""

_OPENING = b'{"log":"'
_WHOLE = b',"whole":"%08x"}'
_WHOLE_BYTES = len(_WHOLE % 0)
_ADD_WAIT_S = 1.0  # the process that has the lock needs it for one write without a flush
_WAIT_S = 0.02  # within a write of the log, which can leave it to the next one


class WaitingLines:
    def __init__(self, files: Files, path: Path, log_id: Callable[[], str]) -> None:
        self.path = path
        # Not the suffix of other temporary files: the process that has the lock of the log removes those.
        self._draft = path.with_name(path.name + ".new")
        self._files = files
        self._log_id = log_id

    def is_there(self) -> bool:
        """Return whether something may wait. This is asked before every write."""
        try:
            return self._files.inode(self.path) is not None
        except (OSError, EverlogError):
            return False

    def read(self) -> bytes:
        """Return the content, or nothing if there is none, it cannot be read, or it is of another program."""
        try:
            stamp = self._files.stamp(self.path)
            if stamp is None or not stamp.size:  # a pipe has no size: opening it would wait for ever
                return b""
            handle = self._files.open(self.path)
            try:
                return self._content(handle)
            finally:
                self._files.close(handle)
        except (OSError, EverlogError):
            return b""

    def read_settled(self) -> bytes:
        """Return the content while nobody adds to it, so that a line without an end was cut short by a kill."""
        try:
            handle = self._open_alone(create=False, wait_s=_WAIT_S)
            try:
                return self._content(handle)
            finally:
                self._files.close(handle)
        except (OSError, EverlogError):
            return b""

    def lines_of(self, data: bytes) -> tuple[list[bytes], int]:
        """Return the lines of this log in a content, and how many others there are: damaged, or of another log."""
        lines = [line for line in data.split(b"\n") if line]
        if data and not data.endswith(b"\n"):
            lines[-1] = b""  # a line is complete when its end is there
        beginning = _OPENING + self._log_id().encode() + b'"'
        good = [line for line in lines if line.startswith(beginning) and is_whole(line)]
        return good, len(lines) - len(good)

    def add(self, objects: Iterable[bytes]) -> bool:
        """Add JSON objects with one write, not flushed. Return False if they do not fit or the file is not ours."""
        log = _OPENING + self._log_id().encode() + b'",'
        data = b"".join([ended(log + each[1:]) for each in objects])
        handle = self._open_alone(create=True, wait_s=_ADD_WAIT_S)
        try:
            size = self._files.size(handle)
            if size + len(data) >= BYTES_MAX or not self._is_ours(handle):
                return False
            if size and self._files.read(handle, 1, at=size - 1) != b"\n":
                data = b"\n" + data  # what a kill left of a line must not spoil the next one
            written = 0
            try:
                written = self._files.write(handle, data, at=size)
            finally:
                if written < len(data):
                    self._undo(handle, size)
            return written == len(data)
        finally:
            self._files.close(handle)

    def remove(self, taken: bytes) -> None:
        """Remove what was read and is in the log now. What was added meanwhile stays."""
        try:
            handle = self._open_alone(create=False, wait_s=_WAIT_S)
        except FileNotFoundError:
            return  # another process has removed it
        try:
            content = self._content(handle)
            if not content.startswith(taken) or not self._is_ours(handle):
                return
            rest = content[len(taken) :].lstrip(b"\n")
            if self._files.exists(self._draft):  # of a process that was killed: it may hold what a purge removes
                self._files.unlink(self._draft)
            if rest:
                self._replace(rest)
            else:
                self._files.unlink(self.path)
        finally:
            self._files.close(handle)

    # ---- inside

    def _open_alone(self, *, create: bool, wait_s: float) -> Handle:
        """Open the file and lock it until it is closed."""
        while True:
            handle = self._files.open(self.path, write=True, create=create, append=True)
            try:
                self._files.hold(handle, wait_s=wait_s)
                if self._files.watch(handle).holds():
                    return handle
            except BaseException:
                self._files.close(handle)
                raise
            self._files.close(handle)  # it was removed or replaced while we waited: the next one has the name

    def _content(self, handle: Handle) -> bytes:
        size = self._files.size(handle)
        return self._files.read(handle, size, at=0) if 0 < size <= BYTES_MAX and self._is_ours(handle) else b""

    def _is_ours(self, handle: Handle) -> bool:
        start = self._files.read(handle, len(_OPENING), at=0)
        return _OPENING.startswith(start) or not start.strip(b"\0")

    def _undo(self, handle: Handle, size: int) -> None:
        if size:
            self._files.truncate(handle, size)
        else:
            self._files.unlink(self.path)

    def _replace(self, content: bytes) -> None:
        """Rename another file over this one: a process that is killed leaves the old or the new content."""
        handle = self._files.open(self._draft, exclusive=True)
        try:
            self._files.write_all(handle, content, at=0)
        finally:
            self._files.close(handle)
        self._files.rename(self._draft, self.path)


def ended(data: bytes) -> bytes:
    """Return a JSON object with the CRC-32 of its bytes as its last member, and the newline."""
    before = data[:-1]
    return before + _WHOLE % zlib.crc32(before) + b"\n"


def is_whole(line: bytes) -> bool:
    """Return whether the checksum of a line, given without its newline, matches."""
    return line[-_WHOLE_BYTES:] == _WHOLE % zlib.crc32(line[:-_WHOLE_BYTES])
