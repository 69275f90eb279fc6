"""What a log records of itself: which events were purged, and which values were erased.

Every log knows these types. They are on streams of the kind `log`, and list events by origin, number and hash, so
that they mean the same on every node and prove what they allowed.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.personal import KEY_ID_CHARS
from everlog.core.event import Event
from everlog.core.fields import require_shape, require_text
from everlog.errors import InvalidField

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


def purged_in(record: Event) -> StreamPurged:
    """Return what the record of a purge says; of one that is not as this log would write it, nothing: anybody may
    have signed it."""
    try:
        found = msgspec.convert(record.payload, type=StreamPurged)
        require_shape("stream", found.stream)
        require_text("reason", found.reason)
    except (msgspec.ValidationError, InvalidField):
        return StreamPurged("", "", {})
    return found


def forgotten_in(record: Event) -> SubjectForgotten:
    """Return what the record of a forget says; of one that is not as this log would write it, nothing."""
    try:
        found = msgspec.convert(record.payload, type=SubjectForgotten)
    except msgspec.ValidationError:
        return SubjectForgotten([])
    keys = [key_id for key_id in found.keys if len(key_id) == KEY_ID_CHARS]
    return found if len(keys) == len(found.keys) else msgspec.structs.replace(found, keys=keys)


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
    """Return the events that a record lists."""
    found = purged_in(record).removed if record.type == PURGED else forgotten_in(record).erased
    try:
        for origin, numbers in found.items():
            for number, hash in numbers:
                yield origin, number, b64decode(hash)
    except ValueError:  # what is no hash ends the list
        return
