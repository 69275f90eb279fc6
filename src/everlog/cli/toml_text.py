"""One setting in a TOML file, changed in place: comments and order stay."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from everlog.errors import InvalidSettings


def toml_value(value: Any) -> str:
    """A text, number or truth value as TOML; JSON's escapes are TOML's too, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def with_setting(text: str, key: str, value: Any, *, source: str) -> str:
    """The file's text with `key` set: where it stands, else where it stands as a comment, else at the end."""
    line = f"{key} = {toml_value(value)}"
    wanted = {**tomllib.loads(text), key: value}
    for pattern in (rf"(?m)^[ \t]*{key}[ \t]*=.*$", rf"(?m)^#[ \t]?{key}[ \t]*=.*$"):
        changed, count = re.subn(pattern, lambda _: line, text, count=1)
        if count and _reads_as(changed, wanted):
            return changed
    changed = f"{line}\n{text}" if text.lstrip().startswith("[") else f"{text.rstrip()}\n{line}\n".lstrip()
    if _reads_as(changed, wanted):
        return changed
    raise InvalidSettings(
        f"{key} cannot be set in {source} without changing what else it says",
        why="the file is written in a way that this program does not edit",
        hint=f"write {line} into {source}",
    )


def _reads_as(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False
