"""Events as seed 001 writes them, made into drafts.

    {"event_type": "note.added", "event_id": "0196…", "timestamp": 1737700000000000000, "schema_version": 1,
     "payload": {…}, "metadata": {"source": "agent:a", "correlation_id": "…", "causation_id": "…", "tags": {…}}}

The names of a draft are accepted too, and both may be mixed. A seed's event has no stream. Its sequence counts per
source, so that the stream is `source/SOURCE` if none is given. The log computes sequence and checksum itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from everlog.core.ids import parse_id
from everlog.errors import InvalidField
from everlog.log.write.draft import Draft

_NAMES = {"event_type": "type", "event_id": "id", "timestamp": "occurred_at", "source": "actor"}
_COMPUTED = frozenset(("schema_version", "sequence", "checksum"))
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def draft_of(event: Draft | Mapping[str, Any]) -> Draft:
    """The draft of an event that is given as a draft or as a dict."""
    if isinstance(event, Draft):
        return event
    if not isinstance(event, Mapping):
        raise _unusable(f"an event cannot be a {type(event).__name__}")
    metadata = event.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise _unusable(f"the metadata of an event cannot be a {type(metadata).__name__}")
    fields: dict[str, Any] = {}
    for given in (metadata, event):  # the event itself comes last: its time and its source count
        for name, value in given.items():
            if name == "metadata" or name in _COMPUTED or value is None:
                continue
            own = _NAMES.get(name, name)
            if own not in Draft.__struct_fields__:
                raise _unusable(f"an event has no field {name!r}")
            fields[own] = value
    if "type" not in fields:
        raise _unusable("the event has no type")
    if "stream" not in fields:
        if not fields.get("actor"):
            raise _unusable("the event has neither a stream nor a source")
        fields["stream"] = f"source/{fields['actor']}"
    if "occurred_at" in fields:
        fields["occurred_at"] = time_of(fields["occurred_at"], "timestamp")
    for name in ("id", "causation_id"):
        if isinstance(fields.get(name), str) and _UUID.fullmatch(fields[name]):
            fields[name] = parse_id(fields[name])
    return Draft(**fields)


def time_of(value: object, field: str) -> datetime:
    """A time that is given as a datetime, or as a whole number of nanoseconds since 1970."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if type(value) is int:
        try:
            return _EPOCH + timedelta(microseconds=-(-value // 1000))  # up: an event just before it is not in it
        except OverflowError:
            pass
    raise InvalidField(
        f"{field} is {str(value)[:60]!r}",
        why="a time is a datetime with a time zone, or a whole number of nanoseconds since 1970",
        hint="datetime.now(UTC), or time.time_ns()",
        field=field,
    )


def _unusable(what: str) -> InvalidField:
    return InvalidField(
        what,
        why="an event is a Draft, or a dict with type, stream and payload, or with the names of the seed",
        hint='{"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}',
        field="event",
    )
