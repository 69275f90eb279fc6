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
    """The URL with its user, if it names one, and without the password, whatever signs that has."""
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme.startswith("postgres"):
        return url
    user, at, place = rest.rpartition("@")
    place, mark, options = place.partition("?")
    kept = "&".join(option for option in options.split("&") if "password" not in option.partition("=")[0].lower())
    return f"{scheme}://{user.partition(':')[0]}{at}{place}{mark if kept else ''}{kept}"


def typed_url(url: str) -> str:
    """The URL as a word of a shell."""
    from shlex import quote

    return quote(without_password(url))


def url_from_folder(url: str, *, base: Path, folder: Path) -> str:
    """A URL that was given beside `base` as the settings in `folder` must say it: their paths begin in the folder."""
    import os.path

    scheme, _, path = url.partition(":")
    if scheme not in ("sqlite", "jsonl", "segments"):
        return url
    path = path.removeprefix("//")
    return url if Path(path).is_absolute() else f"{scheme}:{os.path.relpath(base / path, folder)}"
