"""An event of another program: its fields, as they are taken one by one, and what is kept of the others.

A field that an event of everlog does not have becomes a tag `was.NAME`, or, if it is not a short text, a field of
`_imported` in the payload.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from everlog.core.canonical import parse_json
from everlog.core.fields import (
    TEXT_CHARS_MAX,
    finer_than_ours,
    moment_of,
    name_of,
    type_of,
)
from everlog.core.ids import EventId, parse_id
from everlog.errors import InvalidField, NotCanonical


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """An event of another program, before it is completed."""

    type: str
    stream: str
    payload: dict[str, Any]
    actor: str
    id: EventId | None = None
    version: int = 1
    lamport: int | None = None
    occurred_at: datetime | None = None
    scope: str = ""
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    idempotency_key: str = ""
    tags: dict[str, str] = {}
    id_field: str = "event_id"  # the name of the id in the file
    old_id: str = ""  # the id as it is in the file


@dataclass
class Context:
    """What a line needs besides its own content. One per file."""

    new_ids: bool = False  # an id that is not a ULID is left out: the event gets a new one
    mission: str = ""  # the mission of the file, if an earlier line has named it
    find_mission: Callable[[], str] = lambda: ""  # searches the following lines for it
    searched: bool = False
    kata: dict[str, Any] = field(default_factory=dict)  # see kata.py

    def mission_of_file(self) -> str:
        if not self.mission and not self.searched:
            self.searched = True  # only once: a file that never names it is read to its end
            self.mission = self.find_mission()
        return self.mission


_TAGS_MAX = 24
"""The most tags that an import adds, so that an event can still have some other tags."""


class NotAnEvent(Exception):
    """A valid line that is not an event: it is counted under this name, and reported."""


class Wrong(Exception):
    """The problem with a value, as a message for its line."""


class UnknownShape(Wrong):
    """No known program writes such an object. All lines of one shape are one problem."""


class Fields:
    """The fields of a foreign object. Each is taken with its expected kind; the fields that are not taken are kept
    too."""

    def __init__(self, found: Mapping[str, Any], context: Context | None = None) -> None:
        self._left = dict(found)
        self.context = context or Context()
        self.id_field, self.old_id = "event_id", ""
        self.tags: dict[str, str] = {}

    def text(self, name: str, default: str | None = None) -> str:
        value = self._left.pop(name, None)
        if value is None or value == "":
            if default is None:
                raise Wrong(f"it has no {name}")
            return default
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise Wrong(f"{name} is a {type(value).__name__}, not a text")
        return str(value)

    def number(self, name: str, default: int | None = None) -> int:
        value = self._left.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong(f"{name} is not a whole number")
        return value

    def object(self, name: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
        value = self._left.pop(name, default)
        if not isinstance(value, dict):
            raise Wrong(f"{name} is not an object")
        return dict(value)

    def has(self, name: str) -> bool:
        return self._left.get(name) is not None

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def json_object(self, name: str) -> dict[str, Any]:
        """Return an object, given as an object or as its text."""
        value = self._left.pop(name, None) or {}
        try:
            found = parse_json(value) if isinstance(value, str) else value
        except NotCanonical as error:
            raise Wrong(f"{name}: {error.reason}") from None
        if not isinstance(found, dict):
            raise Wrong(f"{name} is not an object")
        return dict(found)

    def type(self, name: str) -> str:
        text = self.text(name)
        if type_of(text) != text:
            self.tags["was." + name] = text
        return type_of(text)

    def id(self, name: str) -> EventId | None:
        """Return the id, or None if it is not an id and is to be replaced; then a tag keeps it."""
        self.old_id = text = self.text(name)
        self.id_field = name
        try:
            return parse_id(text)
        except InvalidField:
            if not self.context.new_ids:
                raise Wrong(f"{name} {text[:60]!r} is neither a ULID nor a UUID; --new-ids replaces it") from None
        self.tags["was." + name] = short_text(text)
        return None

    def moment(self, name: str) -> datetime:
        text = self.text(name)
        try:
            found = moment_of(text)
        except ValueError:
            raise Wrong(f"{name} {text[:60]!r} is not a time in ISO 8601") from None
        if finer_than_ours(text):
            self.tags["was." + name] = text
        return found

    def version(self, name: str) -> int:
        """Return a version, a number from 1; another form, such as 5.0.0, is kept as a tag."""
        value = self._left.get(name, 1)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            self._left.pop(name, None)
            return value
        return 1

    def scope(self, *names: str) -> str:
        """Return a path of the fields that exist; a missing one ends it."""
        parts: list[str] = []
        for name in names:
            if not self._left.get(name):
                break
            parts.append(name_of(self.text(name)))
        return "/".join(parts)

    def rest(self) -> dict[str, Any]:
        """Return every field that was not taken."""
        found, self._left = self._left, {}
        return found

    def keep_rest(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the payload and the fields that were not taken: as tags if they are short, else under
        `_imported`."""
        odd = {}
        for name, value in self.rest().items():
            if value is None:
                continue
            tag = "was." + name.lower()
            text = value if isinstance(value, str) else str(value) if type(value) is int else ""
            fits = len(text) <= TEXT_CHARS_MAX and text.isprintable() and _is_tag(tag) and len(self.tags) < _TAGS_MAX
            if text and fits and tag not in self.tags:
                self.tags[tag] = text
            else:
                odd[name] = value
        if not odd:
            return payload
        if "_imported" in payload:
            raise Wrong("the payload has a field _imported already")
        return {**payload, "_imported": odd}


def short_text(text: str) -> str:
    """Return a text that fits into a tag: the whole text, or its beginning and its SHA-256."""
    if len(text) <= TEXT_CHARS_MAX and text.isprintable():
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    start = "".join(character for character in text[:100] if character.isprintable())
    return f"{start}… sha256:{digest}"


def _is_tag(name: str) -> bool:
    return len(name) <= 64 and name.isascii() and all(c.isalnum() or c in "_.-" for c in name)


def finish(fields: Fields, *, payload: dict[str, Any], **known: Any) -> Foreign:
    payload = fields.keep_rest(payload)
    return Foreign(payload=payload, tags=fields.tags, id_field=fields.id_field, old_id=fields.old_id, **known)


def renamed(foreign: Foreign, new_of: Callable[[str], str]) -> Foreign:
    """Return the event with its references to other events replaced where those got new ids."""
    changed: dict[str, Any] = {}
    for name in ("causation_id", "correlation_id"):
        old = getattr(foreign, name)
        if old and (new := new_of(old)) != old:
            changed[name] = new
    after = foreign.payload.get("after") if foreign.type == "WPStatusChanged" else None
    if isinstance(after, list):
        known = [new_of(one) if isinstance(one, str) else one for one in after]
        if known != after:
            changed["payload"] = {**foreign.payload, "after": known}
    return msgspec.structs.replace(foreign, **changed) if changed else foreign
