"""`everlog config`: every setting, its value, and the origin of the value."""

from __future__ import annotations

from typing import Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session


@click.group("config")
@common_options
def config_command() -> None:
    """Settings: show, get, set, path.

    A later source overrides an earlier one: defaults, .everlog/everlog.toml, your own file, EVERLOG_* in the
    environment, options.

    \b
    Examples:
      everlog config show
      everlog config set actor user:ada
    """


class _WithSettings(click.Command):
    """A command whose help lists the settings, which are imported only for that."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from everlog.settings import DOCS

        with formatter.section("Settings"):
            formatter.write_dl(list(DOCS.items()))


@config_command.command("show", cls=_WithSettings)
@common_options
@pass_session
def show_settings(session: Session) -> None:
    """Show every setting with its value and its origin.

    Columns when piped: setting, value, origin.

    \b
    Example:
      everlog config show
    """
    import msgspec

    from everlog.application.store_urls import without_password

    loaded = session.settings()
    values = msgspec.to_builtins(loaded.settings)
    values["store"] = without_password(values["store"])  # people paste this output; `get` prints the whole value
    columns = ("setting", "value", "origin")
    rows = [(name, value, loaded.origins[name]) for name, value in values.items()]
    session.out.answer(
        Answer(
            data={name: {"value": value, "origin": origin} for name, value, origin in rows},
            ids=list(values),
            columns=columns,
            rows=rows,
            facts={"count": len(rows)},
        )
    )


@config_command.command("get", cls=_WithSettings)
@click.argument("key")
@common_options
@pass_session
def get_setting(session: Session, key: str) -> None:
    """Print the value of one setting.

    \b
    Example:
      everlog config get store
    """
    import msgspec

    key = _known(key)
    loaded = session.settings()
    value = msgspec.to_builtins(loaded.settings)[key]
    facts = {"setting": key, "value": value, "origin": loaded.origins[key]}
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    session.out.answer(Answer(data=facts, ids=[shown], rows=[(value,)], lines=[safe(shown)], facts=facts))


@config_command.command("set", cls=_WithSettings)
@click.argument("key")
@click.argument("value")
@common_options
@pass_session
def set_setting(session: Session, key: str, value: str) -> None:
    """Write a setting to the project's file, .everlog/everlog.toml.

    A value that can never be used is refused. A catalog or views whose module is not found here may be found
    elsewhere: they are written, with a warning.

    \b
    Examples:
      everlog config set actor user:ada
      everlog config set payload_bytes_max 262144
    """
    from everlog.files import DiskFiles, replace_file
    from everlog.settings import FILE_NAME, load, require_usable, with_setting

    key = _known(key)
    folder = session.folder()
    typed = _typed(key, value)
    if key in ("actor", "scope") and value:
        from everlog.core.fields import require_shape

        require_shape(key, value)
    if key in ("catalog", "views") and value:
        from everlog.user_code import require_code

        if doubt := require_code(key, value):
            session.out.warn(doubt)
    if key == "store":
        from everlog.application.store_urls import PASSWORD_WARNING, has_password, without_password
        from everlog.wiring import require_url

        require_url(value)
        if has_password(value):
            session.out.warn(PASSWORD_WARNING)
            value = without_password(value)  # for the answer only; the file gets the whole value
    path = folder / FILE_NAME
    files = DiskFiles()
    before = files.read_all(path).decode() if files.exists(path) else ""
    after = with_setting(before, key, typed, source=str(path))
    # Only the result is checked, so a value that makes all settings unusable can be corrected.
    require_usable(after, source=str(path))
    replace_file(files, path, after.encode())
    loaded = load(folder)
    facts = {"setting": key, "value": value if key == "store" else typed, "file": str(path)}
    session.out.answer(
        Answer(
            data=facts,
            ids=[key],
            rows=[tuple(facts.values())],
            lines=[safe(f"{key} = {value}   in {path}")],
            facts=facts,
        )
    )
    if loaded.origins[key] != str(path) and getattr(loaded.settings, key) != typed:
        session.out.warn(f"{loaded.origins[key]} has another value and takes precedence")


@config_command.command("path")
@common_options
@pass_session
def show_paths(session: Session) -> None:
    """Print the paths of the settings files. The second applies to all of your logs.

    Columns when piped: which, path, there.

    \b
    Example:
      everlog config path
    """
    import os
    from pathlib import Path

    from everlog.files import DiskFiles
    from everlog.settings import FILE_NAME

    files = DiskFiles()
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    paths = {"project": session.folder() / FILE_NAME, "user": home / "everlog" / FILE_NAME}
    rows = [(which, str(path), "yes" if files.exists(path) else "no") for which, path in paths.items()]
    session.out.answer(
        Answer(
            data={which: {"path": path, "exists": there == "yes"} for which, path, there in rows},
            ids=[path for _, path, _ in rows],
            columns=("which", "path", "there"),
            rows=rows,
            facts={"count": len(rows)},
        )
    )


def _known(key: str) -> str:
    """Return the setting that `actor` or `log.actor` names."""
    from everlog.core.text import did_you_mean
    from everlog.errors import InvalidSettings
    from everlog.settings import Settings, plain_name

    key = plain_name(key)
    if key not in Settings.__struct_fields__:
        raise InvalidSettings(
            f"{key!r} is not a setting",
            why="the settings are " + ", ".join(Settings.__struct_fields__),
            hint=did_you_mean(key, Settings.__struct_fields__) or "everlog config show",
        )
    return key


def _typed(key: str, text: str) -> Any:
    """Return the text as a value of the setting's type."""
    from everlog.errors import InvalidSettings
    from everlog.settings import DOCS, Settings

    default = getattr(Settings(), key)
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(default, bool) and text.lower() in words:
        return words[text.lower()]
    if isinstance(default, int) and not isinstance(default, bool) and text.isdigit():
        return int(text)
    if isinstance(default, str):
        return text
    kind = "true or false" if isinstance(default, bool) else "a whole number, 0 or more"
    raise InvalidSettings(f"{key} cannot be {text!r}", why=f"it is {kind}: {DOCS[key]}", hint=f"it is {default} now")
