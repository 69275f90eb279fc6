"""The place of a value inside a payload, as every message names it: `$.name`, `$.items[3]`, `$["odd name"]`."""

from __future__ import annotations

import json
import re

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def below(path: str, key: str | int) -> str:
    """The path of a member or an item."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{json.dumps(key)}]"
