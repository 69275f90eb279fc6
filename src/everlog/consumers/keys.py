"""By what the events of a group are kept in order, and which partition a key belongs to.

A key is named, so that any process can tell it from the events alone:

    stream  kind  scope  actor  correlation  type      a field of the event
    tag:NAME                                           the text of a tag, empty if it has none
    payload:FIELD                                      a field of the payload, as text

or it is a function of an event, which then every member must bring along, and the command line does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b

from everlog.core.event import Event
from everlog.errors import InvalidField

Key = Callable[[Event], str]
OWN = "function"
"""How the stored definition calls a key that is a function."""

_FIELDS: dict[str, Key] = {
    "stream": lambda event: event.stream,
    "kind": lambda event: event.kind,
    "scope": lambda event: event.scope,
    "actor": lambda event: event.actor,
    "correlation": lambda event: event.correlation_id,
    "type": lambda event: event.type,
}


def key_of(name: str) -> Key:
    """The function of a named key."""
    if name in _FIELDS:
        return _FIELDS[name]
    kind, _, field = name.partition(":")
    if field and kind == "tag":
        return lambda event: event.tags.get(field, "")
    if field and kind == "payload":
        return lambda event: _text(event.payload.get(field, ""))
    raise InvalidField(
        f"{name[:60]!r} is not a key",
        why=f"a key is one of {', '.join(_FIELDS)}, or tag:NAME, or payload:FIELD",
        hint="name one of them, or give a function of an event",
        field="key",
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def partition_of(key: str, partitions: int) -> int:
    """The same in every process, on every machine and for ever: not Python's own hash, which differs by run."""
    digest = blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions
