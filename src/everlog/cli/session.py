"""One run of the command line: where it looks for the log, who acts, and in which form it answers.

Every command has the same few options, before or after its name; their values are here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

if TYPE_CHECKING:
    from everlog.application.folder.open import AnyLog, Catalog, Loaded, Location, RemoteLog
    from everlog.cli.events.past_damage import LeftOut
    from everlog.cli.output import Output
    from everlog.log.log import Log

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Session:
    """The options of this run, and what was opened because of them."""

    def __init__(self, argv: Sequence[str] = (), fields: Sequence[str] = ()) -> None:
        # A usage error may be raised before the option for its output form has been parsed.
        self.argv = list(argv)
        self.json = "--json" in argv
        self.fields = tuple(fields)
        self.agent = "--agent" in argv
        self.quiet = False
        self.no_color = False
        self.missing_ok = False
        self.past_damage = False
        self.offers_past_damage = False  # this command has the option
        self.work_in = Path()
        self.url = ""
        self.server_given = ""
        self.actor = ""
        self.request_id = ""
        self.when_stopped = ""  # printed after Ctrl-C: what the command leaves behind
        self._launcher = os.environ.pop("EVERLOG_LAUNCHER", "")
        self._log: Log | None = None
        self._remote: RemoteLog | None = None
        self._output: Output | None = None
        self._left_out: LeftOut | None = None
        self._stop_warnings: Callable[[], None] | None = None

    @property
    def out(self) -> Output:
        if self._output is None:
            from everlog.cli.output import Output

            self._output = Output(
                json=self.json, agent=self.agent, quiet=self.quiet, no_color=self.no_color, program=self.program
            )
            self._output.fields = self.fields
        return self._output

    @property
    def program(self) -> str:
        """What to type to start this program again: the name of the launcher, if it was started by it."""
        if self._launcher:
            return self._launcher
        if sys.orig_argv[1:4] != ["-P", "-m", "everlog"]:
            return "everlog"
        import everlog

        launcher = Path(everlog.__file__).parents[2] / "everlog"
        return os.path.relpath(launcher) if launcher.parent != Path.cwd() else "./everlog"

    # ---- the log

    @property
    def location(self) -> Location:
        """Where this run looks for the log."""
        from everlog.application.folder.open import Location

        self._show_warnings()
        server = self.server
        return Location(work_in=self.work_in, url="" if server else self.url, server=server, actor=self.actor)

    @property
    def server(self) -> str:
        """The URL of the server that has the log; empty if the log is opened here."""
        if not (self.server_given or self.url or "EVERLOG_URL" in os.environ):
            return ""  # without an import: most runs open a log
        from everlog.application.folder.open import server_url

        if self.server_given and self.url:
            raise click.UsageError("--log and --url both name a log: leave one of them out")
        return server_url(self.server_given, self.url)

    @property
    def directory(self) -> Path:
        """The directory that paths on the command line are relative to."""
        return self.location.directory

    def folder(self) -> Path:
        """Return the .everlog folder. Raises NoLogHere if there is none, or if --log names a log without one."""
        return self.location.folder()

    def keys_path(self) -> Path:
        """Return the folder of the private keys of the log."""
        from everlog.application.trust.keys import keys_of

        return keys_of(self.location).path

    def settings(self) -> Loaded:
        self._show_warnings()
        return self.location.settings()

    def catalog(self) -> Catalog:
        """Return the event types, without opening the log."""
        self._show_warnings()
        return self.location.catalog()

    def log(self) -> Log:
        """Return the log, opened at the first call and closed at the end of the run. It is never created here.

        It is for commands that need the log itself: if it is behind a server, they end with OnlyLocal.
        """
        if self._log is None:
            if self.server:
                from everlog.application.folder.open import only_local

                raise only_local(click.get_current_context().command_path)
            self._show_warnings()
            self._log = self.location.open(past_damage=self.left_out.take if self.past_damage else None)
            self._require_on(self._log)
        return self._log

    def log_id(self, *, optional: bool = False) -> str:
        """Return the id of the log; empty if there is none here and it is `optional`."""
        from everlog.errors import NoLogHere

        try:
            return self.log().identity.log_id
        except NoLogHere:
            if optional:
                return ""
            raise

    def _require_on(self, log: Log) -> None:
        """Refuse a command of a program that is not on in this log."""
        from everlog.programs import GROUPS

        context = click.get_current_context(silent=True)
        words = context.command_path.split() if context else []
        if len(words) > 1 and words[1] in GROUPS:
            self.location.require_on(words[1], log)

    def any_log(self) -> AnyLog:
        """Return the log, or the log behind a server: for commands that work on both."""
        if not self.server:
            return self.log()
        if self._remote is None:
            if self.past_damage:
                from everlog.application.folder.open import only_local

                raise only_local("--past-damage")
            self._show_warnings()
            self._remote = self.location.connect()
        return self._remote

    @property
    def acting(self) -> str:
        """Who acts: the actor of the log. On a server the token decides, and only --actor is compared with it."""
        return self.actor if self.server else self.log().actor

    @property
    def left_out(self) -> LeftOut:
        """Where this run reports damage that it skips."""
        if self._left_out is None:
            from everlog.cli.events.past_damage import LeftOut

            self._left_out = LeftOut(self.out)
        return self._left_out

    def close(self) -> None:
        if self._left_out is not None:
            self._left_out.report()
            self._left_out = None
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        if self._stop_warnings is not None:
            self._stop_warnings()
            self._stop_warnings = None

    def _show_warnings(self) -> None:
        """Print the warnings that the library logs, until the end of the run."""
        if self._stop_warnings is None:
            from everlog.application.folder.open import show_warnings

            self._stop_warnings = show_warnings(self.out.warn)


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value == "":  # mostly a shell variable that is not set
            raise click.BadParameter("the value is empty", ctx=context, param=parameter)
        # The option may have been given before the name of the command.
        if value:
            setattr(context.ensure_object(Session), name, value)

    return callback


def _remember_past_damage(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    session = context.ensure_object(Session)
    session.offers_past_damage = True
    session.past_damage = session.past_damage or value


def _option(*names: str, to: str, **settings: Any) -> Callable[[_Command], _Command]:
    # The place is known before --help, which lists the programs of that place.
    return click.option(
        *names,
        expose_value=False,
        callback=_remember(to),
        is_eager=to in ("work_in", "url", "server_given"),
        **settings,
    )


def together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds several options, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


common_options = together(
    _option(
        "-C",
        "--dir",
        to="work_in",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Work in DIR instead of the current directory.",
    ),
    _option("--log", to="url", metavar="URL", help="Use the log at this URL, such as sqlite:log.db."),
    # Its name in click is not `url`: some commands have an argument of that name.
    _option(
        *("--url", "server_url"),
        to="server_given",
        metavar="URL",
        help="Use the log behind a server, such as https://HOST.",
    ),
    _option("--json", to="json", is_flag=True, help="Answer in JSON; --json=FIELD,FIELD gives these fields only."),
    _option("--agent", to="agent", is_flag=True, help="Answer in OK / ERR lines of key=value."),
    _option("-q", "--quiet", to="quiet", is_flag=True, help="Print ids only."),
    _option("--no-color", to="no_color", is_flag=True, help="Print without colour."),
)
"""The options that every command has."""


def write_options(command: _Command) -> _Command:
    """Add the options of every command that records events."""
    from everlog.cli.time_options import MOMENT

    correlation = "An id that all events that belong together share."
    add = together(
        click.option("--key", metavar="KEY", default="", help="A retry with the same key is done once."),
        click.option("--causation", metavar="ID", default="", help="The event that caused this one."),
        click.option("--correlation", metavar="ID", default="", help=correlation),
        click.option("--request-id", metavar="ID", default="", help="The request that this event belongs to."),
        click.option("--at", type=MOMENT, metavar="TIME", help="When it happened: 10m ago, 2026-11-01T10:00Z."),
        click.option("--dry-run", is_flag=True, help="Check everything, record nothing."),
        actor_option,
    )
    return add(command)


actor_option = _option("--actor", to="actor", metavar="ACTOR", help="Who acts, such as user:ada.")
past_damage_option = click.option(
    "--past-damage",
    is_flag=True,
    expose_value=False,
    callback=_remember_past_damage,
    help="Continue after damage, and report what is left out.",
)
missing_ok_option = _option(
    "--missing-ok", to="missing_ok", is_flag=True, help="Exit 0 if what is named does not exist."
)


def pass_session(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the session to a command as its first argument."""
    from functools import update_wrapper

    def call(*args: Any, **kwargs: Any) -> Any:
        return command(click.get_current_context().ensure_object(Session), *args, **kwargs)

    return update_wrapper(call, command)


class LazyGroup(click.Group):
    """A group that knows its commands by name, and imports the module of one when it is used."""

    modules: ClassVar[Mapping[str, str]] = {}  # name -> the module that has its command, as NAME_command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = import_module(f"everlog.cli.{self.modules[cmd_name]}")
        found: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return found
