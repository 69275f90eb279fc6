"""Events as CloudEvents 1.0 in JSON, both ways.

    id, type, time       the event's own           source      urn:everlog:ORIGIN
    subject              the stream                data        the payload
    ev…                  everything else, as extension attributes: evlamport, evactor, evcommitment, …

Numbers are written as text, because CloudEvents has integers of 32 bits only; bytes as base64. An exported event is
imported unchanged. A CloudEvent of another program is completed as by an import: see `everlog.transfer.fill`.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from everlog.core.canonical import canonical
from everlog.core.codec import event_from_object, event_object
from everlog.core.event import Event, Recorded
from everlog.core.fields import actor_of, stream_of
from everlog.core.ids import parse_id
from everlog.errors import InvalidField, NotCanonical
from everlog.transfer.foreign import Fields, Foreign, Wrong

SPECVERSION = "1.0"
ENDED = "everlog.export.ended"
"""The type of the last CloudEvent of an export: its data has the count and the digest of the others."""

SOURCE = "urn:everlog:"
_HASH_BYTES = 32
# Extension attributes are lower case, without a break and of at most 20 characters.
_TEXTS = {
    "evactor": "actor",
    "evscope": "scope",
    "evrequestid": "request_id",
    "evcausationid": "causation_id",
    "evcorrelationid": "correlation_id",
    "evidempotencykey": "idempotency_key",
    "evsalt": "salt",
    "evcommitment": "commitment",
    "evprevious": "previous",
    "evsignature": "signature",
}
_NUMBERS = {"evversion": "version", "evlamport": "lamport", "evoriginseq": "origin_seq"}
_CLOCK = "lamportclock"  # of other programs' events: it decides their causal order
_PLACE = ("evposition", "evsequence", "evreceivedtime")


def cloudevent_of(recorded: Recorded) -> dict[str, Any]:
    """Return a record as a CloudEvent; the data is last, because a reader looks for it."""
    found = event_object(recorded.event)
    event = {
        "specversion": SPECVERSION,
        "id": found["id"],
        "source": SOURCE + quote(found["origin"], safe=""),
        "type": found["type"],
        "subject": found["stream"],
        "time": found["occurred_at"],
        "evposition": str(recorded.position),
        "evsequence": str(recorded.sequence),
        "evreceivedtime": msgspec.to_builtins(recorded.received_at),
    }
    event |= {attribute: str(found[name]) for attribute, name in _NUMBERS.items()}
    event |= {attribute: found[name] for attribute, name in _TEXTS.items() if name in found}
    if found.get("tags"):
        event["evtags"] = canonical(found["tags"]).decode()
    if recorded.event.path:
        event["evpath"] = b64encode(b"".join(recorded.event.path)).decode()
    if recorded.event.salt:  # an erased event has no data
        event["datacontenttype"] = "application/json"
        event["data"] = recorded.event.payload
    return event


def ended(count: int, digest: str) -> dict[str, Any]:
    return {
        "specversion": SPECVERSION,
        "id": digest,
        "source": SOURCE + "export",
        "type": ENDED,
        "datacontenttype": "application/json",
        "data": {"count": count, "digest": digest},
    }


def is_ours(found: Mapping[str, Any]) -> bool:
    return "evcommitment" in found


def event_of(found: Mapping[str, Any]) -> Event:
    """Return the event of a CloudEvent that everlog wrote."""
    fields = Fields(found)
    _require_version(fields)
    source = fields.text("source")
    if not source.startswith(SOURCE):
        raise Wrong(f"source {source[:60]!r} is not {SOURCE}ORIGIN, although the event claims to be of everlog")
    named: dict[str, Any] = {
        "id": fields.text("id"),
        "type": fields.text("type"),
        "stream": fields.text("subject"),
        "origin": unquote(source.removeprefix(SOURCE)),
        "occurred_at": fields.text("time"),
        "payload": fields.object("data", {}),
        "tags": fields.json_object("evtags"),
        "path": _split(fields.text("evpath", "")),
    }
    named |= {name: _number(fields.text(attribute), attribute) for attribute, name in _NUMBERS.items()}
    named |= {name: fields.text(attribute, "") for attribute, name in _TEXTS.items()}
    for known in ("datacontenttype", *_PLACE):
        fields.text(known, "")
    if left := fields.rest():
        raise Wrong(f"{', '.join(sorted(left))[:100]} is no attribute of an event of everlog")
    try:
        return event_from_object(named)
    except NotCanonical as error:
        raise Wrong(error.reason) from None


def foreign_of(found: Mapping[str, Any]) -> Foreign:
    """Return the fields of a CloudEvent that another program wrote."""
    fields = Fields(found)
    _require_version(fields)
    given, source = fields.text("id"), fields.text("source")
    try:
        event_id = parse_id(given)
    except InvalidField:
        event_id = None  # an id is unique within its source only
    fields.tags |= {"was.id": given, "was.source": source}
    kind = fields.type("type")
    occurred_at = fields.moment("time") if "time" in found else None
    subject = fields.text("subject", source)
    clock = fields.text(_CLOCK, "")
    lamport = _number(clock, _CLOCK) if clock else None
    payload = _payload(fields, found)
    return Foreign(
        type=kind,
        stream=stream_of(subject, "cloudevent"),
        actor=actor_of(source, "source"),
        id=event_id,
        lamport=lamport,
        occurred_at=occurred_at,
        id_field="id",
        old_id=given,
        payload=fields.keep_rest(payload),
        tags={name: text for name, text in fields.tags.items() if text},
    )


def end_of(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the data of the last CloudEvent of an export, or None if this is another one."""
    data = found.get("data")
    return data if found.get("type") == ENDED and isinstance(data, dict) else None


def _payload(fields: Fields, found: Mapping[str, Any]) -> dict[str, Any]:
    if "data" in found and "data_base64" in found:
        raise Wrong("it has both data and data_base64")
    if "data_base64" in found:
        return {"data_base64": fields.text("data_base64", "")}
    data = found.get("data")
    if isinstance(data, dict):
        return fields.object("data")
    left = fields.take("data")
    return {} if left is None else {"data": left}


def _require_version(fields: Fields) -> None:
    version = fields.text("specversion")
    if version != SPECVERSION:
        raise Wrong(f"specversion is {version[:20]!r}, and only {SPECVERSION} can be read")


def _number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise Wrong(f"{name} is not a whole number")
    return int(text)


def _split(text: str) -> list[str]:
    try:
        path = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Wrong("evpath is not base64") from None
    if len(path) % _HASH_BYTES:
        raise Wrong("evpath is not made of hashes")
    pieces = (path[start : start + _HASH_BYTES] for start in range(0, len(path), _HASH_BYTES))
    return [b64encode(piece).decode() for piece in pieces]
