"""Settings, and where each came from: defaults, the project's file, the user's file, the environment, flags.

A later source wins. Unknown names are errors: a typo that is ignored would be a setting that is silently not set.

In a file the settings are grouped in sections (`SECTIONS`). A setting has the same name everywhere; `log.actor` and
`actor` both name it. Files of earlier versions, without sections, are still read, with a warning.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

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
    *("URL", "TOKEN", "ALLOW_HTTP"),  # of a server: a token is never among the settings, which are printed
    *("JVM", "JVM_OPTIONS", "JVM_DRIVER", "JVM_LOG"),  # how Spark's Java is started: pipeline/session/java_home
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    store: str = "sqlite:log.db"
    actor: str = ""
    scope: str = ""
    catalog: str = ""
    views: str = ""
    programs: str = ""
    payload_bytes_max: Annotated[int, msgspec.Meta(ge=1, le=64 * 1024 * 1024)] = 1024 * 1024
    payload_bytes_warn: Annotated[int, msgspec.Meta(ge=0)] = 64 * 1024
    keys_kept_hours: Annotated[int, msgspec.Meta(ge=24)] = 24
    segment_mb_max: Annotated[int, msgspec.Meta(ge=1, le=2048)] = 100
    segment_hours_max: Annotated[int, msgspec.Meta(ge=1)] = 24
    archive_after_days: Annotated[int, msgspec.Meta(ge=0)] = 7
    lake: str = ""
    lake_file_mb: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 512
    flow_planned: str = "WPCreated"
    flow_moved: str = "WPStatusChanged"
    flow_lane: str = "new_status"
    lanes_planned: str = "planned"
    lanes_doing: str = "doing"
    lanes_review: str = "for_review"
    lanes_done: str = "done"
    deploys: str = "control.deploy"
    talk: str = "chat, market"
    snapshots: str = ""
    snapshot_hours: Annotated[int, msgspec.Meta(ge=0)] = 6
    snapshot_events: Annotated[int, msgspec.Meta(ge=0)] = 10_000
    snapshot_log_mb: Annotated[int, msgspec.Meta(ge=0)] = 500
    sign: Literal["off", "required"] = "off"
    keys_folder: str = ""
    passphrase_file: str = ""
    authors: str = ""
    emergency: bool = False
    follow_purges: bool = True
    follow_forgets: bool = True
    snapshot_quorum: Annotated[int, msgspec.Meta(ge=0)] = 0
    host_names: str = ""
    requests_per_second: Annotated[int, msgspec.Meta(ge=0)] = 1000
    connections_max: Annotated[int, msgspec.Meta(ge=1)] = 2000
    connections_per_token: Annotated[int, msgspec.Meta(ge=1)] = 1000
    oidc_issuer: str = ""
    oidc_audience: str = ""
    oidc_actor_claim: str = "sub"
    oidc_scope_claim: str = "everlog_scope"
    oidc_role_claim: str = "everlog_role"
    demo: bool = False


DOCS = {
    "store": "the URL of the log; a path in it is relative to the .everlog folder",
    "actor": "the actor of events that name none, such as user:ada; empty means the login name",
    "scope": "the scope of events that name none",
    "catalog": "event types written in Python, as module:attribute",
    "views": "views written in Python, as module:attribute of a view or of a list of views",
    "programs": "programs that are on: agent, community, control, issue, wp, plugins, or modules with PROGRAM",
    "payload_bytes_max": "a larger payload is refused",
    "payload_bytes_warn": "a larger payload causes a warning",
    "keys_kept_hours": "how long an idempotency key is remembered, in hours, 24 or more",
    "segment_mb_max": "a segments log starts a new file at this size in MiB",
    "segment_hours_max": "a segments log starts a new file at the latest after this many hours",
    "archive_after_days": "everlog segments archive compresses segments older than this, in days",
    "lake": "where the lake of everlog pipeline is: a folder, or s3://BUCKET/FOLDER; empty means beside the log",
    "lake_file_mb": "small files of the lake are united to files of about this size in MiB",
    "flow_planned": "the event type that plans a work package, for the table flow",
    "flow_moved": "the event type that moves it to another lane",
    "flow_lane": "the column of flow_moved that has the new lane",
    "lanes_planned": "the lanes in which nobody works on it yet, separated by commas",
    "lanes_doing": "the lanes in which somebody does",
    "lanes_review": "the lanes in which it waits for a review",
    "lanes_done": "the lanes in which it is finished",
    "deploys": "what the event types of deploys begin with, before .requested, .started, .succeeded and so on",
    "talk": "the first words of the event types that the table talk counts, separated by commas",
    "snapshots": "the folder of the snapshots of views; empty means beside the log",
    "snapshot_hours": "a background view gets a snapshot after this many hours; 0 means never",
    "snapshot_events": "a background view gets a snapshot after this many events; 0 means never",
    "snapshot_log_mb": "a background view gets a snapshot when the log has grown by this many MiB; 0 means never",
    "sign": "required: every event that this log makes is signed, or refused; off: only if its origin is a key",
    "keys_folder": "the folder of the private keys; empty means keys in the .everlog folder, or beside the log",
    "passphrase_file": "a file with the passphrase of the key, such as /dev/fd/3; empty means to ask on the terminal",
    "authors": "whose signed events count: keys, separated by commas, or community:ID; empty means everybody's",
    "emergency": "everlog sync --watch syncs every 30 s, and only with peers in this network; else every 5 minutes",
    "follow_purges": "what another node purged, with a signed record, is removed here, too; false keeps it",
    "follow_forgets": "whom another node forgot, with a signed record, is forgotten here, too; false: only by hand",
    "snapshot_quorum": "a peer's snapshot is used if so many of the keys in authors signed it; 0 means a majority",
    "host_names": "names under which everlog serve answers, separated by commas, beside its address and localhost",
    "requests_per_second": "how many requests of one token everlog serve answers per second; 0 means no limit",
    "connections_max": "how many connections everlog serve keeps open",
    "connections_per_token": "how many of them may use the same token",
    "oidc_issuer": "everlog serve accepts JWTs of this issuer, such as https://id.example; empty means none",
    "oidc_audience": "what a JWT must name as its audience",
    "oidc_actor_claim": "the claim of a JWT that names who acts",
    "oidc_scope_claim": "the claim of a JWT with the scope that the caller is limited to; * means no limit",
    "oidc_role_claim": "the claim of a JWT with the role: read, append or admin",
    "demo": "this is the log of a demonstration, which everlog demo may replace",
}


SECTIONS = {
    "log": (
        *(
            "store",
            "actor",
            "scope",
            "catalog",
            "programs",
            "payload_bytes_max",
            "payload_bytes_warn",
            "keys_kept_hours",
        ),
        "demo",
    ),
    "segments": ("segment_mb_max", "segment_hours_max", "archive_after_days"),
    "views": ("views", "snapshots", "snapshot_hours", "snapshot_events", "snapshot_log_mb"),
    "pipeline": (
        *("lake", "lake_file_mb", "flow_planned", "flow_moved", "flow_lane"),
        *("lanes_planned", "lanes_doing", "lanes_review", "lanes_done", "deploys", "talk"),
    ),
    "trust": ("sign", "keys_folder", "passphrase_file", "authors"),
    "sync": ("emergency", "follow_purges", "follow_forgets", "snapshot_quorum"),
    "server": (
        *("host_names", "requests_per_second", "connections_max", "connections_per_token"),
        *("oidc_issuer", "oidc_audience", "oidc_actor_claim", "oidc_scope_claim", "oidc_role_claim"),
    ),
}

_logger = logging.getLogger("everlog")
_reported: set[str] = set()  # files whose settings outside sections were reported


class Loaded(msgspec.Struct, frozen=True):
    settings: Settings
    origins: dict[str, str]


def find_folder(start: Path) -> Path:
    """Return the nearest .everlog folder at or above a directory."""
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
    """Return all settings, with the origin of each."""
    files = files or DiskFiles()
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    sources: list[tuple[str, Mapping[str, Any]]] = []
    if folder is not None:
        sources.append(_from_file(files, folder / FILE_NAME))
    sources.append(_from_user_file(files, user_file(environment)))
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
    values, _ = _flattened(_parsed(text, source), source)
    _converted(values, dict.fromkeys(values, source))


def section_of(name: str) -> str:
    """Return the section of a setting."""
    return next(section for section, names in SECTIONS.items() if name in names)


def plain_name(name: str) -> str:
    """Return the setting that `actor` or `log.actor` names; any other text is returned as it is."""
    section, _, rest = name.rpartition(".")
    return rest if rest in SECTIONS.get(section, ()) else name


def template(*, store: str, demo: bool, sign: bool = False, programs: Sequence[str] = ()) -> str:
    """Return the text of a new settings file: every section, with a comment for each setting."""
    values: dict[str, Any] = {"store": store, "demo": demo} if demo else {"store": store}
    if sign:
        values["sign"] = "required"
    if programs:
        values["programs"] = list(programs)
    lines = ["# Settings of this log. `everlog config show` prints each value and where it comes from."]
    defaults = Settings()
    for section, names in SECTIONS.items():
        lines += ["", f"[{section}]"]
        lines += [f"# {name}: {DOCS[name]} (default: {_toml(getattr(defaults, name))})" for name in names]
        lines += [f"{name} = {_toml(value)}" for name, value in values.items() if name in names]
    return "\n".join(lines) + "\n"


def with_setting(text: str, name: str, value: Any, *, source: str) -> str:
    """Return the text of a settings file with one setting changed, in its section; comments and order stay.

    If the setting stands outside its section, it is moved into it.
    """
    import tomlkit  # only a command that changes settings needs it

    before, outside = _flattened(_parsed(text, source), source)
    section = section_of(name)
    document: Any = tomlkit.parse(text)
    # `views` is both a setting and a section: outside its section it would be in the way of the section.
    for old in [old for old in outside if old in (name, section)]:
        kept = document.pop(old)
        document.setdefault(section_of(old), tomlkit.table())[old] = kept
    document.setdefault(section, tomlkit.table())[name] = value
    changed: str = tomlkit.dumps(document)
    if _flattened(_parsed(changed, source), source)[0] != {**before, name: value}:
        raise InvalidSettings(
            f"{name} cannot be set in {source} without changing other settings",
            why="the file is written in a form that everlog does not edit",
            hint=f"edit {source}: in [{section}], {name} = {_toml(value)}",
        )
    return changed


def _toml(value: Any) -> str:
    """Return texts, a number or a truth value as TOML, which has the escapes of JSON and one more, for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(f"{source} is not a settings file", why=str(error), hint=f"correct {source}") from error


