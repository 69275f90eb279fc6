"""The shapes of the names in an envelope: stream, actor, scope, type, tags and the free identifiers.

One rule at the door for every store, so that what one accepts all can return. A shape that was seen to be right is
remembered, because a log sees the same few names over and over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from everlog.errors import InvalidField, shown

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
_SEEN_MAX = 50_000
_seen: set[tuple[str, str]] = set()

TEXT_CHARS_MAX = 256
TAGS_MAX = 32


def require_shape(field: str, value: str) -> None:
    """Refuse a name of the wrong shape, and say what the right one looks like."""
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
