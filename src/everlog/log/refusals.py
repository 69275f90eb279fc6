"""The log's memory of its own noes (seed 000's error log): what was tried, why it was refused, what would have done.

A refusal is written beside the events, never among them, and never holds a payload: only the reason and its facts.
It is kept for 90 days. Recording one must not get in the way: if it cannot be written, that is logged, not raised.
"""

from __future__ import annotations

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
_PREFIX = "refusal/"
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


class Refusals:
    def __init__(self, store: Reader, committer: Committer, *, now_us: Callable[[], int]) -> None:
        self._store = store
        self._committer = committer
        self._now_us = now_us
        self._ids = IdSource(now_ms=lambda: now_us() // 1000)
        self._taking = threading.Lock()  # of ids: who is refused in two threads at once must not get the same

    def record(self, error: EverlogError, *, operation: str, stream: str, type: str, actor: str) -> None:
        """Remember a refusal; only what the caller asked for wrongly is one, not a full disk."""
        if not isinstance(error, RejectedEvent | Conflict | NoSuchSubject):
            return
        now_us = self._now_us()
        with self._taking:
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

        def write(writer: Writer) -> None:
            writer.note(_PREFIX + refusal.id, text, expires_us=now_us + KEPT_US)

        try:
            self._committer.submit(write)
        except Exception as also:  # whatever it is, the refusal that led here is what the caller must hear
            _logger.warning("a refusal (%s) could not be recorded: %s", error.code, also)

    def newest(
        self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
    ) -> Iterator[Refusal]:
        """Refusals, the newest first, by any of their facts."""
        left = limit
        fetched = limit if not (code or stream or actor or operation) else None
        for text in self._store.notes(_PREFIX, limit=fetched, newest_first=True).values():
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

    def counts(self) -> Counter[tuple[str, str]]:
        """How often each (code, type) was refused: the most common mistakes."""
        return Counter((refusal.code, refusal.type) for refusal in self.newest(limit=None))


def forget_refusals(writer: Writer, stream: str) -> None:
    """Remove what is remembered of refusals about a stream that is being purged."""
    for key, text in writer.notes(_PREFIX).items():
        if msgspec.json.decode(text, type=Refusal).stream == stream:
            writer.note(key, None)


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
