"""Exports of kata: `{"kind": …, "data": …}`, one line per row of its tables, in the order of its kinds.

    kind         becomes
    event        the event itself, on issue/UID or project/UID
    comment      the text of the event that mentions it; without such an event, an issue.commented
    link         an issue.linked, unless an event says the same
    purge_log    an issue.purged on issue-tombstone/UID: its short id is never given again
    issue        names the ends of links; what it says follows from the events
    others       state that follows from the events: counted and reported

Comments and links stand above the events, so they are held until the file ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from everlog.core.fields import actor_of, name_of
from everlog.transfer.foreign import Context, Fields, Foreign, NotAnEvent, Wrong, finish

_SHORT_ID_CHARS = 4
_LINKS = {"blocks": "blocks", "duplicates": "duplicates", "related": "relates", "relates": "relates"}
"""The kinds of links that both programs have. Others become events of the type `kata.link`."""


def is_kata(found: Mapping[str, Any]) -> bool:
    return "kind" in found and isinstance(found.get("data"), dict)


def foreign_of(found: Mapping[str, Any], context: Context) -> Foreign:
    """Return the event of a line; raise NotAnEvent if the line is not an event by itself."""
    kind, data = found["kind"], found["data"]
    match kind:
        case "event":
            return _event(data, context)
        case "purge_log":
            return _tombstone(Fields(data, context))
        case "issue":
            uid = str(data.get("uid") or "")
            _held(context, "uids")[str(data.get("id"))] = uid
            _held(context, "short_ids")[uid] = str(data.get("short_id") or "")
        case "comment":
            key = str(data.get("uid") or data.get("id"))
            _held(context, "comments")[key] = dict(data)
            _held(context, "comment_ids")[str(data.get("id"))] = key
            raise _Held
        case "link":
            key = _link_key(data.get("type"), data.get("from_issue_uid"), data.get("to_issue_uid"))
            _held(context, "links")[key] = dict(data)
            raise _Held
    raise NotAnEvent(f"kata {str(kind)[:60]}")


class _Held(NotAnEvent):
    """A comment or a link, which becomes an event when another event mentions it, or at the end of the file."""

    def __str__(self) -> str:
        return ""


def left_over(context: Context) -> Iterator[tuple[dict[str, Any], Callable[[], Foreign]]]:
    """Yield the comments and links that no event has mentioned: the line, and a function that returns its event."""
    for row in _held(context, "comments").values():
        yield {"kind": "comment", "data": row}, partial(_comment, Fields(row, context))
    for row in _held(context, "links").values():
        yield {"kind": "link", "data": row}, partial(_link, Fields(row, context))
    context.kata.clear()


# ---- each kind


def _event(data: Mapping[str, Any], context: Context) -> Foreign:
    fields = Fields(data, context)
    issue, project = fields.text("issue_uid", ""), fields.text("project_uid", "")
    payload = fields.json_object("payload")
    type = fields.type("type")
    if type == "issue.commented":
        payload = _with_comment(payload, context)
    if type in ("issue.linked", "issue.unlinked"):
        type, payload = _linked(type, payload, context)
    return finish(
        fields,
        type=type,
        stream=f"issue/{name_of(issue)}" if issue else f"project/{name_of(project or 'unknown')}",
        scope=fields.scope("project_name"),
        id=fields.id("uid"),
        occurred_at=fields.moment("created_at"),
        actor=actor_of(fields.text("actor", "unknown"), "user"),
        payload=payload,
    )


def _with_comment(payload: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the payload of issue.commented: the text, from the event or from the comment that it mentions."""
    comments = _held(context, "comments")
    number = _held(context, "comment_ids").get(str(payload.get("comment_id")), "")
    row = comments.pop(str(payload.get("comment_uid")), None) or comments.pop(number, None)
    if row is None or payload.get("body"):
        return payload
    return {**payload, "body": row.get("body") or ""}


def _linked(type: str, payload: dict[str, Any], context: Context) -> tuple[str, dict[str, Any]]:
    """Return the type and the payload of a link's event; a kind that everlog does not have is kept unchanged."""
    ends = [payload.get(f"{end}_uid") or payload.get(f"{end}_issue_uid") for end in ("from", "to")]
    kind = payload.get("type") or payload.get("kind")
    if type == "issue.linked":
        _held(context, "links").pop(_link_key(kind, *ends), None)
    made = _link_payload(kind, ends, context)
    if made is None:
        return f"kata.{type}", payload
    known = {"type", "kind", "from_uid", "to_uid", "from_issue_uid", "to_issue_uid"}
    rest = {name: value for name, value in payload.items() if name not in known}
    return type, made | ({"_imported": rest} if rest else {})


def _comment(fields: Fields) -> Foreign:
    number = fields.take("issue_id")
    uid = fields.text("issue_uid", "") or _held(fields.context, "uids").get(str(number), "")
    if not uid:
        raise Wrong(f"the comment is of issue {number}, and no earlier line has that issue")
    return finish(
        fields,
        type="issue.commented",
        stream=f"issue/{name_of(uid)}",
        id=fields.id("uid"),
        occurred_at=fields.moment("created_at"),
        actor=actor_of(fields.text("author", "unknown"), "user"),
        payload={"body": fields.text("body")},
    )


def _link(fields: Fields) -> Foreign:
    kind = fields.text("type")
    ends = [fields.text("from_issue_uid"), fields.text("to_issue_uid")]
    payload = _link_payload(kind, ends, fields.context)
    return finish(
        fields,
        type="issue.linked" if payload else "kata.link",
        stream=f"issue/{name_of(ends[0])}",
        occurred_at=fields.moment("created_at"),
        actor=actor_of(fields.text("author", "unknown"), "user"),
        payload=payload or {"type": kind, "from_uid": ends[0], "to_uid": ends[1]},
    )


def _tombstone(fields: Fields) -> Foreign:
    uid = fields.text("issue_uid", "")
    short_id = fields.text("short_id", "") or uid[-_SHORT_ID_CHARS:].lower()
    payload: dict[str, Any] = {"uid": uid, "short_id": short_id, "events": fields.number("event_count", 0)}
    if reason := fields.text("reason", ""):
        payload["reason"] = reason
    when = "purged_at" if fields.has("purged_at") else "created_at"
    return finish(
        fields,
        type="issue.purged" if uid else "kata.purged",
        stream=f"issue-tombstone/{name_of(uid)}"
        if uid
        else f"project/{name_of(fields.text('project_uid', 'unknown'))}",
        scope=fields.scope("project_name"),
        id=fields.id("uid"),
        occurred_at=fields.moment(when),
        actor=actor_of(fields.text("actor", "unknown"), "user"),
        payload=payload if uid else {},
    )


# ---- links and names


def _link_payload(kind: Any, ends: list[Any], context: Context) -> dict[str, Any] | None:
    if kind not in _LINKS or not all(isinstance(end, str) and len(end) > _SHORT_ID_CHARS for end in ends):
        return None
    known = _held(context, "short_ids")
    source, target = ({"uid": end, "short_id": known.get(end) or end[-_SHORT_ID_CHARS:].lower()} for end in ends)
    return {"kind": _LINKS[kind], "source": source, "target": target}


def _link_key(kind: Any, start: Any, end: Any) -> str:
    return f"{_LINKS.get(kind, kind)} {start} {end}"


def _held(context: Context, what: str) -> dict[str, Any]:
    found: dict[str, Any] = context.kata.setdefault(what, {})
    return found
