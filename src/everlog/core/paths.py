"""The place of a value inside a payload, as every message names it: `$.name`, `$.items[3]`, `$["odd name"]`."""

from __future__ import annotations

import json
import re

from everlog.errors import InvalidField

Parts = tuple[str | int, ...]
_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,9})\]|\[("(?:[^"\\]|\\.)*")\]""")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def below(path: str, key: str | int) -> str:
    """The path of a member or an item."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{json.dumps(key)}]"


def path_of(parts: Parts) -> str:
    """The text of a path."""
    path = "$"
    for part in parts:
        path = below(path, part)
    return path


def parse_path(text: str) -> Parts:
    """The steps of a path. The `$.` in front may be left out: `lane` is `$.lane`."""
    rest = text.removeprefix("$")
    if not text.startswith("$"):
        rest = rest if rest.startswith("[") else "." + rest
    parts: list[str | int] = []
    place = 0
    while found := _STEP.match(rest, place):
        name, index, quoted = found.groups()
        parts.append(name if name is not None else int(index) if index is not None else _text(quoted))
        place = found.end()
    if place < len(rest):
        raise InvalidField(
            f"{text[:60]!r} is not a path",
            why='a path is like $.lane, $.items[3] or $["odd name"]; the "$." in front may be left out',
            hint="everlog state shows the paths that there are",
            field="path",
        )
    return tuple(parts)


def _text(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
