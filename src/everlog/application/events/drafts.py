"""Drafts of events as people write them: lines of NDJSON, words such as FIELD=VALUE, and expectations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import parse_json
from everlog.errors import InvalidField, NotCanonical, NotFound, RejectedEvent
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.log.write.draft import Draft, Receipt
from everlog.wire.messages import DraftObject
from everlog.wire.messages import read_expectation as read_expectation

if TYPE_CHECKING:
    from everlog.application.folder.open import AnyLog

PROBLEMS_SHOWN = 20


def committed(log: AnyLog, drafts: Sequence[Draft], *, key: str, operation: str, dry_run: bool) -> Receipt:
    """Record drafts in a log, or in one behind a server, where the operation follows from what is sent."""
    if isinstance(log, Log):
        return log.writer.commit(drafts, key=key, operation=operation, dry_run=dry_run)
    return log.commit(drafts, key=key, dry_run=dry_run)


def drafts_from_ndjson(
    data: bytes, *, source: str = "this", scope: str = "", correlation_id: str = "", request_id: str = ""
) -> list[Draft]:
    """Return one draft per line. The arguments are the defaults of every line. Every bad line is reported."""
    drafts, problems = [], []
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = msgspec.convert(parse_json(text), DraftObject)
            drafts.append(line.draft(scope=scope, correlation_id=correlation_id, request_id=request_id))
        except (msgspec.ValidationError, NotCanonical, InvalidField) as error:
            problems.append(f"line {number}: {getattr(error, 'reason', '') or error}")
    if problems:
        raise InvalidField(
            f"{source} is not a batch of drafts",
            why="; ".join(problems[:PROBLEMS_SHOWN]),
            hint='a line is {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}',
            problems=problems,
        )
    return drafts


def read_input(directory: Path, name: str) -> bytes:
    """Return the content of a file that was named on a command line."""
    try:
        return DiskFiles().read_all(directory / name)
    except OSError as error:
        raise NotFound(f"{name} cannot be read", why=error.strerror or str(error), hint="check its name") from error


def payload_from_words(words: Sequence[str], catalog: Catalog, event_type: str) -> dict[str, Any]:
    """Return a payload from words such as `text=hello count=3`.

    A value is JSON if it can be, except in a field that the type declares as text: there text=42 is the text 42.
    """
    payload: dict[str, Any] = {}
    texts = _text_fields(catalog, event_type)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidField(f"{word!r} is neither FIELD=VALUE nor a JSON object", hint="text=hello", field=name)
        if name in payload:
            raise InvalidField(f"the field {name} is given twice", hint="leave one of them out", field=name)
        payload[name] = value if name in texts else _json_or_text(value)
    return payload


def refused_drafts(catalog: Catalog, drafts: Sequence[Draft]) -> Iterator[tuple[int, Draft, RejectedEvent]]:
    """Yield the number, the draft and the error of each draft whose payload is refused.

    The refusal of a batch is about one event only; this finds all of them.
    """
    for number, draft in enumerate(drafts, start=1):
        try:
            catalog.validate(draft.type, draft.payload)
        except RejectedEvent as error:
            yield number, draft, error


def _json_or_text(value: str) -> Any:
    try:
        return parse_json(value)
    except NotCanonical as error:
        if "it is not JSON" in error.reason:
            return value
        raise  # JSON that cannot be stored, such as a number above 2^53, must not silently become text


def _text_fields(catalog: Catalog, event_type: str) -> set[str]:
    if not catalog.knows(event_type):
        return set()
    properties: Mapping[str, Any] = catalog.json_schema(event_type)["properties"]
    return {name for name, schema in properties.items() if _is_text(schema)}


def _is_text(schema: Mapping[str, Any]) -> bool:
    choices = schema.get("enum")
    if choices is not None:
        return all(isinstance(choice, str) for choice in choices)
    return schema.get("type") == "string"
