"""Routes with fields in the path, for the operations of the log that are about one stream, view or group."""

from __future__ import annotations

from everlog.server.routes.operations import Spelling

_STREAM = {"stream": "{kind}/{id}"}
_MEMBER = {"group": "{group}", "member": "{member}"}


def _spelling(path: str, name: str, operation: str, fields: dict[str, str] | None = None) -> Spelling:
    return Spelling(path=path, name=name, operation=operation, fields=fields or {})


SPELLINGS = (
    _spelling("/v1/head", "events.head", "log.head"),
    _spelling("/v1/streams/{kind}/{id}", "streams.get", "log.history", _STREAM),
    _spelling("/v1/streams/{kind}/{id}/history", "streams.history", "log.history", _STREAM),
    _spelling("/v1/streams/{kind}/{id}/state", "streams.state", "log.state", _STREAM),
    _spelling("/v1/streams/{kind}/{id}/diff", "streams.diff", "log.diff", _STREAM),
    _spelling("/v1/streams/{kind}/{id}/why", "streams.why", "log.why", _STREAM),
    _spelling("/v1/streams/{kind}/{id}/causes", "streams.causes", "log.causes", {"event": "{kind}/{id}"}),
    _spelling("/v1/streams/{kind}/{id}/purge", "streams.purge", "log.purge", _STREAM),
    Spelling(
        path="/v1/events/{event}/causes",
        name="events.causes",
        operation="log.causes",
        fields={"event": "{event}"},
        example={"event": "1"},
    ),
    _spelling("/v1/refusals", "refusals.list", "log.refusals"),
    _spelling("/v1/schema", "schema.list", "log.schema"),
    _spelling("/v1/doctor", "log.doctor", "log.doctor"),
    _spelling("/v1/verify", "log.verify", "log.verify"),
    _spelling("/v1/views", "views.list", "view.list"),
    _spelling("/v1/views/{view}", "views.rows", "view.rows", {"view": "{view}"}),
    _spelling("/v1/views/{view}:lag", "views.lag", "view.lag", {"view": "{view}"}),
    _spelling("/v1/views/{view}:audit", "views.audit", "view.audit", {"views": "{view}"}),
    _spelling("/v1/views/{view}:rebuild", "views.rebuild", "view.rebuild", {"view": "{view}"}),
    _spelling("/v1/views/{view}/{key+}", "views.get", "view.get", {"view": "{view}", "key": "{key}"}),
    _spelling("/v1/groups", "groups.list", "group.list"),
    _spelling("/v1/groups/{group}", "groups.lag", "group.lag", {"group": "{group}"}),
    _spelling("/v1/groups/{group}:reset", "groups.reset", "group.reset", {"group": "{group}"}),
    _spelling("/v1/groups/{group}/dead-letters", "groups.dead_letters", "group.dead_letters", {"group": "{group}"}),
    _spelling(
        "/v1/groups/{group}/dead-letters/{position}/retry",
        "groups.retry",
        "group.retry",
        {"group": "{group}", "position": "{position}"},
    ),
    _spelling(
        "/v1/groups/{group}/dead-letters/{position}/skip",
        "groups.skip",
        "group.skip",
        {"group": "{group}", "position": "{position}"},
    ),
    _spelling("/v1/groups/{group}/members/{member}/join", "groups.join", "group.join", _MEMBER),
    _spelling("/v1/groups/{group}/members/{member}/take", "groups.take", "group.take", _MEMBER),
    _spelling("/v1/groups/{group}/members/{member}/ack", "groups.ack", "group.ack", _MEMBER),
    _spelling("/v1/groups/{group}/members/{member}/nack", "groups.nack", "group.nack", _MEMBER),
    _spelling("/v1/groups/{group}/members/{member}/leave", "groups.leave", "group.leave", _MEMBER),
    _spelling("/v1/snapshots", "snapshots.list", "snapshot.list"),
    _spelling("/v1/snapshots", "snapshots.create", "snapshot.create"),
    _spelling("/v1/snapshots:verify", "snapshots.verify", "snapshot.verify"),
)
"""Beside `/v1/do` and `/v1/ask`, which reach every operation."""
