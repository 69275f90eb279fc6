"""The AsyncAPI 3 document of the stream of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from everlog._version import __version__
from everlog.server.events.frames import Notice
from everlog.server.routes.openapi import SCHEMAS, document
from everlog.server.routes.route import SSE, Route
from everlog.wire.messages import RecordObject
from everlog.wire.problems import Problem

_MESSAGES = {
    "event": (
        "An event of the log, with no event line; id is the cursor after it. Accept may ask for CloudEvents.",
        "RecordObject",
    ),
    "reset": ("History has changed: forget what was derived, and continue after the cursor.", "Notice"),
    "bye": (
        "The server ends the stream: reconnect with the cursor. reason is shutdown, revoked, too_slow or failed.",
        "Notice",
    ),
}


def stream_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the AsyncAPI document of the routes that stream."""
    _, schemas = msgspec.json.schema_components([RecordObject, _NoticeObject, Problem], ref_template=SCHEMAS)
    schemas["Notice"] = schemas.pop(_NoticeObject.__name__)
    schemas["Notice"]["title"] = "Notice"
    channels, operations = {}, {}
    for route in routes:
        if not any(answer.content_type.partition(";")[0] == SSE for answer in route.answers):
            continue
        described = document([route])["paths"][route.path]["get"]
        channels[route.name] = {
            "address": route.path,
            "title": route.about,
            "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _MESSAGES},
            "bindings": {"http": {}},
            "x-parameters": described.get("parameters", []),
        }
        operations[route.name] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{route.name}"},
            "summary": route.about,
            "bindings": {"http": {"method": route.method, "bindingVersion": "0.3.0"}},
            "security": [{"$ref": "#/components/securitySchemes/token"}],
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "everlog",
            "version": __version__,
            "description": "Server-Sent Events. The id of every message is the cursor to continue from; a comment"
            " every 15 seconds is a heartbeat and moves no cursor.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                name: {
                    "name": name,
                    "summary": about,
                    "contentType": "application/json",
                    "payload": {"$ref": f"#/components/schemas/{schema}"},
                    "headers": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string", "description": "The cursor."},
                            **({} if name == "event" else {"event": {"const": name}}),
                        },
                    },
                }
                for name, (about, schema) in _MESSAGES.items()
            },
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class _NoticeObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of a reset, or of a bye."""

    reason: str
    next: str
    problem: Problem | msgspec.UnsetType = msgspec.UNSET


assert Notice.__struct_fields__ == _NoticeObject.__struct_fields__, "it is the same, with the type of the problem"
