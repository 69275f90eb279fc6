"""What a log records of itself: which events were purged, and which values were erased.

Every log knows these types. They are on streams of the kind `log`, and list events by origin, number and hash, so
that they mean the same on every node and prove what they allowed.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.event import Event

PURGED, FORGOTTEN = "stream.purged", "subject.forgotten"
TYPES = (PURGED, FORGOTTEN)
PURGES, FORGETS = "log/purges", "log/forgets"
LISTED_MAX = 1_000
"""So many events are listed in one record. If there are more, there are more records in the same write."""

RECORDS = Catalog()

Listed = dict[str, list[tuple[int, str]]]
"""Events by origin: the number of each, and its hash in base64."""


@RECORDS.event(PURGED)
class StreamPurged(msgspec.Struct):
    """The events of a stream were removed for good."""

    stream: str
    reason: str
    removed: Listed


@RECORDS.event(FORGOTTEN)
class SubjectForgotten(msgspec.Struct):
    """The keys of a person were destroyed, and values that were never sealed were erased. It never names the person.

    `follows` is the record of another node, whose request this one has followed.
    """

    keys: list[str]
    erased: Listed = {}
    follows: str = ""


def types_of_records() -> Catalog:
    return RECORDS


def listed(events: Iterable[tuple[str, int, bytes]]) -> Iterator[Listed]:
    """Return events, given by origin, number and hash, as the lists of as many records as they need."""
    found: Listed = {}
    count = 0
    for origin, number, hash in events:
        found.setdefault(origin, []).append((number, b64encode(hash).decode()))
        count += 1
        if count == LISTED_MAX:
            yield found
            found, count = {}, 0
    if found:
        yield found


def events_listed(record: Event) -> Iterator[tuple[str, int, bytes]]:
    """Return the events that a record lists. Of one that is not as this log would write it, nothing."""
    field = "removed" if record.type == PURGED else "erased"
    try:
        found = msgspec.convert(record.payload.get(field, {}), type=Mapping[str, list[tuple[int, str]]])
        for origin, numbers in found.items():
            for number, hash in numbers:
                yield origin, number, b64decode(hash)
    except (msgspec.ValidationError, ValueError):
        return
