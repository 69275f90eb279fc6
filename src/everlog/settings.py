"""Settings and where each came from: defaults, the project's file, the user's file, the environment, flags.

A later one wins. Unknown keys are errors, because a typo that is ignored is a setting that silently is not set.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from everlog.errors import InvalidSettings, NoLogHere, ReadOnly
from everlog.files import DiskFiles, Files

FOLDER = ".everlog"
FILE_NAME = "everlog.toml"
ENVIRONMENT_PREFIX = "EVERLOG_"
_WHOLE_NUMBER = re.compile(r"\s*-?[0-9]{1,18}\s*")
# Read by the launcher, the shell completion or the tests, not by the program itself.
_NOT_SETTINGS = {
    *("VENV", "WHEELS", "COMPLETE", "DEBUG", "LAUNCHER", "CHROMIUM", "DEBIAN_MIRROR", "EXTRAS"),
    *("JVM", "JVM_OPTIONS", "JVM_DRIVER", "JVM_LOG"),  # how Spark's Java is started: pipeline/java_home
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    store: str = "sqlite:log.db"
    actor: str = ""
    scope: str = ""
    catalog: str = ""
    views: str = ""
    payload_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=64 * 1024 * 1024)] = 1024 * 1024
    payload_bytes_warn: Annotated[int, msgspec.Meta(ge=0)] = 64 * 1024
    keys_kept_hours: Annotated[int, msgspec.Meta(ge=24)] = 24
    segment_mb_max: Annotated[int, msgspec.Meta(ge=1, le=2048)] = 100
    segment_hours_max: Annotated[int, msgspec.Meta(ge=1)] = 24
    archive_after_days: Annotated[int, msgspec.Meta(ge=0)] = 7
    lake: str = ""
    snapshots: str = ""
    snapshot_hours: Annotated[int, msgspec.Meta(ge=0)] = 6
    snapshot_events: Annotated[int, msgspec.Meta(ge=0)] = 10_000
    snapshot_log_mb: Annotated[int, msgspec.Meta(ge=0)] = 500
    demo: bool = False


DOCS = {
    "store": "the URL of the log; a path in it is relative to the .everlog folder",
    "actor": "who appends when nobody says so, such as user:ada; empty means the login name",
    "scope": "the scope of events that name none",
    "catalog": "event types written in Python, as module:attribute",
    "views": "views written in Python, as module:attribute of one or of a list",
    "payload_bytes_max": "a larger payload is refused",
    "payload_bytes_warn": "a larger payload is warned of",
    "keys_kept_hours": "how long an idempotency key is remembered, 24 or more",
    "segment_mb_max": "a segments log begins a new file at this size in MiB",
    "segment_hours_max": "and at the latest after this many hours",
    "archive_after_days": "segments older than this are packed by everlog segments archive",
    "lake": "the folder of the lake that everlog pipeline keeps; empty means beside the log",
    "snapshots": "the folder of the views' snapshots; empty means beside the log",
    "snapshot_hours": "a view that a thread keeps gets a snapshot after this many hours; 0 is never",
    "snapshot_events": "or after this many events; 0 is never",
    "snapshot_log_mb": "or when the log has grown by this many MiB; 0 is never",
    "demo": "this is a demonstration log, which the demo may replace",
}


class Loaded(msgspec.Struct, frozen=True):
    settings: Settings
    origins: dict[str, str]


def find_folder(start: Path) -> Path:
    """The nearest .everlog folder at or above a directory."""
    for directory in (start, *start.parents):
        if (directory / FOLDER).is_dir():
            return directory / FOLDER
    raise NoLogHere(
        f"there is no log in {start} or above it",
        why=f"a log lives in a folder named {FOLDER}",
        hint="everlog init",
        path=str(start),
    )


def load(
    folder: Path | None,
    *,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
    files: Files | None = None,
) -> Loaded:
    """All settings with the origin of each."""
    files = files or DiskFiles()
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    sources: list[tuple[str, Mapping[str, Any]]] = []
    if folder is not None:
        sources.append(_from_file(files, folder / FILE_NAME))
    sources.append(_from_user_file(files, _user_file(environment)))
    sources.append(("environment", _from_environment(environment)))
    sources.append(("flag", {key: value for key, value in (flags or {}).items() if value not in (None, "")}))
    for origin, found in sources:
        for key, value in found.items():
            _require_known(key, origin)
            values[key] = value
            origins[key] = f"{ENVIRONMENT_PREFIX}{key.upper()}" if origin == "environment" else origin
    settings = _converted(values, origins)
    return Loaded(settings, origins)


def require_usable(text: str, *, source: str) -> None:
    """Refuse the text of a settings file that could not be loaded."""
    values = tomllib.loads(text)
    for key in values:
        _require_known(key, source)
    _converted(values, dict.fromkeys(values, source))


def _converted(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        key = str(error).partition("$.")[2].rstrip("`")
        raise InvalidSettings(
            f"the setting {key or '?'} from {origins.get(key, 'a settings file')} is not usable",
            why=str(error),
            hint=f"everlog config set {key} {getattr(Settings(), key)}" if key else "everlog config show",
        ) from error


def _user_file(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
    return Path(base) / "everlog" / FILE_NAME


def _from_file(files: Files, path: Path) -> tuple[str, Mapping[str, Any]]:
    if not files.exists(path):
        return str(path), {}
    try:
        return str(path), tomllib.loads(files.read_all(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} is not a settings file", why=str(error), hint=f"correct {path}") from error


def _from_user_file(files: Files, path: Path) -> tuple[str, Mapping[str, Any]]:
    """As any settings file, but a home folder that is not ours to look into (sudo, a service) has none for us."""
    try:
        return _from_file(files, path)
    except ReadOnly:
        return str(path), {}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in environment.items():
        key = name.removeprefix(ENVIRONMENT_PREFIX)
        if key == name or key in _NOT_SETTINGS or key.startswith("TEST_"):
            continue
        field = key.lower()
        _require_known(field, name)
        found[field] = _typed(field, text)
    return found


def _typed(key: str, text: str) -> Any:
    """Text of the environment as the setting's own type; what does not fit is left for the check to name."""
    kind = type(Settings.__struct_defaults__[Settings.__struct_fields__.index(key)])
    if kind is int and _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if kind is bool and text.lower() in ("true", "1", "yes", "false", "0", "no"):
        return text.lower() in ("true", "1", "yes")
    return text


def _require_known(key: str, origin: str) -> None:
    if key in Settings.__struct_fields__:
        return
    near = difflib.get_close_matches(key, Settings.__struct_fields__, n=1)
    raise InvalidSettings(
        f"{origin} sets {key!r}, which is not a setting",
        why="the settings are " + ", ".join(sorted(Settings.__struct_fields__)),
        hint=f"did you mean {near[0]}?" if near else "everlog config show",
    )
