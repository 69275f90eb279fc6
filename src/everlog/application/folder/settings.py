"""The settings of a log: their values and where each comes from, and a change of one in the project's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from everlog.core.fields import require_shape
from everlog.core.text import did_you_mean
from everlog.errors import InvalidSettings
from everlog.files import DiskFiles, replace_file
from everlog.settings import (
    DOCS,
    FILE_NAME,
    Loaded,
    Settings,
    load,
    plain_name,
    require_usable,
    user_file,
    with_setting,
)
from everlog.store_urls import PASSWORD_WARNING, has_password, require_url, without_password
from everlog.user_code import require_code


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, its value, and the file or the variable that the value comes from."""

    columns: ClassVar[tuple[str, ...]] = ("setting", "value", "origin")

    setting: str
    value: Any
    origin: str


class SettingsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that settings are read from."""

    which: str
    path: Path
    exists: bool


class ChangedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was written to the project's file; `overridden_by` names a source that still overrides it."""

    setting: str
    value: Any  # without a password
    file: Path
    overridden_by: str


def described_settings() -> list[tuple[str, str]]:
    """Return every setting with its description."""
    return list(DOCS.items())


def all_settings(loaded: Loaded) -> list[Setting]:
    """Return every setting. People paste this, so a URL has no password; `one_setting` returns the whole value."""
    values: dict[str, Any] = msgspec.to_builtins(loaded.settings)
    values["store"] = without_password(values["store"])
    return [Setting(setting=name, value=value, origin=loaded.origins[name]) for name, value in values.items()]


def one_setting(loaded: Loaded, name: str) -> Setting:
    """Return one setting with its whole value."""
    name = known_setting(name)
    return Setting(setting=name, value=msgspec.to_builtins(loaded.settings)[name], origin=loaded.origins[name])


def change_setting(folder: Path, name: str, text: str, *, warn: Callable[[str], None]) -> ChangedSetting:
    """Write a setting to the file of a folder. A value that can never be used is refused.

    A catalog or views whose module is not found here may be found elsewhere: they are written, with a warning. A
    program that cannot be loaded here is refused: with it, no command would work.
    """
    name = known_setting(name)
    value = _typed(name, text)
    _require_value(name, text, warn)
    files, path = DiskFiles(), folder / FILE_NAME
    before = files.read_all(path).decode() if files.exists(path) else ""
    after = with_setting(before, name, value, source=str(path))
    # Only the result is checked, so a value that makes all settings unusable can be corrected.
    require_usable(after, source=str(path))
    replace_file(files, path, after.encode())
    loaded = load(folder)
    origin = loaded.origins[name]
    other = origin != str(path) and getattr(loaded.settings, name) != value
    shown = without_password(text) if name == "store" else value
    return ChangedSetting(setting=name, value=shown, file=path, overridden_by=origin if other else "")


def settings_files(folder: Path) -> list[SettingsFile]:
    """Return the file of the project, and the one that applies to all logs of this user."""
    files, paths = DiskFiles(), {"project": folder / FILE_NAME, "user": user_file()}
    return [SettingsFile(which=which, path=path, exists=files.exists(path)) for which, path in paths.items()]


def known_setting(name: str) -> str:
    """Return the setting that `actor` or `log.actor` names. Raises InvalidSettings if there is none."""
    name = plain_name(name)
    if name not in Settings.__struct_fields__:
        raise InvalidSettings(
            f"{name!r} is not a setting",
            why="the settings are " + ", ".join(Settings.__struct_fields__),
            hint=did_you_mean(name, Settings.__struct_fields__) or "everlog config show",
        )
    return name


def _typed(name: str, text: str) -> Any:
    """Return the text as a value of the setting's type."""
    default = getattr(Settings(), name)
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(default, bool) and text.lower() in words:
        return words[text.lower()]
    if isinstance(default, int) and not isinstance(default, bool) and text.isdigit():
        return int(text)
    if isinstance(default, str):
        return text
    kind = "true or false" if isinstance(default, bool) else "a whole number, 0 or more"
    raise InvalidSettings(
        f"{name} cannot be {text!r}", why=f"it is {kind}: {DOCS[name]}", hint=f"it is {default} now"
    )


def _require_value(name: str, text: str, warn: Callable[[str], None]) -> None:
    if name in ("actor", "scope") and text:
        require_shape(name, text)
    if name in ("catalog", "views", "programs") and text and (doubt := require_code(name, text)):
        warn(doubt)
    if name == "store":
        require_url(text)
        if has_password(text):
            warn(PASSWORD_WARNING)