def _flattened(parsed: Mapping[str, Any], source: str) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a file by name, and the names of those that stand outside their section."""
    found: dict[str, Any] = {}
    outside: list[str] = []
    for key, value in parsed.items():
        if key in SECTIONS and isinstance(value, dict):
            for name, item in value.items():
                _require_known(name, source)
                _require_section(name, key, source)
                _require_once(name, found, source)
                found[name] = item
        else:
            _require_known(key, source)
            _require_once(key, found, source)
            found[key] = value
            outside.append(key)
    return found, outside


def _require_section(name: str, section: str, source: str) -> None:
    if name not in SECTIONS[section]:
        raise InvalidSettings(
            f"{source} sets {name} in the section [{section}]",
            why=f"it belongs in [{section_of(name)}]",
            hint=f"move it in {source} to [{section_of(name)}]",
        )


def _require_once(name: str, found: Mapping[str, Any], source: str) -> None:
    if name in found:
        raise InvalidSettings(
            f"{source} sets {name} twice",
            why=f"once in [{section_of(name)}] and once outside of any section",
            hint=f"remove the one outside of [{section_of(name)}]",
        )


def _report_outside(names: list[str], path: Path) -> None:
    if names and str(path) not in _reported:
        _reported.add(str(path))
        moved = ", ".join(f"{name} to [{section_of(name)}]" for name in names)
        _logger.warning("%s has settings outside of sections, which is out of date; move %s", path, moved)


def _converted(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    given = values.get("programs")
    if isinstance(given, list) and all(isinstance(word, str) for word in given):
        values = {**values, "programs": ",".join(given)}
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        key = str(error).partition("$.")[2].rstrip("`")
        raise InvalidSettings(
            f"the setting {key or '?'} from {origins.get(key, 'a settings file')} is not usable",
            why=str(error),
            hint=f"everlog config set {key} {getattr(Settings(), key)}" if key else "everlog config show",
        ) from error


def user_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the settings file that applies to all logs of this user."""
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
    return Path(base) / "everlog" / FILE_NAME


def _from_file(files: Files, path: Path) -> tuple[str, Mapping[str, Any]]:
    if not files.exists(path):
        return str(path), {}
    try:
        text = files.read_all(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{path} is not a settings file", why=str(error), hint=f"correct {path}") from error
    found, outside = _flattened(_parsed(text, str(path)), str(path))
    _report_outside(outside, path)
    return str(path), found


def _from_user_file(files: Files, path: Path) -> tuple[str, Mapping[str, Any]]:
    """Read the user's file. A home folder that cannot be read (sudo, a service) counts as one without a file."""
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
    """Return a text of the environment as the type of the setting; a text that does not fit is refused later."""
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
