"""The URL of a store: which texts are one, the path in it, and how it is shown without its password.

sqlite:PATH  jsonl:PATH  segments:PATH          files on this machine; a path may be relative
postgresql://USER:PASSWORD@HOST/DATABASE        tables elsewhere
memory:                                         nothing is stored
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from everlog.errors import InvalidSettings

PASSWORD_WARNING = (
    "the URL has a password, and it goes into a settings file; keep it out of there: use the variable EVERLOG_STORE"
    " for the whole URL, or ~/.pgpass or PGPASSWORD for the password"
)
_WITH_PATHS = ("sqlite", "jsonl", "segments")
_OPTIONS = re.compile(r"\w+=[^&]*(&\w+=[^&]*)*")
_EXAMPLES = {
    "sqlite": "sqlite:log.db",
    "jsonl": "jsonl:events",
    "segments": "segments:data",
    "postgresql": "postgresql://HOST/DATABASE",
    "memory": "memory:",
}


def require_url(url: str) -> None:
    """Refuse a text that is not the URL of a log, and describe one."""
    scheme, separator, rest = url.partition(":")
    if url == "memory:" or (scheme in _WITH_PATHS and rest) or in_postgres(url):
        return
    if not url:
        meant = _EXAMPLES["sqlite"]
    elif not separator and url in _EXAMPLES:
        meant = _EXAMPLES[url]
    elif not separator or "/" in scheme or "." in scheme:
        meant = f"sqlite:{shown_url(url)}"
    else:
        meant = _EXAMPLES.get(scheme, f"there is no store {scheme}:; name one like {', '.join(_EXAMPLES.values())}")
    raise InvalidSettings(
        f"{shown_url(url)!r} is not the URL of a log",
        why="a URL is sqlite:PATH, jsonl:PATH, segments:PATH, postgresql://HOST/DATABASE or memory:",
        hint=meant,
        url=shown_url(url),
    )


def in_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


# ---- paths


def store_path(url: str, *, base: Path) -> Path | None:
    """Return the file or folder of the store at a URL; None for a store that is elsewhere."""
    require_url(url)
    scheme, _, rest = url.partition(":")
    return base / rest.removeprefix("//") if scheme in _WITH_PATHS else None


def url_below(url: str, directory: Path) -> str:
    """Return a URL whose path is relative to a directory as one that can be used outside of it."""
    scheme, _, path = url.partition(":")
    return f"{scheme}:{directory / path.removeprefix('//')}" if scheme in _WITH_PATHS else url


def url_from_folder(url: str, *, base: Path, folder: Path) -> str:
    """Return a URL that is relative to `base` as the settings in `folder` need it: relative to that folder."""
    scheme, _, path = url.partition(":")
    path = path.removeprefix("//")
    if scheme not in _WITH_PATHS or Path(path).is_absolute():
        return url
    return f"{scheme}:{os.path.relpath(base / path, folder)}"


# ---- passwords


class _Parts(NamedTuple):
    start: str  # the scheme and its slashes
    user: str  # with the sign @, and without the password
    place: str  # host and database
    options: str  # with the sign ?, and without passwords


def shown_url(url: str) -> str:
    """Return a URL for messages: without the user and the password that it may contain, even if it is misspelt."""
    parts = _without_secrets(url)
    return url if parts is None else f"{parts.start}{parts.place}{parts.options}"


def without_password(url: str) -> str:
    """Return the URL with its user, if it names one, and without the password, whatever characters that has."""
    parts = _without_secrets(url)
    return url if parts is None else "".join(parts)


def has_password(url: str) -> bool:
    return without_password(url) != url


def typed_url(url: str) -> str:
    """Return the URL as a word of a shell, without its password."""
    return quote(without_password(url))


def _without_secrets(url: str) -> _Parts | None:
    """Return the parts of a URL without its passwords; None if it cannot have one.

    A password may contain any sign, although some should be escaped in it: it ends at the last @ before the options.
    In doubt, an option is taken for a part of the password.
    """
    scheme, separator, rest = url.partition(":")
    if not separator or scheme in (*_WITH_PATHS, "memory"):
        return None
    named = rest.lstrip("/")
    place, mark, options = named.partition("?")
    if "@" in options and not ("@" in place or (":" not in place and _OPTIONS.fullmatch(options))):
        user, at, place = named.rpartition("@")  # the sign ? is a part of the password
        place, mark, options = place.partition("?")
    else:
        user, at, place = place.rpartition("@")
    kept = "&".join(option for option in options.split("&") if "password" not in option.partition("=")[0].lower())
    start = f"{scheme}:{'/' * (len(rest) - len(named))}"
    return _Parts(start, user.partition(":")[0] + at, place, mark + kept if kept else "")
