"""Log lines as JSON, one object per line, with the request that they are about.

The standard library does this in 40 lines, and every library already logs through it; structlog would add a second
way to log for the same lines.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from everlog.server.observe.current import CURRENT

LEVELS = {"everlog": logging.WARNING, "uvicorn.error": logging.ERROR, "asyncio": logging.WARNING}
"""uvicorn warns of every malformed request: a stranger could fill the disk with that. They are counted instead."""


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        current = CURRENT.get()
        if current is not None:
            line["request_id"] = current.request_id
            if current.traceparent:
                line["trace_id"] = current.traceparent.split("-")[1]
        line.update(getattr(record, "facts", {}))
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


@contextmanager
def logging_as_json(stream: TextIO | None = None, *, requests: bool = False) -> Iterator[None]:
    """Write the lines of this process as JSON, until the end of the context: warnings, and with `requests` more."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    loggers = [logging.getLogger(name) for name in LEVELS]
    before = [(one.handlers[:], one.level, one.propagate) for one in loggers]
    for one in loggers:
        one.handlers, one.propagate = [handler], False
        one.setLevel(LEVELS[one.name])
    own = logging.getLogger("everlog.server")
    level_before = own.level
    if requests:
        own.setLevel(logging.INFO)
    try:
        yield
    finally:
        own.setLevel(level_before)
        for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(level)
