"""The URL of a store as the command line says it: fit to be typed again, and without its password."""

from __future__ import annotations

from pathlib import Path

PASSWORD_WARNING = (
    "the URL has a password, and it goes into a settings file; keep it out of there: use the variable EVERLOG_STORE"
    " for the whole URL, or ~/.pgpass or PGPASSWORD for the password"
)


def has_password(url: str) -> bool:
    return without_password(url) != url


def without_password(url: str) -> str:
    """The URL with its user, if it names one, and without the password."""
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme.startswith("postgres"):
        return url
    rest, mark, options = rest.partition("?")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    kept = "&".join(option for option in options.split("&") if not option.lower().startswith("password="))
    return f"{scheme}://{user.partition(':')[0]}{at}{host}{slash}{path}{mark if kept else ''}{kept}"


def typed_url(url: str) -> str:
    """The URL as a word of a shell."""
    from shlex import quote

    return quote(without_password(url))


def url_from(url: str, *, base: Path) -> str:
    """A URL whose path is absolute, so that it means the same log wherever it is resolved."""
    scheme, _, path = url.partition(":")
    if scheme not in ("sqlite", "jsonl", "segments"):
        return url
    return f"{scheme}:{(base / path.removeprefix('//')).resolve()}"
