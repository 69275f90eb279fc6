"""The event types that every log knows, so that a first append works before anything is declared.

`NODE` has the types of what a node records about itself, when several nodes write to one log: see
docs/how-to/nodes/conflicts.md.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from everlog.catalog.catalog import Catalog

BUILT_IN = Catalog()
NODE = Catalog()

KNOWS, DETECTED, RESOLVED = "origin.knows", "conflict.detected", "conflict.resolved"

NO_CHANGES = frozenset((KNOWS, DETECTED, RESOLVED, "origin.succeeded", "stream.purged", "subject.forgotten"))
"""Types of events that a node records about itself or about others. None of them is a change of its stream."""


@BUILT_IN.event("note.added", version=1)
class NoteAddedV1(msgspec.Struct):
    """Somebody wrote something down."""

    body: str


@BUILT_IN.event("note.added", version=2)
class NoteAdded(msgspec.Struct):
    """Somebody wrote something down."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    topic: str = ""


@BUILT_IN.upcaster("note.added", from_version=1)
def call_the_body_text(old: dict[str, Any]) -> dict[str, Any]:
    return {"text": old["body"], "topic": ""}


@NODE.event(KNOWS)
class OriginKnows(msgspec.Struct):
    """The last numbers of other origins, without a hole before them, that arrived since the last such event.

    `since` is the own number from which on they were known, if that is not the number of this event.
    """

    ends: dict[str, Annotated[int, msgspec.Meta(ge=1)]]
    since: int = 0


@NODE.event(DETECTED)
class ConflictDetected(msgspec.Struct):
    """The origin of a change found that another, concurrent change of the stream wins."""

    stream: str
    winner: str
    loser: str


@NODE.event(RESOLVED)
class ConflictResolved(msgspec.Struct):
    """Somebody decided which of two concurrent changes counts."""

    stream: str
    winner: str
    loser: str
    reason: str = ""
