"""CloudEvents 1.0 over HTTP: in as binary, structured or batch, and out where `Accept` asks for them.

    type, subject, time, data     the event's type, stream, time and payload
    id, source                    the tags was.id and was.source; without an Idempotency-Key they make a retry safe
    evcorrelationid, …            the event's own fields, as an export has them
    other extensions              tags `ce.NAME`

A page is a batch; what it has beside its events is in headers (`everlog-next`, `everlog-head`, `everlog-looked-to`),
and a reset is a CloudEvent of the type `everlog.reset`, so that no reader can overlook it. Each event of a stream is
one CloudEvent.

The token decides who acts, and in which scope, as for every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from everlog.core.canonical import parse_json
from everlog.core.event import Recorded
from everlog.core.fields import moment_of, stream_of
from everlog.errors import InvalidField
from everlog.log.write.draft import Draft
from everlog.transfer.cloudevents import SOURCE, SPECVERSION, cloudevent_of
from everlog.wire.messages import PageObject, read_record

ONE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
RESET = "everlog.reset"
JSON = "application/json"
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


# ---- out


def are_accepted(accept: str) -> bool:
    """Return whether the header Accept asks for CloudEvents."""
    return ONE in accept or BATCH in accept


def of_record(recorded: Recorded, accept: str) -> tuple[bytes, str]:
    """Return a record as a CloudEvent, structured or as a batch of one, and its content type."""
    found = cloudevent_of(recorded)
    return (msgspec.json.encode(found), ONE) if ONE in accept else (msgspec.json.encode([found]), BATCH)


def of_page(body: bytes, origin: str) -> tuple[bytes, list[tuple[str, str]]]:
    """Return a page as CloudEvents in batch mode, and as headers what a batch has no place for."""
    page = msgspec.json.decode(body, type=PageObject)
    found = [cloudevent_of(read_record(one)) for one in page.events]
    if page.reset_required:
        found.append(
            {
                "specversion": SPECVERSION,
                "id": page.next,
                "source": SOURCE + origin,
                "type": RESET,
                "datacontenttype": JSON,
                "data": {"reason": page.reason, "next": page.next},
            }
        )
    facts = {"everlog-next": page.next, "everlog-head": page.head, "everlog-looked-to": page.looked_to}
    return msgspec.json.encode(found), [(name, str(value)) for name, value in facts.items()]


_DATA = b"data: "


def of_frames(data: bytes) -> bytes:
    """Return frames of a stream with CloudEvents in place of records. Other frames stay as they are."""
    frames = data.split(b"\n\n")
    for n, frame in enumerate(frames):
        start, mark, record = frame.partition(b"\n" + _DATA)
        if mark and start.startswith(b"id: "):  # a notice begins with its event
            frames[n] = start + mark + msgspec.json.encode(cloudevent_of(read_record(record)))
    return b"\n\n".join(frames)
