"""Events as readers get them: in the present form of their type, and with typed payloads if a model is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.event import Recorded, TypedRecord
from everlog.errors import SchemaBroken


def upcast(catalog: Catalog, recorded: Recorded) -> Recorded:
    event = catalog.upcast(recorded.event)
    return recorded if event is recorded.event else msgspec.structs.replace(recorded, event=event)


def upcast_all(catalog: Catalog, records: Iterable[Recorded]) -> Iterator[Recorded]:
    # `upcast`, spelled out: this runs for every event that anybody reads, and most are as they should be.
    upcast_event = catalog.upcast
    for recorded in records:
        try:
            event = upcast_event(recorded.event)
        except SchemaBroken as error:
            error.details["position"] = recorded.position  # a reader may continue after it
            raise
        yield recorded if event is recorded.event else msgspec.structs.replace(recorded, event=event)


def count_readable(catalog: Catalog, records: Sequence[Recorded]) -> int:
    """Return how many of the first records can be upcast."""
    count = 0
    with suppress(SchemaBroken):
        for _ in upcast_all(catalog, records):
            count += 1
    return count


def with_typed_payloads(catalog: Catalog, records: Iterable[Recorded]) -> Iterator[TypedRecord[Any]]:
    for recorded in records:
        try:
            payload = catalog.typed(recorded.event)
        except SchemaBroken as error:
            error.details["position"] = recorded.position  # a reader can continue after it
            raise
        yield TypedRecord(recorded, payload)
