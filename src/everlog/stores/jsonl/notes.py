"""Small state that is not history, in `local/notes.jsonl`: notes, and claims that belong to no event line.

    {"at":12,"claims":{"<base64>":[first,count]},"notes":{"<key>":["<value>",expires_us]},"of":"<id>","xsum":"…"}

A line that commits together with events is written and flushed *before* them and names the first of them in `of`:
it counts once that id is in the log. So after a crash there is never a note without its events, nor an event without
its note. A value of null removes the note. Expired and replaced notes are removed when the file is rewritten, which
happens when most of it is obsolete, and at every purge: an old response may hold purged text.

`local/notes.end` keeps how far the file was acknowledged:

    {"end":4922,"made":3,"xsum":"…"}

`made` counts how often the file was rewritten; the first line of a rewritten file has it, too. So a file that was
cut, removed or replaced by an older copy differs from one whose last write was cut short by a crash. The end is
written after the line is flushed, and is not flushed itself: a power cut may leave an older one, never a newer one. A
line with `lost` says that lines before it are gone. It stays until somebody accepts that (`accept_lost`).
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable

import msgspec

from everlog.core.event import Position
from everlog.core.text import counted
from everlog.errors import Damaged, EverlogError
from everlog.files import Files, Stamp, replace_file
from everlog.stores.contract import Claim
from everlog.stores.jsonl.day_files import looks_torn, read_from
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.lines import BadLine, ended, refuse_changed

Notes = dict[str, tuple[str | None, int | None]]
_DEAD_LINES_MAX = 2_000
_logger = logging.getLogger("everlog")


class _Line(msgspec.Struct, omit_defaults=True):
    at: int
    claims: dict[str, tuple[int, int]] = {}
    notes: Notes = {}
    of: str = ""
    made: int = 0  # only in the first line
    lost: bool = False
    xsum: str = ""


class _End(msgspec.Struct, omit_defaults=True):
    """How far a file of notes was acknowledged."""

    end: int
    made: int
    xsum: str = ""


_NOTHING = _End(0, 0)
_decode_end = msgspec.json.Decoder(_End).decode
_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class NotesFile:
    """The content of the file, read again when another process has written it."""

    _stamp: Stamp | None
    _waiting: bool  # a line waits for its events
    _notes: dict[str, tuple[str, int | None]]
    _claims: dict[bytes, tuple[int, Claim]]
    _lines: int
    _bad: int
    _end: int
    _unended: bool  # the last line is damaged and lacks its newline
    _made: int
    _lost: bool  # lines that were acknowledged are gone
    _marked: bool  # and a line says so

    def __init__(self, folder: Folder, is_known: Callable[[str], bool]) -> None:
        self._files: Files = folder.files
        self._path = folder.notes_file
        self._end_path = folder.notes_end_file
        self._is_known = is_known
        self.forget()

    def notes(self) -> dict[str, tuple[str, int | None]]:
        self._refresh()
        return self._notes

    def claims(self) -> dict[bytes, tuple[int, Claim]]:
        self._refresh()
        return self._claims

    def claimed(self, name: bytes) -> tuple[int, Claim] | None:
        """Return the claim, and the head of the log when it was made."""
        self._refresh()
        return self._claims.get(name)

    def lost(self) -> Damaged | None:
        """Return the error for lines that cannot be read or are gone, None if there are none."""
        self._refresh()
        if not self._bad and not self._lost:
            return None
        if self._bad:
            what = f"{counted(self._bad, 'line')} of local/notes.jsonl cannot be read"
            why = "the file was changed or damaged on the disk"
        else:
            what = "local/notes.jsonl lacks lines that were written to it"
            why = "the file was cut, removed or replaced by an older copy, or a purge removed lines that were damaged"
        return Damaged(
            what,
            why=why,
            hint="restore local/notes.jsonl, or continue without the lost lines: docs/how-to/rescue.md",
            file="local/notes.jsonl",
        )

    def append(self, notes: Notes, claims: dict[bytes, Claim], *, at: int, of: str, now_us: int) -> None:
        """Write and flush them. The caller holds the lock."""
        self._refresh()
        named = {b64encode(name).decode(): (int(claim.first), claim.count) for name, claim in claims.items()}
        line = _Line(at=at, claims=named, notes=notes, of=of)
        if self._lines > _DEAD_LINES_MAX + 4 * (len(self._notes) + len(self._claims)) and not self._bad:
            self._rewrite(now_us)
        fresh = not self._files.exists(self._path)
        handle = self._files.open(self._path, create=True)
        try:
            data = ended(_encode(line))
            if self._lost and not self._marked:
                # From now on the end of the file is that of the new line, and does not show any more what is gone.
                data = ended(_encode(_Line(at=at, lost=True))) + data
            data = (b"\n" if self._unended else b"") + data
            if self._files.size(handle) > self._end:
                # A crash left a part of another line. It is removed and flushed before the new line is written: the
                # end of a longer line after a shorter one would look like damage.
                self._files.truncate(handle, self._end)
                self._files.flush(handle)
            try:
                self._files.write_all(handle, data, at=self._end)
            except BaseException:
                self._files.truncate(handle, self._end)
                raise
            self._files.flush(handle)
        finally:
            self._files.close(handle)
        if fresh:
            self._files.fsync_dir(self._path.parent)
        self._write_end(_End(self._end + len(data), self._made))
        self._stamp = None

    def accept_lost(self, now_us: int) -> bool:
        """Continue without the lines that cannot be read or are gone; the caller holds the lock. Return whether there
        were any."""
        if self.lost() is None:
            return False
        self._bad, self._lost = 0, False
        self._rewrite(now_us)
        return True

    def clean(self, now_us: int) -> None:
        """Leave no byte of a note that is replaced, expired or removed; the caller holds the lock."""
        if not self._files.exists(self._path):
            return
        self._refresh()
        if self._bad:
            # They may hold the purged text, which cannot be determined.
            _logger.warning("%s: a purge removes %d lines that cannot be read", self._path, self._bad)
        self._rewrite(now_us)

    def _rewrite(self, now_us: int) -> None:
        made = max(self._made, self._read_end().made) + 1
        live = {
            key: (value, expires)
            for key, (value, expires) in self._notes.items()
            if expires is None or expires > now_us
        }
        lines = [_Line(at=0, made=made, lost=bool(self._bad) or self._lost)]
        lines += [
            _Line(at=at, claims={b64encode(name).decode(): (claim.first, claim.count)})
            for name, (at, claim) in self._claims.items()
        ]
        lines += [_Line(at=0, notes={key: note}) for key, note in live.items()]
        data = b"".join(ended(_encode(line)) for line in lines)
        replace_file(self._files, self._path, data)
        self._write_end(_End(len(data), made))
        self.forget()
        self._refresh()

    def forget(self) -> None:
        """Read the file again on its next use: which events are known may have changed."""
        self._stamp = None
        self._waiting = False
        self._notes = {}
        self._claims = {}
        self._lines = self._bad = self._end = self._made = 0
        self._unended = self._lost = self._marked = False

    def _refresh(self) -> None:
        stamp = self._files.stamp(self._path)
        if stamp is not None and stamp == self._stamp and not self._waiting:
            return
        self.forget()
        acknowledged = self._read_end()  # before the file, which another process may make longer meanwhile
        stamp = self._files.stamp(self._path)
        if stamp is None and acknowledged == _NOTHING:
            return
        data = b"" if stamp is None else read_from(self._files, self._path)
        size = len(data)
        if acknowledged.end == size + 1:
            data += b"\n"  # if the rest of the line is whole, nothing is lost
        at = last_at = 0
        bad = 0
        while (end := data.find(b"\n", at)) >= 0:
            try:
                refuse_changed(data[at:end])
                self._take(_decode(data[at:end]))
                self._bad += bad  # a bad line is the torn end of the file only if no good one follows
                bad = 0
                self._end = end + 1
            except (BadLine, msgspec.DecodeError, UnicodeDecodeError):
                bad += 1
                last_at = at
            at = end + 1
        if at < len(data):
            bad, last_at = bad + 1, at
        gone = (acknowledged.made, acknowledged.end) > (self._made, self._end)
        torn = looks_torn(data[self._end :], self._end, last_at) or _lacks_its_newline(data[last_at:])
        if gone or bad > 1 or (bad and not torn):
            # No write that was cut short leaves this. It stays where it is, and what is written goes behind it.
            self._bad += bad
            self._end = size
        self._lost |= gone and not bad
        self._end = min(self._end, size)
        self._unended = self._end == size > 0 and data[size - 1 : size] != b"\n"
        self._stamp = stamp

    def _read_end(self) -> _End:
        """Return how far the file was acknowledged, as far as that is known."""
        if not self._files.exists(self._end_path):
            return _NOTHING
        line = self._files.read_all(self._end_path).partition(b"\n")[0]
        try:
            refuse_changed(line)
            return _decode_end(line)
        except (BadLine, msgspec.DecodeError, UnicodeDecodeError):
            return _NOTHING

    def _write_end(self, end: _End) -> None:
        """Keep how far the file is acknowledged. The notes are on the disk, so a failure is only logged."""
        try:
            handle = self._files.open(self._end_path, create=True)
            try:
                self._files.write_all(handle, ended(_encode(end)), at=0)
            finally:
                self._files.close(handle)
        except (OSError, EverlogError) as error:
            _logger.warning("the end of the notes could not be kept in %s: %s", self._end_path, error)

    def _take(self, line: _Line) -> None:
        self._lines += 1
        self._made = max(self._made, line.made)
        if line.lost:
            self._lost = self._marked = True
        if line.of and not self._is_known(line.of):
            self._waiting = True
            return
        for key, (value, expires) in line.notes.items():
            if value is None:
                self._notes.pop(key, None)
            else:
                self._notes[key] = (value, expires)
        for name, (first, count) in line.claims.items():
            self._claims[b64decode(name)] = (line.at, Claim(Position(first), count))


def _lacks_its_newline(rest: bytes) -> bool:
    """True for a line that a crash cut just before its last byte."""
    try:
        refuse_changed(rest)
    except BadLine:
        return False
    return True
