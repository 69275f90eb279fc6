"""Texts without the passwords and secrets in them: what errors print, log and record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>]*:)[^\s/@\"']+(?=@)")
_OPTION = re.compile(r"([?&][^=&\s]*password[^=&\s]*=)[^&\s\"']+", re.IGNORECASE)
HIDDEN = "***"


def hide_passwords(text: str) -> str:
    """Return the text with *** in place of every password of a URL."""
    if "://" not in text:
        return text
    return _OPTION.sub(rf"\g<1>{HIDDEN}", _ADDRESS.sub(rf"\g<1>{HIDDEN}", text))


_hide: Callable[[str], str] = hide_passwords


def hide_with(hide: Callable[[str], str]) -> None:
    """Hide more than passwords, in every error. `everlog.log.secrets`, which recognizes secrets, calls this."""
    global _hide  # this module is at the bottom of all layers, and this applies to all of them
    _hide = hide


def hidden(value: Any) -> Any:
    """Return the same value without any secret in its texts: errors are printed, logged and recorded."""
    match value:
        case str():
            return _hide(value)
        case dict():
            return {key: hidden(item) for key, item in value.items()}
        case list():
            return [hidden(item) for item in value]
        case tuple() if type(value) is tuple:
            return tuple(map(hidden, value))
        case _:
            return value


def shown(value: Any, chars_max: int = 80) -> str:
    """Return the beginning of a value, as an error quotes it. Secrets are hidden before the text is cut."""
    return repr(hidden(value))[:chars_max]
