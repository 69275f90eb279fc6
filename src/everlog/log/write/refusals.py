"""The error log: what was refused, why, and what to do instead.

A refusal is written beside the events, never among them, and never contains a payload: only the reason and its facts.
It is kept for 90 days. If it cannot be written, that is logged and not raised.

A refusal waits in memory for the next write of this handle that records something, or until the handle is closed, so
a crash may lose it. It costs no separate flush while the handle is open. What still waits when the handle is closed
is written then; only PostgreSQL does that without a flush.

At most 100 refusals per actor and minute are recorded; the rest are counted. The count is kept in the log and read
inside the write, so it holds for all processes together.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from everlog.core.ids import EventId, IdSource
from everlog.errors import Conflict, EverlogError, NoSuchSubject, RejectedEvent
from everlog.log.secrets.find import find_secrets
from everlog.log.write.committer import Committer
from everlog.log.write.stages import Stages
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader, read_note, read_notes

KEPT_US = 90 * 24 * 60 * 60 * 1_000_000
PER_MINUTE = 100
"""So many refusals of an actor are recorded in a minute; the rest are counted."""

_MINUTE_US = 60_000_000
_WAITING_MAX = 1000  # then they are written without waiting for a commit
_PREFIX = "refusal/"
_COUNTED = "refused/"  # how many of an actor there were in a minute
_TEXT_CHARS_MAX = 2_000
_ITEMS_MAX = 100

_logger = logging.getLogger("everlog")


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded no."""

    id: EventId
    code: str
    stream: str
    type: str
    actor: str
    operation: str
    reason: str
    hint: str
    refused_at: datetime
    context: dict[str, Any] = {}


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """How many refusals of an actor there were in a minute: the first of them are recorded, all are counted."""

    actor: str
    minute: int  # since 1970
    count: int

    @property
    def left_out(self) -> int:
        return max(0, self.count - PER_MINUTE)

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.minute * 60, UTC)


class _Waiting(msgspec.Struct):
    """A refusal that is not written yet; or, without a text, how many more there were than are recorded."""

    actor: str
    minute: int
    key: str = ""
    text: str = ""
    stream: str = ""
    expires_us: int = 0
    times: int = 1


