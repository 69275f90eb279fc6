"""Names of other programs as names of ours: never lost, never two made one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}(\.[A-Za-z0-9_]{1,64}){0,5}")
_ACTOR = re.compile(r"system|[a-z][a-z0-9_]{0,31}:[A-Za-z0-9][A-Za-z0-9._:@+=~-]{0,199}")
_STREAM = re.compile(r"[a-z][a-z0-9_-]{0,63}/[A-Za-z0-9][A-Za-z0-9._:@+=~-]{0,199}")
_FRACTION = re.compile(r"[.,]\d{6}\d*[1-9]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@+=-]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def name_of(text: str) -> str:
    """A name as the id of a stream, an actor or a scope; what is not allowed there is `~` and its bytes in hex."""
    kept = _NOT_IN_NAMES.sub(lambda found: "".join(f"~{byte:02x}" for byte in found[0].encode()), text)
    # "~" is always followed by two digits but here, so that no other name becomes the same.
    return kept if not kept or kept[0].isalnum() else "x~" + kept


def kind_of(text: str) -> str:
    """A name as the kind of a stream: `WorkPackage` is `workpackage`."""
    kept = re.sub(r"[^a-z0-9_-]", "-", text.lower())[:64]
    return kept if kept[:1].isalpha() else f"x{kept}"[:64]


def type_of(text: str) -> str:
    """A name as an event type: parts by dots, at most six of them."""
    if _TYPE.fullmatch(text):
        return text
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) or "_" for part in text.split(".")]
    parts = [*parts[:5], "_".join(parts[5:])] if len(parts) > 6 else parts
    return ".".join(parts) if parts[0][0].isalpha() else "x" + ".".join(parts)


def actor_of(text: str, kind: str) -> str:
    """Who acted; a bare name is of this kind."""
    return text if _ACTOR.fullmatch(text) else f"{kind}:{name_of(text)}"


def stream_of(text: str, kind: str) -> str:
    """What it is about; a name that is no stream is the id of one of this kind."""
    return text if _STREAM.fullmatch(text) else f"{kind}/{name_of(text)}"


def moment_of(text: str) -> datetime:
    """A time in ISO 8601, in UTC; one without a zone is taken as UTC. ValueError if it is none."""
    found = datetime.fromisoformat(text)
    return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).astimezone(UTC)


def finer_than_ours(text: str) -> bool:
    """True when a time has digits below the microsecond, which an event does not keep."""
    return _FRACTION.search(text) is not None


def moment_of_ns(nanoseconds: int) -> datetime:
    """OverflowError if it is beyond what a calendar holds."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
