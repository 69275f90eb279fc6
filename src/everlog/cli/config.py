"""`everlog config`: every setting, its value, and the origin of the value."""

from __future__ import annotations

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
        from everlog.application.folder.settings import described_settings

        with formatter.section("Settings"):
            formatter.write_dl(described_settings())


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
    from everlog.application.folder.settings import all_settings

    found = all_settings(session.settings())
    data = {one.setting: {"value": one.value, "origin": one.origin} for one in found}
    session.out.answer(Answer.of_many(found, data=data))


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

    from everlog.application.folder.settings import known_setting, one_setting

    key = known_setting(key)  # a misspelt one is reported also where there is no log
    found = one_setting(session.settings(), key)
    facts = msgspec.to_builtins(found)
    shown = str(found.value).lower() if isinstance(found.value, bool) else str(found.value)
    session.out.answer(Answer.of_row(shown, facts, lines=[safe(shown)], row=[found.value]))


@config_command.command("set", cls=_WithSettings)
@click.argument("key")
@click.argument("value")
@common_options
@pass_session
def set_setting(session: Session, key: str, value: str) -> None:
    """Write a setting to the project's file, .everlog/everlog.toml.

    A value that can never be used is refused, and so are programs that cannot be loaded. A catalog or views whose
    module is not found here may be found elsewhere: they are written, with a warning.

    \b
    Examples:
      everlog config set actor user:ada
      everlog config set payload_bytes_max 262144
    """
    from everlog.application.folder.settings import change_setting, known_setting

    key = known_setting(key)
    done = change_setting(session.folder(), key, value, warn=session.out.warn)
    facts = {"setting": done.setting, "value": done.value, "file": str(done.file)}
    shown = done.value if isinstance(done.value, str) else value
    lines = [safe(f"{done.setting} = {shown}   in {done.file}")]
    session.out.answer(Answer.of_row(done.setting, facts, lines=lines))
    if done.overridden_by:
        session.out.warn(f"{done.overridden_by} has another value and takes precedence")


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
    from everlog.application.folder.settings import settings_files

    found = settings_files(session.folder())
    session.out.answer(
        Answer.of_many(
            found,
            ("which", "path", "there"),
            cells={"there": lambda one: "yes" if one.exists else "no"},
            named="path",
            data={one.which: {"path": str(one.path), "exists": one.exists} for one in found},
        )
    )
