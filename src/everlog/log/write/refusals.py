"""The error log: what was refused, why, and what to do instead.

A refusal is written beside the events, never among them, and never contains a payload: only the reason and its facts.
It is kept for 90 days. If it cannot be written, that is logged and not raised.

It costs no flush. It waits in memory for the next write of this handle that records something. What still waits when
the handle is closed goes to a file beside the log, which is not flushed, and from there into the log with the next
write of any process. PostgreSQL has no such file: there it is committed at once, without waiting for the disk. A
kill may lose what is in memory, and a power cut what is in the file.

A purge cannot reach what waits in other processes. So a refusal that is older than a purge of its stream is dropped
wherever it is taken from, and is not shown.

At most 100 refusals per actor and minute are recorded; the rest are counted. The count is kept in the log and read
inside the write, so it holds for all processes together.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from everlog.core.event import Purge
from everlog.core.ids import IdSource
from everlog.core.query import in_scope
from everlog.errors import Conflict, EverlogError, NoSuchSubject, RejectedEvent
from everlog.log.secrets.find import find_secrets
from everlog.log.write.committer import Committer
from everlog.log.write.refusal_rows import (
    COUNTED,
    KEPT_US,
    MINUTE_US,
    PER_MINUTE,
    PREFIX,
    Counted,
    NotTaken,
    Refusal,
    Waiting,
    are_all_rows,
    counted_key,
    counted_of,
    not_taken,
    rows_of,
    taken_row,
    without_purged,
)
from everlog.log.write.stages import Stages
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, Row, StoreState, read_notes

_WAITING_MAX = 1000  # then they are written without waiting for a commit
_LOOKS_MAX = 5
_TEXT_CHARS_MAX = 2_000
_ITEMS_MAX = 100

_logger = logging.getLogger("everlog")


class Refusals:
    def __init__(
        self,
        state: StoreState,
        committer: Committer,
        stages: Stages,
        *,
        purges: Callable[[], list[Purge]],
        now_us: Callable[[], int],
    ) -> None:
        self._state = state
        self._file = state.waiting
        self._committer = committer
        self._stages = stages  # this is one of them while something waits, and with a file always
        self._purges = purges
        self._now_us = now_us
        self._ids = IdSource(now_ms=lambda: now_us() // 1000)
        # It also guards the ids: two threads must not get the same one.
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._written_in: OpenWrite | None = None  # the write that has what waits already
        self._being_written: list[Waiting] = []
        self._taken = b""  # the content of the file that the write takes
        self._minute = 0
        self._said: dict[str, int] = {}  # by actor, how many there were here in this minute
        self._beyond: dict[str, Waiting] = {}  # by actor, what counts those that are not recorded
        self.admits: Callable[[], bool] = _always  # a server bounds how many of a caller it records
        committer.forked = self._waiting.clear
        if self._file is not None:
            stages.add(self)

    def record(
        self, error: EverlogError, *, operation: str, stream: str, type: str, actor: str, scope: str = ""
    ) -> None:
        """Remember a refusal; only what the caller asked for wrongly is one, not a full disk."""
        if isinstance(error, RejectedEvent | Conflict | NoSuchSubject) and self.admits():
            self.keep(
                code=error.code,
                reason=str(error),
                hint=error.hint,
                operation=operation,
                stream=stream,
                type=type,
                actor=actor,
                context=error.details,
                scope=scope,
            )

    def keep(
        self,
        *,
        code: str,
        reason: str,
        operation: str,
        stream: str,
        type: str,
        actor: str,
        context: Mapping[str, Any],
        hint: str = "",
        scope: str = "",
    ) -> None:
        """Remember a refusal by its facts. The `actor` is who asked: an actor, or the node that sent an event."""
        now_us = self._now_us()
        by = actor[:_TEXT_CHARS_MAX]
        with self._lock:
            if self._is_beyond(by, now_us // MINUTE_US):
                return
            refusal_id = self._ids.take(1)[0]
        refusal = Refusal(
            id=refusal_id,
            code=code,
            stream=stream[:_TEXT_CHARS_MAX],
            type=type[:_TEXT_CHARS_MAX],
            actor=actor[:_TEXT_CHARS_MAX],
            operation=str(operation)[:_TEXT_CHARS_MAX],
            reason=reason[:_TEXT_CHARS_MAX],
            hint=hint[:_TEXT_CHARS_MAX],
            scope=scope[:_TEXT_CHARS_MAX] or msgspec.UNSET,
            refused_at=datetime.fromtimestamp(now_us / 1_000_000, UTC),
            context=_printable(dict(context)),
        )
        # Names of the wrong shape are refused too, and what was wrong with them may be that they have no JSON form.
        kept = _clean(msgspec.to_builtins(refusal))
        waiting = Waiting(
            counted_key(by, now_us // MINUTE_US),
            kept["actor"],
            now_us // MINUTE_US,
            key=PREFIX + refusal.id,
            stream=kept["stream"],
            expires_us=now_us + KEPT_US,
            refusal=msgspec.Raw(msgspec.json.encode(kept)),
        )
        with self._lock:
            self._wait(waiting)
            many = len(self._waiting) >= _WAITING_MAX
        if many:
            self.write()

    def _is_beyond(self, actor: str, minute: int) -> bool:
        """Count a refusal; True when its actor has so many in this minute that it is not recorded."""
        if minute != self._minute:
            self._minute = minute
            self._said.clear()
            self._beyond.clear()
        self._said[actor] = self._said.get(actor, 0) + 1
        if self._said[actor] <= PER_MINUTE:
            return False
        waiting = self._beyond.get(actor)
        if waiting is None:
            waiting = self._beyond[actor] = Waiting(counted_key(actor, minute), _clean(actor), minute, times=0)
            self._wait(waiting)
        waiting.times += 1
        return True

    def _wait(self, one: Waiting) -> None:
        self._waiting.append(one)
        if len(self._waiting) == 1:
            self._stages.add(self)

    def write(self) -> None:
        """Write what waits, when the handle is closed or too much waits: to the file, or else in a separate write."""
        if not self._waiting:
            return
        try:
            if not self._put_into_file():
                self._committer.write(self._write)
        except Exception as also:  # whatever it is, the refusal that led here is what the caller must hear
            _logger.warning("%d refusals could not be recorded: %s", len(self._waiting), also)
            with self._lock:
                self._waiting.clear()
                self._beyond.clear()

    def _put_into_file(self) -> bool:
        """Return False if there is no such file, it cannot be written, it is full, or a write has them already."""
        if self._file is None:
            return False
        with self._lock:
            if self._written_in is not None:
                return False
            some, self._waiting[:] = list(self._waiting), []
            self._beyond.clear()
        done = False
        try:
            done = self._file.add([msgspec.json.encode(one) for one in some])
        except (OSError, EverlogError) as error:
            _logger.debug("%s could not be written: %s", self._file.path, error)  # then they go into the log itself
        finally:
            if not done:
                with self._lock:
                    self._waiting[:0] = some
        return done

    # ---- a stage of every write

    name = "refusals"

    def run(self, write: OpenWrite) -> None:
        """Write what waits, here and in the file, within a write that records something anyway."""
        if write is self._written_in:
            return
        if self._written_in is not None:
            self.undone()  # an earlier write that failed before its stages ran has left something
        if not write.dirty or not (self._waiting or (self._file is not None and self._file.is_there())):
            return
        try:
            with write.attempt():
                self._write(write)
        except Exception as error:  # nobody's append fails because of it
            _logger.warning("%d refusals could not be recorded: %s", len(self._waiting), error)

    def committed(self) -> None:
        self._written_in = None
        if self._being_written:
            with self._lock:
                done = {id(one) for one in self._being_written}
                self._waiting[:] = [one for one in self._waiting if id(one) not in done]
                if not self._waiting and self._file is None:
                    self._stages.remove(self)
            self._being_written = []
        taken, self._taken = self._taken, b""
        if taken and self._file is not None:
            try:
                self._file.remove(taken)
            except (OSError, EverlogError) as error:  # they are in the log, which knows that
                _logger.warning("%s could not be emptied: %s", self._file.path, error)

    def undone(self) -> None:
        self._written_in = None
        self._being_written, self._taken = [], b""

    def _write(self, write: OpenWrite) -> None:
        with self._lock:
            self._written_in = write
            some = list(self._waiting)
            self._beyond.clear()  # what is counted from here on is written next time
        try:
            taken = self._write_rows(write, some)
        except BaseException:  # nothing of it is kept, although others may commit the same write
            self.undone()
            raise
        self._being_written, self._taken = some, taken

    def _write_rows(self, write: OpenWrite, some: list[Waiting]) -> bytes:
        """Write what waits in the file, and these; return the content of the file."""
        data = b""
        purged, purges = {purge.stream for purge, _ in write.staged_purges}, write.purges()

        def not_purged(waiting: Sequence[Waiting]) -> list[Waiting]:
            return [one for one in without_purged(waiting, purges, write) if one.stream not in purged]

        if self._file is not None and (data := self._file.read_settled()):
            found = not_taken(write, self._file, data)
            _put(write, rows_of(write, not_purged(found.waiting)))
            if not are_all_rows(write, found):
                _put(write, [taken_row(found, write.now_us)])
            if found.newly_damaged:
                _logger.warning(
                    "%s: %d lines cannot be read; they are left out", self._file.path, found.newly_damaged
                )
        _put(write, rows_of(write, not_purged(some)))
        return data

    # ---- reading

    def newest(
        self,
        *,
        limit: int | None = 50,
        code: str = "",
        stream: str = "",
        actor: str = "",
        operation: str = "",
        within: str = "",
    ) -> Iterator[Refusal]:
        """Refusals, the newest first, by any of their facts."""
        left = limit
        fetched = limit if not (code or stream or actor or operation or within) else None
        for _, text in sorted(self._rows(PREFIX, limit=fetched).items(), reverse=True):
            refusal = msgspec.json.decode(text, type=Refusal)
            if (code and refusal.code != code) or (stream and refusal.stream != stream):
                continue
            if (actor and refusal.actor != actor) or (operation and refusal.operation != operation):
                continue
            if within and not (refusal.scope and in_scope(refusal.scope, within)):
                continue
            if left is not None:
                if left <= 0:
                    return
                left -= 1
            yield refusal

    def left_out(self) -> list[Counted]:
        """The minutes in which an actor had more refusals than are recorded, the newest first."""
        counts = [counted_of(text) for _, text in sorted(self._rows(COUNTED).items(), reverse=True)]
        return [one for one in counts if one.left_out]

    def damaged(self) -> int:
        """How many lines of the file could not be read, and were left out."""
        return 0 if self._file is None else not_taken(self._state, self._file, self._file.read()).damaged

    def _rows(self, prefix: str, *, limit: int | None = None) -> dict[str, str]:
        """The rows as the next write would leave them: those of the log, of the file, and of what waits here."""
        now_us = self._now_us()
        with self._lock:
            here = list(self._waiting)
        for _ in range(_LOOKS_MAX):
            # The file first: what a write takes out of it meanwhile is in the rows then.
            found = self._in_file()
            waiting = here if found is None else [*found.waiting, *here]
            made = rows_of(self._state, without_purged(waiting, self._purges(), self._state) if waiting else [])
            rows = read_notes(self._state, prefix, limit=limit, newest_first=True)
            for row in made:
                if row.key.startswith(prefix) and (row.expires_us or 0) > now_us:
                    rows[row.key] = row.value.decode()
            if found is None or self._in_file() == found:
                break
        return rows

    def _in_file(self) -> NotTaken | None:
        data = b"" if self._file is None else self._file.read()
        return not_taken(self._state, self._file, data) if data and self._file is not None else None

    def counts(self) -> list[tuple[str, str, int]]:
        """Return (code, type, count), the most common first."""
        found = Counter((refusal.code, refusal.type) for refusal in self.newest(limit=None))
        return [(code, type_, count) for (code, type_), count in found.most_common()]


def forget_refusals(writer: OpenWrite, streams: Collection[str], texts: Collection[bytes] = ()) -> None:
    """Remove what is remembered of refusals about streams, and of those that contain one of the texts."""
    for key, text in read_notes(writer, PREFIX).items():
        stream, data = msgspec.json.decode(text, type=Refusal).stream, text.encode()
        if stream in streams or any(one in data for one in texts):
            writer.put(NOTES, {key: None})


def _always() -> bool:
    return True


def _put(write: OpenWrite, rows: list[Row]) -> None:
    for row in rows:
        write.put(row.space, {row.key: row.value}, expires_us=row.expires_us, may_be_lost=True)


def _clean(value: Any) -> Any:
    """The same value as it may be kept: encodable, short, and without secrets."""
    return _without_secrets(_printable(value))


def _without_secrets(value: Any) -> Any:
    """The same value without any text that looks like a secret: the reason may name a key, and a key may be one."""
    match value:
        case str():
            return "(withheld: it looks like a secret)" if find_secrets({"text": value}) else value
        case dict():
            return {_without_secrets(key): _without_secrets(item) for key, item in value.items()}
        case list():
            return [_without_secrets(item) for item in value]
        case _:
            return value


def _printable(value: Any) -> Any:
    """The same value with every text made encodable, and cut to what a reader would read."""
    match value:
        case str():
            return value[:_TEXT_CHARS_MAX].encode(errors="backslashreplace").decode()
        case dict():
            return {_printable(str(key)): _printable(item) for key, item in islice(value.items(), _ITEMS_MAX)}
        case list() | tuple():
            return [_printable(item) for item in value[:_ITEMS_MAX]]
        case None | bool() | int() | float():
            return value
        case _:
            return _printable(repr(value))
