"""What a writer gives and gets: a draft of each event, the limits of a payload, and the receipt of a request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
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


class PreparedDraft(msgspec.Struct, frozen=True, gc=False):
    """A draft that is valid as far as can be decided without the log."""

    draft: Draft
    version: int
    payload: dict[str, Any]
    body: bytes
    salt: bytes
    commitment: bytes
    actor: str
    id: EventId | None
    stored: dict[str, Any] | None = None  # the payload as it is stored, if fields of it are sealed


class Prepared(Collection[PreparedDraft]):
    """Drafts that are valid as far as can be decided without the log, as columns: one list per field.

    A group of many drafts is checked, encoded and stamped column by column; most of them never become objects.
    """

    __slots__ = (
        "actors",
        "bodies",
        "commitments",
        "drafts",
        "ids",
        "payloads",
        "salts",
        "sealed_at",
        "stored",
        "versions",
    )

    def __init__(
        self,
        drafts: Sequence[Draft],
        versions: list[int],
        payloads: list[dict[str, Any]],
        bodies: list[bytes],
        salts: list[bytes],
        commitments: list[bytes],
        actors: list[str],
        ids: list[EventId | None],
        stored: list[dict[str, Any]] | None = None,
    ) -> None:
        self.drafts = drafts
        self.versions = versions
        self.payloads = payloads
        self.bodies = bodies
        self.salts = salts
        self.commitments = commitments
        self.actors = actors
        self.ids = ids
        self.stored = stored  # the payloads as they are stored, if a field of one of them is sealed
        self.sealed_at = 0  # how many keys had been destroyed by then

    def __len__(self) -> int:
        return len(self.drafts)

    def __contains__(self, item: object) -> bool:
        return any(item == own for own in self)

    def __iter__(self) -> Iterator[PreparedDraft]:
        return map(PreparedDraft, *self.columns(), *(() if self.stored is None else (self.stored,)))

    def __getitem__(self, index: int) -> PreparedDraft:
        columns = self.columns() if self.stored is None else (*self.columns(), self.stored)
        return PreparedDraft(*[column[index] for column in columns])

    def columns(self) -> tuple[Sequence[Any], ...]:
        """Return the columns that every draft has, in the order of `PreparedDraft`."""
        return (
            self.drafts,
            self.versions,
            self.payloads,
            self.bodies,
            self.salts,
            self.commitments,
            self.actors,
            self.ids,
        )

    def part(self, start: int, end: int) -> Prepared:
        """Return some of the drafts."""
        columns = self.columns() if self.stored is None else (*self.columns(), self.stored)
        return Prepared(*[column[start:end] for column in columns])  # type: ignore[arg-type]


EMPTY = Prepared((), [], [], [], [], [], [], [])


def joined(parts: Sequence[Prepared]) -> Prepared:
    """Return the drafts of several requests, one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*[part.columns() for part in parts], strict=True)
    found = Prepared(*[list(chain.from_iterable(column)) for column in columns])
    if any(part.stored is not None for part in parts):
        found.stored = [payload for part in parts for payload in part.stored or part.payloads]
    return found


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a request. `replayed` means that an earlier, equal request had made these records."""

    records: Sequence[Recorded]  # made when they are looked at
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
