"""W3C trace context: read from a request, stored with the events that it records, and passed on.

An event keeps it as the tag `traceparent`, as CloudEvents do, and not as its correlation: a correlation says what
belongs together for the people who use the log, a trace is about one attempt to send it. A retry has another span, so
the tag does not decide whether two requests are the same (`everlog.log.write.idempotency`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from everlog.log.write.draft import Draft
from everlog.log.write.idempotency import TRACE_TAG
from everlog.server.observe.current import CURRENT

_SHAPE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def read_traceparent(headers: Mapping[str, str]) -> str:
    """Return the trace context of a request; nothing if it has none, or a malformed one, which W3C says to ignore."""
    found = headers.get("traceparent", "").strip()
    return found if _SHAPE.fullmatch(found) else ""


def trace_tags() -> dict[str, str]:
    """Return the tags of events that the present request records."""
    current = CURRENT.get()
    return {} if current is None or not current.traceparent else {TRACE_TAG: current.traceparent}


def traced(drafts: list[Draft]) -> list[Draft]:
    """Return drafts with the trace of the present request. One that has its own keeps it."""
    tags = trace_tags()
    if not tags:
        return drafts
    return [msgspec.structs.replace(draft, tags={**tags, **draft.tags}) for draft in drafts]


def is_traced() -> bool:
    """Return whether OpenTelemetry is installed."""
    return _opentelemetry() is not None


@contextmanager
def span(name: str, headers: Mapping[str, str], traceparent: str) -> Iterator[str]:
    """Trace a request with OpenTelemetry, if that is installed, and yield the trace context to store and pass on."""
    api = _opentelemetry()
    if api is None:
        yield traceparent
        return
    trace, propagate = api
    context = propagate.extract(dict(headers))
    with trace.get_tracer("everlog").start_as_current_span(name, context=context):
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        yield carrier.get("traceparent", traceparent)


_found: list[Any] = []


def _opentelemetry() -> Any:
    """Return OpenTelemetry's API, looked for once; None if it is not installed."""
    if not _found:
        try:
            from opentelemetry import propagate, trace  # type: ignore[import-not-found]
        except ImportError:
            _found.append(None)
        else:
            _found.append((trace, propagate))
    return _found[0]
