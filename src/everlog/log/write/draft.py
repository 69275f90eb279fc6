"""What a writer gives and gets: a draft of each event, the limits of a payload, and the receipt of a request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.models import is_payload
from everlog.core.event import Recorded
from everlog.core.ids import EventId
from everlog.errors import InvalidField
from everlog.log.write.expect import Expect, Expectation

_NO_TAGS: Mapping[str, str] = {}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a payload may be. The numbers are seed 001's: 1 MiB is refused, 64 KiB is warned of."""

    payload_bytes_max: int = 1024 * 1024
    payload_bytes_warn: int = 64 * 1024


class Draft(msgspec.Struct, frozen=True):
    """An event not yet recorded; the log adds id, clock, origin, chain and commitment."""

    type: str
    stream: str
    payload: Any = {}
    actor: str = ""
    scope: str = ""
    expect: Expectation = Expect.ANY
    id: str = ""
    occurred_at: datetime | None = None
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    tags: Mapping[str, str] = _NO_TAGS


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A draft that is valid as far as can be decided without the log."""

    draft: Draft
    version: int
    payload: dict[str, Any]
    body: bytes
    salt: bytes
    commitment: bytes
    actor: str
    id: EventId | None


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a request. `replayed` means that an earlier, equal request had made these records."""

    records: tuple[Recorded, ...]
    replayed: bool = False
    response: Any = None
    dry_run: bool = False


def typed_payload(catalog: Catalog, given: Any, payload: Any = None) -> tuple[str, Any]:
    """Return the event type of a typed payload, with the payload; refuse a second payload.

    Anything else is returned as it is, and refused where every event type is checked.
    """
    if not is_payload(given):
        return given, payload
    if payload is not None:
        raise InvalidField(
            f"there are two payloads, a {given.__class__.__name__} and another",
            why="a typed payload stands in place of the event type and of payload=",
            hint="append(Submitted(…), stream=…), or append(type, payload={…}, stream=…)",
            field="payload",
        )
    return catalog.type_of_model(given.__class__), given
