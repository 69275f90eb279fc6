"""More lines than a screen has go to a pager, as git does it: only on a terminal, and only if there is one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

OPTIONS = "FRX"
"""Of less, unless LESS states others: end if it fits, show colours, leave the text on the screen."""


def show(lines: Sequence[str]) -> None:
    """Print lines on the terminal, through the pager if they are more than the screen has."""
    text = "".join(line + "\n" for line in lines)
    command = _command() if len(lines) >= _rows() else ""
    if not (command and _paged(command, text)):
        sys.stdout.write(text)


def _command() -> str:
    """Return what the user pages with. `cat` and an empty text mean: nothing."""
    named = os.environ.get("PAGER", "less")
    usable = named.strip() not in ("", "cat") and os.environ.get("TERM") != "dumb" and sys.stdin.isatty()
    return named if usable else ""


def _rows() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or sys.maxsize
    except (OSError, ValueError):  # not a terminal after all
        return sys.maxsize


def _paged(command: str, text: str) -> bool:
    """Return whether the pager showed it: the shell says with 126 and 127 that it could not run."""
    import subprocess

    environ = {"LESS": OPTIONS, **os.environ}
    sys.stdout.flush()
    shown = subprocess.run(command, shell=True, input=text, text=True, errors="backslashreplace", env=environ)
    return shown.returncode not in (126, 127)
