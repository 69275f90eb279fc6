"""One run of the command line: where it looks for the log, who acts, and in which form it answers.

Every command takes the same few options, before or after its name; they all end up here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from everlog.catalog.catalog import Catalog
    from everlog.cli.output import Output
    from everlog.cli.past_damage import LeftOut
    from everlog.errors import NotFound
    from everlog.log.log import Log
    from everlog.settings import Loaded

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Session:
    """What the options of this run say, and what was opened because of them."""

    def __init__(self, argv: Sequence[str] = ()) -> None:
        # A usage error may come before the option that says how to print it has been read.
        self.argv = list(argv)
        self.json = "--json" in argv
        self.agent = "--agent" in argv
        self.quiet = False
        self.no_color = False
        self.missing_ok = False
        self.past_damage = False
        self.offers_past_damage = False  # this command has the option
        self.directory = Path()
        self.url = ""
        self.actor = ""
        self.request_id = ""
        self.when_stopped = ""  # what Ctrl-C leaves, for who wonders
        self._launcher = os.environ.pop("EVERLOG_LAUNCHER", "")
        self._log: Log | None = None
        self._output: Output | None = None
        self._left_out: LeftOut | None = None
        self._hear_no_more: Callable[[], None] = lambda: None

    @property
    def out(self) -> Output:
        if self._output is None:
            from everlog.cli.output import Output

            self._output = Output(
                json=self.json, agent=self.agent, quiet=self.quiet, no_color=self.no_color, program=self.program
            )
        return self._output

    @property
    def program(self) -> str:
        """What to type to start this program again: the launcher's name if that started it."""
        if self._launcher:
            return self._launcher
        if sys.orig_argv[1:4] != ["-P", "-m", "everlog"]:
            return "everlog"
        import everlog

        launcher = Path(everlog.__file__).parents[2] / "everlog"
        return os.path.relpath(launcher) if launcher.parent != Path.cwd() else "./everlog"

    # ---- the log

    @property
    def place(self) -> Path:
        """The directory that this run starts from."""
        try:
            return Path.cwd() / self.directory
        except FileNotFoundError as error:
            from everlog.errors import NoLogHere

            raise NoLogHere(
                "the current directory is not there any more", why="somebody removed it", hint="cd to another one"
            ) from error

    def folder(self) -> Path:
        """The .everlog folder; NoLogHere if there is none, or if --log names a log without one."""
        from everlog.cli.store_urls import without_password
        from everlog.errors import NoLogHere
        from everlog.settings import find_folder

        if self.url:
            raise NoLogHere(
                f"{without_password(self.url)} has no .everlog folder",
                why="settings, declared types and the schema lock live in that folder",
                hint="leave --log out, or everlog init",
            )
        if not self.place.is_dir():
            raise NoLogHere(
                f"there is no directory {self.place}", hint=f"check what follows -C, or make it: {self._init()}"
            )
        try:
            return find_folder(self.place)
        except NoLogHere as error:
            raise NoLogHere(error.what, why=error.why, hint=self._init(), **error.details) from error

    def _init(self) -> str:
        """The command that makes a log where this run looked for one."""
        from shlex import quote

        return "everlog init" if self.directory == Path() else f"everlog init {quote(str(self.directory))}"

    def settings(self) -> Loaded:
        from everlog.settings import load

        return load(None if self.url else self.folder(), flags={"actor": self.actor, "store": self.url})

    def catalog(self) -> Catalog:
        """The event types, without opening the log."""
        from everlog.wiring import folder_catalog

        return folder_catalog(None if self.url else self.folder(), self.settings().settings)

    def log(self) -> Log:
        """The log, opened at the first call and closed at the end of the run. It is never made here."""
        if self._log is None:
            self._log = self._open()
        return self._log

    @property
    def left_out(self) -> LeftOut:
        """Where damage is reported that this run goes past."""
        if self._left_out is None:
            from everlog.cli.past_damage import LeftOut

            self._left_out = LeftOut(self.out)
        return self._left_out

    def close(self) -> None:
        if self._left_out is not None:
            self._left_out.report()
            self._left_out = None
        if self._log is not None:
            self._log.close()
            self._log = None
        self._hear_no_more()
        self._hear_no_more = lambda: None

    def _open(self) -> Log:
        from everlog import wiring
        from everlog.errors import NotFound

        self._hear_warnings()
        loaded = self.settings()
        actor = loaded.settings.actor or wiring.login_actor()
        past_damage = self.left_out.take if self.past_damage else None
        if self.url:
            try:
                return wiring.open(self.url_from_here(), actor=actor, create=False, past_damage=past_damage)
            except NotFound as error:
                raise self._of_no_log(error) from error
        folder = self.folder()
        try:
            return wiring.open_folder(folder, actor=actor, loaded=loaded, past_damage=past_damage)
        except NotFound as error:
            raise of_lost_store(error, folder) from error

    def _of_no_log(self, error: NotFound) -> NotFound:
        """What --log names is not there: a typing error, or a log that is still to be made."""
        from everlog.cli.store_urls import typed_url, url_from_folder
        from everlog.errors import NoLogHere, NotFound
        from everlog.settings import FOLDER, find_folder

        if not error.hint.startswith("everlog init"):
            return error
        try:
            folder = find_folder(self.place)
            hint = f"check what follows --log; without it, the log in {folder} is used"
        except NoLogHere:
            url = url_from_folder(self.url, base=self.place, folder=self.place / FOLDER)
            hint = f"check what follows --log, or make it: {self._init()} --store {typed_url(url)}"
        return NotFound(error.what, why=error.why, hint=hint, **error.details)

    def url_from_here(self) -> str:
        scheme, _, path = self.url.partition(":")
        if scheme not in ("sqlite", "jsonl", "segments") or self.directory == Path():
            return self.url
        return f"{scheme}:{self.directory / path.removeprefix('//')}"

    def _hear_warnings(self) -> None:
        """What the library would only log becomes a warning of this run."""
        import logging

        out = self.out

        class Warn(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                out.warn(record.getMessage())

        logger = logging.getLogger("everlog")
        before, passed_on = logger.handlers, logger.propagate
        logger.handlers, logger.propagate = [Warn(logging.WARNING)], False

        def restore() -> None:
            logger.handlers, logger.propagate = before, passed_on

        self._hear_no_more = restore


def of_lost_store(error: NotFound, folder: Path) -> NotFound:
    """What a store says that is not there, where settings name it: to begin anew would hide the loss."""
    from everlog.errors import NotFound

    if not error.hint.startswith("everlog init"):  # it knows better what is missing, such as the database around it
        return error
    return NotFound(
        error.what,
        why=f"the settings in {folder} name it, and it is gone",
        hint="restore it from a backup or version control (git checkout), or move"
        f" {folder.name} away to begin anew; everlog init --new begins a new log under these settings",
        **error.details,
    )


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value == "":  # mostly a variable of the shell that is not set, and never meant
            raise click.BadParameter("it is empty", ctx=context, param=parameter)
        # An option that was not given here may have been given before the command's name.
        if value:
            setattr(context.ensure_object(Session), name, value)

    return callback


def _remember_past_damage(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    session = context.ensure_object(Session)
    session.offers_past_damage = True
    session.past_damage = session.past_damage or value


def _option(*names: str, to: str, **settings: Any) -> Callable[[_Command], _Command]:
    return click.option(*names, expose_value=False, callback=_remember(to), **settings)


def common_options(command: _Command) -> _Command:
    """The options that every command has."""
    for option in reversed(
        (
            _option(
                "-C", "--dir", to="directory", metavar="DIR", type=click.Path(path_type=Path), help="Work in DIR."
            ),
            _option("--log", to="url", metavar="URL", help="Use this log, such as sqlite:log.db, not .everlog/."),
            _option("--json", to="json", is_flag=True, help="Answer in JSON."),
            _option("--agent", to="agent", is_flag=True, help="Answer in OK / ERR lines of key=value."),
            _option("-q", "--quiet", to="quiet", is_flag=True, help="Print ids only."),
            _option("--no-color", to="no_color", is_flag=True, help="No colour."),
        )
    ):
        command = option(command)
    return command


actor_option = _option("--actor", to="actor", metavar="ACTOR", help="Who acts, such as user:ada.")
past_damage_option = click.option(
    "--past-damage",
    is_flag=True,
    expose_value=False,
    callback=_remember_past_damage,
    help="Go on behind damage, and report what is left out.",
)
missing_ok_option = _option("--missing-ok", to="missing_ok", is_flag=True, help="Exit 0 if it is not there.")


def pass_session(command: Callable[..., Any]) -> Callable[..., Any]:
    """Hand the session to a command as its first argument."""
    from functools import update_wrapper

    def call(*args: Any, **kwargs: Any) -> Any:
        return command(click.get_current_context().ensure_object(Session), *args, **kwargs)

    return update_wrapper(call, command)
