"""The `everlog` command: its table of commands, its exit codes, and the one place where errors become text.

A command's module is imported when that command runs, so that `everlog --help` loads click and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from everlog._version import __version__
from everlog.cli.session import Session, actor_option, common_options

# name -> (section, module, what it does)
COMMANDS = {
    "init": ("Start", "init", "Make a log in this folder."),
    "demo": ("Start", "demo", "Write a sample log and show what a log can do."),
    "help": ("Start", "help", "Explain a command or a topic."),
    "append": ("Write", "append", "Record an event, or a batch of them."),
    "purge": ("Write", "purge", "Remove a stream's events for good."),
    "agent": ("Programs", "agent", "Commands of agents: propose, approve, list, trace and more."),
    "community": ("Programs", "community", "A community: members, market, chats, files and more."),
    "issue": ("Programs", "issue", "Issues: create, comment, link, close, list, search and more."),
    "control": ("Programs", "control", "A control plane: deploy, desired, audit, follow and more."),
    "wp": ("Programs", "wp", "Work packages: create, move, gate, status, board and more."),
    "log": ("Read", "log", "Show events."),
    "tail": ("Read", "log", "Show the newest events and wait for more."),
    "show": ("Read", "show", "Show one event in full."),
    "state": ("Read", "state", "Show the state of a stream or a view, now or as it was."),
    "diff": ("Read", "state", "Show what changed in a stream between two moments."),
    "why": ("Read", "state", "Show which events made a value what it is."),
    "errors": ("Read", "refusals", "Show what was refused, and why."),
    "views": ("Read", "views", "Derived state: list, get, run, rebuild, audit and more."),
    "snapshot": ("Read", "snapshot", "Snapshots of views: create, list, verify, prune, protect, restore."),
    "copy": ("Move", "copy", "Copy a whole log into another store."),
    "export": ("Move", "export", "Write events to a file, as JSON lines or CloudEvents."),
    "import": ("Move", "import_", "Record the events of files."),
    "git": ("Move", "git", "A JSONL log in git: install."),
    "merge-driver": ("Move", "git", "Unite two states of a day file; git calls it."),
    "verify": ("Check", "verify", "Prove the log from its bytes."),
    "doctor": ("Check", "doctor", "Look for problems, and say how to fix them."),
    "index": ("Check", "index", "The index of a JSONL log: rebuild."),
    "dump": ("Check", "segments", "Show what segment files hold, frame by frame."),
    "segments": ("Check", "segments", "The files of a segments log: archive."),
    "schema": ("Check", "schema", "Event types: list, show, export, check, lock, add."),
    "pipeline": ("Check", "pipeline", "The log on Spark: check, run, stream, audit and more."),
    "consumers": ("Check", "consumers", "Groups of consumers: list, lag, dead-letters, retry, skip, reset."),
    "config": ("Other", "config", "Settings: show, get, set, path."),
    "completion": ("Other", "completion", "Print a completion script for a shell."),
    "bench": ("Other", "bench", "Measure this log against its own disk."),
}
INTERRUPTED = 130
NOBODY_READS = 141  # as a shell has it for a program that SIGPIPE ends


class NobodyReads(Exception):
    """A BrokenPipeError that click must not see: it would end the program, with the code of a failure."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads each one when it is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise NobodyReads from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        found: click.Command = getattr(import_module(f"everlog.cli.{COMMANDS[cmd_name][1]}"), f"{name}_command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(section for section, _, _ in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl([(name, entry[2]) for name, entry in COMMANDS.items() if entry[0] == section])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example"):
            formatter.write('  everlog append note.added -s note/1 text="hello" && everlog log\n')
        formatter.write("\neverlog COMMAND --help has more examples; everlog help lists the topics.\n")


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="everlog", message="%(prog)s %(version)s")
@common_options
@actor_option
@click.pass_context
def cli(context: click.Context) -> None:
    """An append-only event log that starts as a file.

    In a folder with a log, `everlog` alone shows its state.
    """
    if context.invoked_subcommand is None:
        from everlog.cli.status import show_status

        show_status(context)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; every error has been told by then."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    session = Session(argv=given)
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
        from everlog.cli.failures import tell

        return tell(error, session)
    finally:
        session.close()


def run() -> NoReturn:
    """The entry point of the installed command."""
    import signal

    if hasattr(signal, "SIGPIPE"):
        # `everlog log | head` ends as every other program does: at once and without a word. The log bears it.
        # (Who starts Spark takes it back: a Java that ended would end this program too.)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _require_streams()
    code = main()
    if code:
        # Everything was told, and the log is closed. If standard output could not be written, Python would try once
        # more while it ends, and put an exit code of its own in the place of ours.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _require_streams() -> None:
    """Streams that can be written to, whatever the caller closed and whatever text comes along."""
    import io

    # Python leaves None for a stream that was closed before it started.
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BytesIO())
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Text from outside may hold half a character; printing it must not end in a traceback.
            stream.reconfigure(errors="backslashreplace")
