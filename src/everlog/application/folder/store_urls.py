"""The URL of a store as it is shown: fit to be typed again, and without its password."""

from __future__ import annotations

from pathlib import Path

PASSWORD_WARNING = (
    "the URL has a password, and it goes into a settings file; keep it out of there: use the variable EVERLOG_STORE"
    " for the whole URL, or ~/.pgpass or PGPASSWORD for the password"
)


def has_password(url: str) -> bool:
    return without_password(url) != url


def without_password(url: str) -> str:
    """Return the URL with its user, if it names one, and without the password, whatever characters that has."""
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme.startswith("postgres"):
        return url
    user, at, place = rest.rpartition("@")
    place, mark, options = place.partition("?")
    kept = "&".join(option for option in options.split("&") if "password" not in option.partition("=")[0].lower())
    return f"{scheme}://{user.partition(':')[0]}{at}{place}{mark if kept else ''}{kept}"


def typed_url(url: str) -> str:
    """Return the URL as a word of a shell, without its password."""
    from shlex import quote

    return quote(without_password(url))


def url_from_folder(url: str, *, base: Path, folder: Path) -> str:
    """Return a URL that is relative to `base` as the settings in `folder` need it: relative to that folder."""
    import os.path

    scheme, _, path = url.partition(":")
    if scheme not in ("sqlite", "jsonl", "segments"):
        return url
    path = path.removeprefix("//")
    return url if Path(path).is_absolute() else f"{scheme}:{os.path.relpath(base / path, folder)}"
