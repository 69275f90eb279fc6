"""The event types that every log knows, so that a first append works before anything is declared."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from everlog.catalog.catalog import Catalog

BUILT_IN = Catalog()


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
