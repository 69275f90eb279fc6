"""CloudEvents 1.0 over HTTP: in as binary, structured or batch, and out where `Accept` asks for them.

    type, subject, time, data     the event's type, stream, time and payload
    id, source                    the tags was.id and was.source; without an Idempotency-Key they make a retry safe
    evcorrelationid, …            the event's own fields, as an export has them
    other extensions              tags `ce.NAME`

The token decides who acts, and in which scope, as for every event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from everlog.core.canonical import parse_json
from everlog.core.event import Recorded
from everlog.core.fields import moment_of, stream_of
from everlog.errors import InvalidField
from everlog.log.write.draft import Draft
from everlog.transfer.cloudevents import SPECVERSION, cloudevent_of

ONE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
_HEADER = "ce-"
_FIELDS = {
    "evcorrelationid": "correlation_id",
    "evcausationid": "causation_id",
    "evscope": "scope",
}
_KNOWN = frozenset(
    ("specversion", "id", "source", "type", "subject", "time", "data", "data_base64", "datacontenttype", "dataschema")
)


def is_binary(headers: Mapping[str, str]) -> bool:
    """Return whether a request has a CloudEvent in its headers, and its data as the body."""
    return _HEADER + "specversion" in headers


def read_one(headers: Mapping[str, str], body: bytes, *, request_id: str) -> tuple[Draft, str]:
    """Return the draft of a CloudEvent in binary or structured mode, and the key that makes a retry safe."""
    if not is_binary(headers):
        return _draft(parse_json(body, levels_around=1), request_id)
    found: dict[str, Any] = {
        name.removeprefix(_HEADER): unquote(value) for name, value in headers.items() if name.startswith(_HEADER)
    }
    if body:
        found["data"] = parse_json(body)
    return _draft(found, request_id)


def read_batch(body: bytes, *, request_id: str) -> list[Draft]:
    """Return the drafts of CloudEvents in batch mode."""
    values = parse_json(body, levels_around=2)
    if not isinstance(values, list):
        raise InvalidField("the body is not a batch of CloudEvents", hint="send a JSON array", field="body")
    return [_draft(value, request_id)[0] for value in values]


def _draft(found: Any, request_id: str) -> tuple[Draft, str]:
    if not isinstance(found, dict):
        raise _wrong("it is not an object", "body")
    for name in ("specversion", "id", "source", "type"):
        if not isinstance(found.get(name), str) or not found[name]:
            raise _wrong(f"{name} is missing, or it is no text", name)
    if found["specversion"] != SPECVERSION:
        raise _wrong(
            f"specversion is {found['specversion'][:20]!r}, and only {SPECVERSION} can be read", "specversion"
        )
    tags = {"was.id": found["id"], "was.source": found["source"]}
    fields: dict[str, Any] = {}
    for name, value in found.items():
        if name in _KNOWN or value is None:
            continue
        if not isinstance(value, str | int | bool):
            raise _wrong(f"the extension {name[:40]} is neither text nor a number", name[:40])
        if name in _FIELDS:
            fields[_FIELDS[name]] = str(value)
        elif not name.startswith("ev"):
            tags[f"ce.{name}"] = str(value) if not isinstance(value, bool) else str(value).lower()
    draft = Draft(
        type=found["type"],
        stream=stream_of(str(found.get("subject") or found["source"]), "cloudevent"),
        payload=_payload(found),
        occurred_at=_time(found.get("time")),
        request_id=request_id,
        tags=tags,
        **fields,
    )
    return draft, msgspec.json.encode([found["source"], found["id"]]).decode()


def _payload(found: Mapping[str, Any]) -> dict[str, Any]:
    if "data_base64" in found:
        if "data" in found:
            raise _wrong("it has both data and data_base64", "data")
        return {"data_base64": found["data_base64"]}
    data = found.get("data")
    if data is None:
        return {}
    return data if isinstance(data, dict) else {"data": data}


def _time(text: Any) -> Any:
    if text is None:
        return None
    try:
        return moment_of(str(text))
    except ValueError as error:
        raise _wrong(f"its time cannot be read: {error}", "time") from error


def _wrong(why: str, field: str) -> InvalidField:
    return InvalidField(
        "the body is not a CloudEvent",
        why=why,
        hint="see cloudevents.io: specversion, id, source and type are required",
        field=field,
    )


def one_bytes(recorded: Recorded) -> bytes:
    """Return a record as a CloudEvent in structured mode."""
    return msgspec.json.encode(cloudevent_of(recorded))


def batch_bytes(records: Iterable[Recorded]) -> bytes:
    """Return records as CloudEvents in batch mode."""
    return msgspec.json.encode([cloudevent_of(recorded) for recorded in records])
