"""The log's memory of its own noes (seed 000's error log): what was tried, why it was refused, what would have done.

A refusal is written beside the events, never among them, and never holds a payload: only the reason and its facts.
It is kept for 90 days. Recording one must not get in the way: if it cannot be written, that is logged, not raised.

A refusal costs no flush of its own. It waits in memory for the next write of this handle that records something, or
for the handle to be closed, so that a crash may lose it. At most 100 of an actor are recorded in a minute of the
clock; the rest are counted. The count is kept in the log and looked at inside the write, so that it holds for all
processes together.
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
from everlog.log.committer import Committer
from everlog.log.secrets import find_secrets
from everlog.stores.contract import Reader, Writer

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
    def __init__(self, store: Reader, committer: Committer, *, now_us: Callable[[], int]) -> None:
        self._store = store
        self._committer = committer
        self._now_us = now_us
        self._ids = IdSource(now_ms=lambda: now_us() // 1000)
        # Of ids, too: who is refused in two threads at once must not get the same.
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._written_in: Writer | None = None  # the write that has what waits already
        self._minute = 0
        self._said: dict[str, int] = {}  # by actor, how many there were here in this minute
        self._beyond: dict[str, _Waiting] = {}  # by actor, what counts those that are not recorded
        committer.along = self._write_along
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
            self._waiting.append(_Waiting(by, minute, _PREFIX + refusal.id, text, refusal.stream, expires_us))
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
            self._waiting.append(waiting)
        waiting.times += 1
        return True

    def write(self) -> None:
        """Write what waits, in a write of its own: when the handle is closed, or when too much waits."""
        if not self._waiting:
            return
        try:
            self._committer.submit(self._write)()
        except Exception as also:  # whatever it is, the refusal that led here is what the caller must hear
            _logger.warning("%d refusals could not be recorded: %s", len(self._waiting), also)
            with self._lock:
                self._waiting.clear()
                self._beyond.clear()

    def forget(self, stream: str) -> None:
        """Let go what waits about a stream that is being purged."""
        with self._lock:
            self._waiting[:] = [one for one in self._waiting if one.stream != stream]

    def _write_along(self, writer: Writer) -> Callable[[], None] | None:
        """Write what waits within a write that records something anyway; what to call when that is on the disk."""
        if not self._waiting or writer is self._written_in or not getattr(writer, "dirty", True):
            return None
        try:
            with writer.attempt():
                return self._write(writer)
        except Exception as error:  # nobody's append fails because of it
            _logger.warning("%d refusals could not be recorded: %s", len(self._waiting), error)
            return None

    def _write(self, writer: Writer) -> Callable[[], None]:
        self._written_in = writer
        with self._lock:
            some = list(self._waiting)
            self._beyond.clear()  # what is counted from here on is written next time
        counts: dict[str, Counted] = {}
        for one in some:
            name = _counted_key(one.actor, one.minute)
            before = counts.get(name) or _counted(writer.noted(name)) or Counted(one.actor, one.minute, 0)
            if one.text and before.count < PER_MINUTE:
                writer.note(one.key, one.text, expires_us=one.expires_us)
            counts[name] = Counted(before.actor, before.minute, before.count + one.times)
        for name, counted in counts.items():
            text = msgspec.json.encode(_without_secrets(_printable(msgspec.to_builtins(counted)))).decode()
            writer.note(name, text, expires_us=counted.minute * _MINUTE_US + KEPT_US)

        def written() -> None:
            self._written_in = None
            with self._lock:
                done = {id(one) for one in some}
                self._waiting[:] = [one for one in self._waiting if id(one) not in done]

        return written

    def newest(
        self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
    ) -> Iterator[Refusal]:
        """Refusals, the newest first, by any of their facts."""
        left = limit
        fetched = limit if not (code or stream or actor or operation) else None
        with self._lock:
            now_us = self._now_us()
            waiting = {one.key: one.text for one in self._waiting if one.text and one.expires_us > now_us}
        found = {**self._store.notes(_PREFIX, limit=fetched, newest_first=True), **waiting}
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
        counts = {name: _counted(text) for name, text in self._store.notes(_COUNTED).items()}
        found = {name: one for name, one in counts.items() if one is not None}
        with self._lock:
            for one in self._waiting:
                name = _counted_key(one.actor, one.minute)
                before = found.get(name) or Counted(one.actor, one.minute, 0)
                found[name] = Counted(before.actor, before.minute, before.count + one.times)
        return [one for _, one in sorted(found.items(), reverse=True) if one.left_out]

    def counts(self) -> Counter[tuple[str, str]]:
        """How often each (code, type) was refused: the most common mistakes."""
        return Counter((refusal.code, refusal.type) for refusal in self.newest(limit=None))


def forget_refusals(writer: Writer, stream: str) -> None:
    """Remove what is remembered of refusals about a stream that is being purged."""
    for key, text in writer.notes(_PREFIX).items():
        if msgspec.json.decode(text, type=Refusal).stream == stream:
            writer.note(key, None)


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