class Refusals:
    def __init__(self, state: RowReader, committer: Committer, stages: Stages, *, now_us: Callable[[], int]) -> None:
        self._state = state
        self._committer = committer
        self._stages = stages  # this is one of them while something waits
        self._now_us = now_us
        self._ids = IdSource(now_ms=lambda: now_us() // 1000)
        # It also guards the ids: two threads must not get the same one.
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._written_in: OpenWrite | None = None  # the write that has what waits already
        self._being_written: list[_Waiting] = []
        self._minute = 0
        self._said: dict[str, int] = {}  # by actor, how many there were here in this minute
        self._beyond: dict[str, _Waiting] = {}  # by actor, what counts those that are not recorded
        committer.forked = self._waiting.clear

    def record(self, error: EverlogError, *, operation: str, stream: str, type: str, actor: str) -> None:
        """Remember a refusal; only what the caller asked for wrongly is one, not a full disk."""
        if not isinstance(error, RejectedEvent | Conflict | NoSuchSubject):
            return
        now_us = self._now_us()
        by = actor[:_TEXT_CHARS_MAX]
        with self._lock:
            if self._is_beyond(by, now_us // _MINUTE_US):
                return
            refusal_id = self._ids.take(1)[0]
        refusal = Refusal(
            id=refusal_id,
            code=error.code,
            stream=stream[:_TEXT_CHARS_MAX],
            type=type[:_TEXT_CHARS_MAX],
            actor=actor[:_TEXT_CHARS_MAX],
            operation=str(operation)[:_TEXT_CHARS_MAX],
            reason=str(error)[:_TEXT_CHARS_MAX],
            hint=error.hint[:_TEXT_CHARS_MAX],
            refused_at=datetime.fromtimestamp(now_us / 1_000_000, UTC),
            context=_printable(error.details),
        )
        # Names of the wrong shape are refused too, and what was wrong with them may be that they have no JSON form.
        text = msgspec.json.encode(_without_secrets(_printable(msgspec.to_builtins(refusal)))).decode()

        with self._lock:
            expires_us = now_us + KEPT_US
            minute = now_us // _MINUTE_US
            self._wait(_Waiting(by, minute, _PREFIX + refusal.id, text, refusal.stream, expires_us))
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
            waiting = self._beyond[actor] = _Waiting(actor, minute, times=0)
            self._wait(waiting)
        waiting.times += 1
        return True

    def _wait(self, one: _Waiting) -> None:
        self._waiting.append(one)
        if len(self._waiting) == 1:
            self._stages.add(self)

    def write(self) -> None:
        """Write what waits, in a separate write: when the handle is closed, or when too much waits."""
        if not self._waiting:
            return
        try:
            self._committer.write(self._write)
        except Exception as also:  # whatever it is, the refusal that led here is what the caller must hear
            _logger.warning("%d refusals could not be recorded: %s", len(self._waiting), also)
            with self._lock:
                self._waiting.clear()
                self._beyond.clear()

    def forget(self, stream: str) -> None:
        """Discard the waiting refusals about a stream that is being purged."""
        with self._lock:
            self._waiting[:] = [one for one in self._waiting if one.stream != stream]

    # ---- a stage of every write

    name = "refusals"

    def run(self, write: OpenWrite) -> None:
        """Write what waits within a write that records something anyway."""
        if not self._waiting or write is self._written_in or not write.dirty:
            return
        try:
            with write.attempt():
                self._write(write)
        except Exception as error:  # nobody's append fails because of it
            _logger.warning("%d refusals could not be recorded: %s", len(self._waiting), error)
            self._being_written = []

    def committed(self) -> None:
        self._written_in = None
        if self._being_written:
            with self._lock:
                done = {id(one) for one in self._being_written}
                self._waiting[:] = [one for one in self._waiting if id(one) not in done]
                if not self._waiting:
                    self._stages.remove(self)
            self._being_written = []

    def undone(self) -> None:
        self._written_in = None
        self._being_written = []

    def _write(self, write: OpenWrite) -> None:
        self._written_in = write
        with self._lock:
            some = list(self._waiting)
            self._beyond.clear()  # what is counted from here on is written next time
        counts: dict[str, Counted] = {}
        for one in some:
            name = _counted_key(one.actor, one.minute)
            before = counts.get(name) or _counted(read_note(write, name)) or Counted(one.actor, one.minute, 0)
            if one.text and before.count < PER_MINUTE:
                write.put(NOTES, {one.key: one.text.encode()}, expires_us=one.expires_us, may_be_lost=True)
            counts[name] = Counted(before.actor, before.minute, before.count + one.times)
        for name, counted in counts.items():
            data = msgspec.json.encode(_without_secrets(_printable(msgspec.to_builtins(counted))))
            write.put(NOTES, {name: data}, expires_us=counted.minute * _MINUTE_US + KEPT_US, may_be_lost=True)
        self._being_written = some

    def newest(
        self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
    ) -> Iterator[Refusal]:
        """Refusals, the newest first, by any of their facts."""
        left = limit
        fetched = limit if not (code or stream or actor or operation) else None
        with self._lock:
            now_us = self._now_us()
            waiting = {one.key: one.text for one in self._waiting if one.text and one.expires_us > now_us}
        found = {**read_notes(self._state, _PREFIX, limit=fetched, newest_first=True), **waiting}
        for _, text in sorted(found.items(), reverse=True):
            refusal = msgspec.json.decode(text, type=Refusal)
            if (code and refusal.code != code) or (stream and refusal.stream != stream):
                continue
            if (actor and refusal.actor != actor) or (operation and refusal.operation != operation):
                continue
            if left is not None:
                if left <= 0:
                    return
                left -= 1
            yield refusal

    def left_out(self) -> list[Counted]:
        """The minutes in which an actor had more refusals than are recorded, the newest first."""
        counts = {name: _counted(text) for name, text in read_notes(self._state, _COUNTED).items()}
        found = {name: one for name, one in counts.items() if one is not None}
        with self._lock:
            for one in self._waiting:
                name = _counted_key(one.actor, one.minute)
                before = found.get(name) or Counted(one.actor, one.minute, 0)
                found[name] = Counted(before.actor, before.minute, before.count + one.times)
        return [one for _, one in sorted(found.items(), reverse=True) if one.left_out]

    def counts(self) -> list[tuple[str, str, int]]:
        """Return (code, type, count), the most common first."""
        found = Counter((refusal.code, refusal.type) for refusal in self.newest(limit=None))
        return [(code, type_, count) for (code, type_), count in found.most_common()]


def forget_refusals(writer: OpenWrite, stream: str) -> None:
    """Remove what is remembered of refusals about a stream that is being purged."""
    for key, text in read_notes(writer, _PREFIX).items():
        if msgspec.json.decode(text, type=Refusal).stream == stream:
            writer.put(NOTES, {key: None})


def _counted_key(actor: str, minute: int) -> str:
    """Its note, by time; the actor may be the very thing that was wrong, so that a hash stands for it."""
    return f"{_COUNTED}{minute:012d}/{hashlib.sha256(actor.encode(errors='backslashreplace')).hexdigest()[:16]}"


def _counted(text: str | None) -> Counted | None:
    return None if text is None else msgspec.json.decode(text, type=Counted)


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
