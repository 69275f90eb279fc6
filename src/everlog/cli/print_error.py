"""Print errors for people and programs: what happened, why, and what to do. There is never a bare traceback.

What nobody foresaw is written to a file under the state directory, whose path is printed.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from everlog.cli.output import SCHEMA_VERSION, json_text, pairs, safe
from everlog.core.text import counted
from everlog.errors import Damaged, EverlogError, NotFound

if TYPE_CHECKING:
    from everlog.cli.session import Session

INTERNAL = 1
_NEAR_MIN = 0.6  # as difflib itself has it
_LABELS = ("  why: ", *["       "] * 99)


class Usage(EverlogError):
    """The command line is not valid."""

    code = "usage"
    exit_code = 2


class Internal(EverlogError):
    """A defect in everlog."""

    code = "internal"
    exit_code = INTERNAL


def show_error(error: Exception, session: Session) -> int:
    """Print an error in the form of this run and return its exit code."""
    if isinstance(error, NotFound) and session.missing_ok:
        return 0
    if os.environ.get("EVERLOG_DEBUG") and not isinstance(error, click.UsageError):
        traceback.print_exception(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not (session.json or session.agent):
        session.out.note(error.ctx.get_help())
        return Usage.exit_code
    if isinstance(error, EverlogError):
        known = error
    elif isinstance(error, click.ClickException):
        known = _usage(error)
    else:
        known = _of_the_machine(error) or _internal(error)
    _print(known, session)
    return known.exit_code


def _print(error: EverlogError, session: Session) -> None:
    out = session.out
    hint, whole_why = out.as_typed(_hint(error, session)), out.as_typed(error.why)
    if session.json:
        found = {
            "code": error.code,
            "message": error.what,
            "why": whole_why,
            "hint": hint,
            "details": _plain(error.details),
            "retryable": error.retryable,
            "request_id": session.request_id or None,
        }
        out.note(json_text({"schema_version": SCHEMA_VERSION, "error": found}))
    elif session.agent:
        facts = {"code": error.code, "message": error.what, "why": whole_why or None, "hint": hint or None}
        if isinstance(error, Damaged):
            facts |= {name: error.details.get(name) for name in ("position", "after", "file")}
        out.note("ERR " + pairs({**facts, "exit": error.exit_code, "retryable": error.retryable}))
    else:
        out.note(out.paint("error:", "red", sys.stderr.isatty()) + " " + safe(error.what))
        for label, why in zip(_LABELS, _reasons(error), strict=False):
            out.note(label + safe(out.as_typed(why)))
        if "refused_before" in error.details:
            out.note("again: " + safe(out.as_typed(_again(error))))
        if hint:
            out.note("  fix: " + safe(hint))


def _hint(error: EverlogError, session: Session) -> str:
    """Return the hint of an error. If the log is damaged, it also names the option that skips the damage."""
    after = error.details.get("after") if isinstance(error, Damaged) else None
    if after is None or not session.offers_past_damage or "--past-damage" in error.hint:
        return error.hint
    return f"{error.hint or 'everlog verify'}; --past-damage continues after #{after} and reports what it leaves out"


def _reasons(error: EverlogError) -> list[str]:
    """Return one line per reason, such as one per defect of a payload."""
    match error.details:
        case {"defects": [_, _, *_] as defects}:
            return [f"{defect['path']}: {defect['reason']}" for defect in defects]
        case {"breaches": [_, _, *_] as breaches}:
            return [_breach(breach) for breach in breaches]
        case {"problems": [_, _, *_] as problems}:
            return [str(problem) for problem in problems]
    return [error.why] if error.why else []


def _again(error: EverlogError) -> str:
    """Return a line about a mistake that is repeated, so that the reader looks at the fix."""
    count = error.details["refused_before"]
    often = "once" if count == 1 else f"{counted(count, 'time')}"
    return f"the same rule refused you {often} before, last at {error.details['refused_last']}; see everlog errors"


def _breach(found: dict[str, object]) -> str:
    field = f", field {found['field']}" if found["field"] else ""
    return f"{found['type']} version {found['version']}{field}: {found['text']}"


def _plain(details: object) -> object:
    import msgspec

    return msgspec.to_builtins(details, enc_hook=repr)


def _usage(error: click.ClickException) -> EverlogError:
    context = getattr(error, "ctx", None)
    command = context.command_path if isinstance(context, click.Context) else "everlog"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        group = error.ctx.command
        names = group.list_commands(error.ctx) if isinstance(group, click.Group) else []
        return Usage(
            f"{command} needs a command", why=f"its commands are {', '.join(names)}", hint=f"see {command} --help"
        )
    if isinstance(error, click.NoSuchOption | click.exceptions.NoSuchCommand):
        typed = error.option_name if isinstance(error, click.NoSuchOption) else error.command_name
        near = [name for name in error.possibilities or () if _is_near(typed, name)]
        meant = f"did you mean {' or '.join(near[:3])}? " if near else ""
        return Usage(error.message.rstrip("."), hint=f"{meant}see {command} --help")
    return Usage(" ".join(error.format_message().split()).rstrip("."), hint=f"see {command} --help")


def _is_near(typed: str, name: str) -> bool:
    """Compare without the dashes, which would make any two short options similar."""
    import difflib

    return difflib.SequenceMatcher(None, typed.lstrip("-"), name.lstrip("-")).ratio() >= _NEAR_MIN


def _of_the_machine(error: Exception) -> EverlogError | None:
    from everlog.application.checks.defect_report import explain_os_error

    return explain_os_error(error) if isinstance(error, OSError) else None


def _internal(error: Exception) -> EverlogError:
    from everlog.application.checks.defect_report import write_report

    why = f"{type(error).__name__}: {error}"
    try:
        kept = write_report(error)
    except (OSError, EverlogError) as also:
        return Internal(
            "everlog failed because of a defect",
            why=f"{why}; the report could not be written ({also})",
            hint="run it again with EVERLOG_DEBUG=1 to see where",
        )
    return Internal(
        "everlog failed because of a defect",
        why=why,
        hint=f"everlog doctor; the details are in {kept}; please attach that file when you report this",
        report=str(kept),
    )
