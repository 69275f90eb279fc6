"""The shapes of the names in an envelope: stream, actor, scope, type, tags and the free identifiers.

The same rule applies to every store, so what one store accepts, all can return. A name that was checked once is
remembered, because a log sees the same few names again and again. The second half turns names of other programs into
names of this shape, without loss and without making two of them equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from everlog.errors import InvalidField
from everlog.hiding import shown

_NAME = r"[A-Za-z0-9][A-Za-z0-9._:@+=~-]{0,199}"
_SHAPES: dict[str, tuple[re.Pattern[str], str]] = {
    "type": (
        re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}(\.[A-Za-z0-9_]{1,64}){0,5}"),
        "a type is subject.past_tense, such as workpackage.moved",
    ),
    "stream": (
        re.compile(rf"[a-z][a-z0-9_-]{{0,63}}/{_NAME}"),
        "a stream is kind/id, such as workpackage/WP03",
    ),
    "actor": (
        re.compile(rf"system|[a-z][a-z0-9_]{{0,31}}:{_NAME}"),
        "an actor is kind:id, such as user:ada or agent:builder, or the word system",
    ),
    "scope": (
        re.compile(rf"(?:{_NAME}(?:/{_NAME}){{0,7}})?"),
        "a scope is a path of names, such as acme/shop/prod, or empty",
    ),
    "tag": (re.compile(r"[a-z][a-z0-9_.-]{0,63}"), "a tag's name is lower case, such as team or build.id"),
}
_FRACTION = re.compile(r"[.,]\d{6}\d*[1-9]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@+=-]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEEN_MAX = 50_000
_seen: set[tuple[str, str]] = set()

TEXT_CHARS_MAX = 256
TAGS_MAX = 32


def require_shape(field: str, value: str) -> None:
    """Refuse a name of the wrong shape, and describe the right one."""
    if isinstance(value, str) and (field, value) in _seen:
        return
    pattern, expected = _SHAPES[field]
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        found = "nothing" if value == "" else shown(value)
        raise InvalidField(
            f"the {field} is {found}", why=expected, hint=f"give the {field} in that form", field=field
        )
    if len(_seen) >= _SEEN_MAX:
        _seen.clear()
    _seen.add((field, value))


def require_text(field: str, value: str) -> None:
    """Refuse a free identifier (request, causation, correlation, key, tag value) that is not short plain text."""
    if isinstance(value, str) and len(value) <= TEXT_CHARS_MAX and value.isprintable():
        return
    raise InvalidField(
        f"the {field} is {shown(value)}",
        why=f"it may have at most {TEXT_CHARS_MAX} printable characters",
        hint="put longer text into the payload",
        field=field,
    )


def require_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise InvalidField(
            f"the event has {len(tags)} tags",
            why=f"at most {TAGS_MAX} are kept",
            hint="put the rest into the payload",
            field="tags",
        )
    for name, value in tags.items():
        require_shape("tag", name)
        if not isinstance(value, str):
            raise InvalidField(
                f"the tag {name} is {shown(value, 60)}", why="a tag's value is text", hint="quote it", field="tags"
            )
        require_text(f"tag {name}", value)


# ---- names of other programs


def name_of(text: str) -> str:
    """Return a name that is allowed in a stream, an actor or a scope: other characters become `~` and hex bytes."""
    kept = _NOT_IN_NAMES.sub(lambda found: "".join(f"~{byte:02x}" for byte in found[0].encode()), text)
    # Only here is "~" not followed by two digits, so no other name becomes the same.
    return kept if not kept or kept[0].isalnum() else "x~" + kept


def kind_of(text: str) -> str:
    """Return a name as the kind of a stream: `WorkPackage` becomes `workpackage`."""
    kept = re.sub(r"[^a-z0-9_-]", "-", text.lower())[:64]
    return kept if kept[:1].isalpha() else f"x{kept}"[:64]


def type_of(text: str) -> str:
    """Return a name as an event type: parts separated by dots, at most six of them."""
    if _fits("type", text):
        return text
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) or "_" for part in text.split(".")]
    parts = [*parts[:5], "_".join(parts[5:])] if len(parts) > 6 else parts
    return ".".join(parts) if parts[0][0].isalpha() else "x" + ".".join(parts)


def actor_of(text: str, kind: str) -> str:
    """Return a name as an actor; a name without a kind gets this one."""
    return text if _fits("actor", text) else f"{kind}:{name_of(text)}"


def stream_of(text: str, kind: str) -> str:
    """Return a name as a stream; one that is not a stream becomes the id of a stream of this kind."""
    return text if _fits("stream", text) else f"{kind}/{name_of(text)}"


def moment_of(text: str) -> datetime:
    """Return an ISO 8601 time in UTC; a time without a zone is taken as UTC. Raise ValueError for any other text."""
    found = datetime.fromisoformat(text)
    return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).astimezone(UTC)


def finer_than_ours(text: str) -> bool:
    """Return True when a time has digits below the microsecond, which an event does not keep."""
    return _FRACTION.search(text) is not None


def moment_of_ns(nanoseconds: int) -> datetime:
    """Return the time of nanoseconds since 1970. Raise OverflowError if it is beyond the calendar."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def _fits(field: str, text: str) -> bool:
    return _SHAPES[field][0].fullmatch(text) is not None
