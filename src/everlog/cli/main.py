"""The `everlog` command: its table of commands, its exit codes, and the one place where errors become text.

A command's module is imported when that command runs, so that `everlog --help` loads click and nothing else.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import click

from everlog._version import __version__
from everlog.cli.first_page import first_page
from everlog.cli.session import LazyGroup, Session, actor_option, common_options

# name -> (section, module, what it does)
COMMANDS = {
    "init": ("Start", "init", "Create a log in this folder."),
    "demo": ("Start", "demo", "Write a sample log and show what a log can do."),
    "help": ("Start", "help", "Explain a command or a topic."),
    "append": ("Write", "events.append", "Record an event, or a batch of them."),
    "purge": ("Write", "events.purge", "Remove a stream's events permanently."),
    "forget": ("Write", "events.forget", "Forget a person: destroy their keys, erase what was never sealed."),
    "agent": ("Programs", "programs.agents", "Commands of agents: propose, approve, list, trace and more."),
    "community": ("Programs", "programs.community", "A community: members, market, chats, files and more."),
    "issue": ("Programs", "programs.issues", "Issues: create, comment, link, close, list, search and more."),
    "control": ("Programs", "programs.controlplane", "A control plane: deploy, desired, audit, follow and more."),
    "wp": ("Programs", "programs.workpackages", "Work packages: create, move, gate, status, board and more."),
    "program": ("Programs", "programs.own", "Programs on the log: new, list."),
    "log": ("Read", "events.log", "Show events."),
    "tail": ("Read", "events.log", "Show the newest events and wait for more."),
    "show": ("Read", "events.show", "Show one event in full."),
    "state": ("Read", "events.state", "Show the state of a stream or a view, now or as it was."),
    "diff": ("Read", "events.state", "Show what changed in a stream between two moments."),
    "why": ("Read", "events.state", "Show which events set a value."),
    "errors": ("Read", "events.refusals", "Show refused requests, and why."),
    "views": ("Read", "views.group", "Derived state: list, get, run, rebuild, audit and more."),
    "conflicts": ("Read", "conflicts", "Concurrent changes of one stream: list, detect, resolve."),
    "snapshot": ("Read", "views.snapshot", "Snapshots of views: create, list, verify, prune and more."),
    "copy": ("Move", "transfer.copy", "Copy a whole log into another store."),
    "upgrade": ("Move", "transfer.upgrade", "Bring a log of an older format to the present one."),
    "export": ("Move", "transfer.export", "Write events to a file, as JSON lines or CloudEvents."),
    "import": ("Move", "transfer.import_", "Record the events of files."),
    "git": ("Move", "transfer.git", "A JSONL log in git: install."),
    "merge-driver": ("Move", "transfer.git", "Merge two states of a day file; called by git."),
    "sync": ("Sync", "sync", "Exchange events with a copy of this log."),
    "peers": ("Sync", "sync", "The nodes that this log syncs with: add, remove, list."),
    "join": ("Sync", "sync", "Make a copy of the log of a peer."),
    "serve": ("Serve", "serve", "Serve the log over HTTP."),
    "mcp": ("Serve", "mcp", "Offer the log to an agent as tools (MCP)."),
    "hooks": ("Serve", "hooks", "Webhooks: add, list, remove, replay, secret, run."),
    "tokens": ("Serve", "tokens", "Who may call the server: new, list, revoke, rotate."),
    "verify": ("Check", "verify", "Verify the log from its bytes."),
    "checkpoint": ("Trust", "trust", "Write a signed checkpoint of the log."),
    "prove": ("Trust", "trust", "Write a proof that an event is in the log."),
    "heads": ("Trust", "trust", "List the end of every origin's chain, signed."),
    "keys": ("Trust", "keys", "Keys of a signed log: new, list, show, rotate, export, import."),
    "doctor": ("Check", "doctor", "Check for problems, and show how to fix them."),
    "index": ("Check", "store_files", "The index of a JSONL log: rebuild."),
    "dump": ("Check", "store_files", "Show the content of segment files, frame by frame."),
    "segments": ("Check", "store_files", "The files of a segments log: archive."),
    "schema": ("Check", "schema", "Event types: list, show, export, check, lock, add."),
    "pipeline": ("Check", "pipeline.group", "The log on Spark: check, run, stream, audit and more."),
    "consumers": ("Check", "consumers", "Groups of consumers: list, lag, dead-letters, retry, skip, reset."),
    "config": ("Other", "config", "Settings: show, get, set, path."),
    "completion": ("Other", "completion", "Print a completion script for a shell."),
    "bench": ("Other", "bench", "Measure everlog against this machine's disk and SQLite."),
}
NONE = "(none)"  # of the user's programs can be used
INTERRUPTED = 130
NOBODY_READS = 141  # the code that a shell gives to a program that SIGPIPE ended


class NobodyReads(Exception):
    """A BrokenPipeError, hidden from click, which would exit with the code of a failure."""


class HelpFormatter(click.HelpFormatter):
    """Pages of help, whose long examples continue on the next line, as a shell takes them."""

    def getvalue(self) -> str:
        return "\n".join(part for line in super().getvalue().split("\n") for part in self._fitted(line))

    def _fitted(self, line: str) -> list[str]:
        example = line.lstrip(" ")
        if len(line) <= self.width or not example.startswith(("everlog ", "echo ")):
            return [line]
        found, now = [], line[: len(line) - len(example)]
        for word in _WORDS.findall(example):
            if now.strip() and len(now) + len(word) + 2 > self.width:
                found.append(now + "\\")
                now = " " * (len(line) - len(example) + 2)
            now += f"{word} "
        return [*found, now.rstrip()]


_WORDS = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
click.Context.formatter_class = HelpFormatter


class Commands(LazyGroup):
    """The commands of everlog, and those of the user's own programs."""

    modules: ClassVar[Mapping[str, str]] = {name: module for name, (_, module, _) in COMMANDS.items()}

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise NobodyReads from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or _own_program(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = args[0] in COMMANDS or args[0].startswith("-") or ctx.resilient_parsing
        if not known and _own_program(ctx, args[0]) is None:
            from everlog.cli.programs.elsewhere import command_elsewhere

            return args[0], command_elsewhere(ctx.find_root().ensure_object(Session), ctx, COMMANDS, args), args[1:]
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        about = {name: text for name, (_, _, text) in COMMANDS.items()}
        groups = _own_groups(ctx.find_root().ensure_object(Session))
        own = [group if group != NONE else f"{group} {why}" for group, why in groups]
        formatter.write("\n".join(first_page(about, own)) + "\n")

    def whole_help(self, ctx: click.Context) -> str:
        """Return what `everlog help --all` prints: every command, with the words that follow it."""
        formatter = ctx.make_formatter()
        super().format_help(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(section for section, _, _ in COMMANDS.values()):
            with formatter.section(section):
                names = [name for name, entry in COMMANDS.items() if entry[0] == section]
                formatter.write_dl([(name, self._about(ctx, name)) for name in names])
        if own := _own_groups(ctx.find_root().ensure_object(Session)):
            with formatter.section("Programs that are on here"):
                formatter.write_dl(
                    [(group, COMMANDS[group][2] if group in COMMANDS else about) for group, about in own]
                )

    def _about(self, ctx: click.Context, name: str) -> str:
        """Return what a command is for; of a group, also all of its commands, which a list of some would hide."""
        about = COMMANDS[name][2]
        command = self.get_command(ctx, name)
        if not isinstance(command, click.Group):
            return about
        return f"{about.partition(':')[0].rstrip('.')}: {', '.join(command.list_commands(ctx))}."


def _own_groups(session: Session) -> list[tuple[str, str]]:
    """Return the words of the programs that are on here. Wrong settings must not end the help."""
    try:
        here = Path.cwd() / session.work_in
    except FileNotFoundError:  # the current directory was removed
        return []
    if not session.url and not any((one / ".everlog").is_dir() for one in (here, *here.parents)):
        return []  # there are no settings to read, and `--help` stays fast
    from everlog.errors import EverlogError
    from everlog.programs import GROUPS
    from everlog.programs.here import groups_on

    try:
        found = groups_on(here, session.url)
    except EverlogError as error:
        found = [(NONE, f"{error.what}: {error.why}")]
    if all(group in GROUPS for group, _ in found):
        return found  # words of everlog: there is nothing to escape, and nothing more to load
    from everlog.cli.output import safe

    return [(safe(group), safe(about)) for group, about in found]


def _own_program(ctx: click.Context, name: str) -> click.Command | None:
    """Return the commands of a program that the setting `programs` names."""
    from everlog.cli.programs.builder import of_settings

    return of_settings(ctx.find_root().ensure_object(Session), name)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="everlog", message="%(prog)s %(version)s")
@common_options
@actor_option
@click.pass_context
def cli(context: click.Context) -> None:
    """An append-only event log that starts as a file.

    In a folder with a log, `everlog` without a command shows its state.
    """
    if context.invoked_subcommand is None:
        _show_status(context)


def _show_status(context: click.Context) -> None:
    """Print the state of the log in this folder, or how to create one."""
    from everlog.cli.output import Answer
    from everlog.errors import NoLogHere

    session = context.ensure_object(Session)
    out = session.out
    try:
        log = session.any_log()
    except NoLogHere:
        if session.url or session.work_in.name or session.json or session.agent or session.quiet:
            raise
        out.line(context.get_help())
        out.hint("\nThere is no log here yet. Create one: everlog init")
        return
    from everlog.cli.events.records import moment

    head = log.head()
    last = next(log.read(limit=1, newest_first=True), None)
    where = session.server or session.url or str(session.folder())
    # How many events were purged is known where the log is.
    purged = sum(purge.count + 1 for purge in session.log().stored.purges()) if not session.server else None
    events = None if purged is None else head - purged
    facts = {
        "log": where,
        "log_id": log.identity.log_id,
        "head": head,
        "events": events,
        "last": moment(last.received_at) if last else None,
    }
    names = {"log": "log", "head": "head", "events": "events", "last": "last event"}
    shown = [(names[key], f"#{value}" if key == "head" else value) for key, value in facts.items() if key in names]
    shown = [(name, value) for name, value in shown if value is not None]
    lines = [f"{name:<11} {value}" for name, value in shown]
    data = {**facts, "last": None if last is None else last.received_at.isoformat()}
    out.answer(Answer.of_one(log.identity.log_id, facts, lines=lines, data=data))
    if last is not None:
        out.hint("next: everlog log -n 5   everlog tail   everlog verify   everlog help")
    else:
        out.hint('next: everlog append note.added -s note/1 text="hello"   everlog schema list   everlog help')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Every error has been printed by then."""
    given, fields = _json_fields(sys.argv[1:] if arguments is None else arguments)
    session = Session(argv=given, fields=fields)
    if "_EVERLOG_COMPLETE" in os.environ:
        from everlog.cli.completing import complete_names

        complete_names()
    try:
        code = cli.main(args=given, prog_name="everlog", standalone_mode=False, obj=session)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (click.Abort, KeyboardInterrupt):
        if session.when_stopped:
            session.out.note(session.when_stopped)
        return INTERRUPTED
    except (BrokenPipeError, NobodyReads):
        return NOBODY_READS
    except Exception as error:
        from everlog.cli.print_error import show_error

        return show_error(error, session)
    finally:
        session.close()


def _json_fields(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the arguments with `--json` for `--json=FIELD,FIELD`, and these fields.

    click would take the next argument for the value of an option whose value may be left out.
    """
    given, fields = list(arguments), ""
    upto = given.index("--") if "--" in given else len(given)
    for place, word in enumerate(given[:upto]):
        if word.startswith("--json="):
            given[place], fields = "--json", word.partition("=")[2]
    return given, tuple(name for name in fields.split(",") if name)


def run() -> NoReturn:
    """Run the installed command, and end the process with its exit code."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        # `everlog log | head` ends like any other program: at once and silently. The log tolerates it. (Commands that
        # use connections undo this: see `survive_closed_connections`.)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _require_streams()
    code = main()
    if code:
        # Everything is printed, and the log is closed. If standard output could not be written, Python would try
        # again at exit, and replace our exit code with another one.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _require_streams() -> None:
    """Have standard streams that can be written, even if the caller closed them, with any text."""
    import io

    # Python leaves None for a stream that was closed before it started.
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BytesIO())
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Text from elsewhere may contain half a character; printing it must not raise an error.
            stream.reconfigure(errors="backslashreplace")
