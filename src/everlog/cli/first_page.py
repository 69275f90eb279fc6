"""What `everlog --help` prints: the commands that a user meets first, on one screen of 40 lines of 80 columns.

All other commands keep their names; `everlog help --all` lists them. Nothing is imported for this page.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

WIDTH = 80

# section -> what is typed: a command, and the words that follow it
FIRST = {
    "Record and read": ("init", "append", "log", "tail", "show", "state", "diff", "why", "errors", "purge"),
    "Move": ("export", "import", "copy", "upgrade"),
    "Check": ("verify", "doctor"),
    "Set up": ("schema add|list|check", "views list|get|rebuild|audit", "config show|set", "serve", "help"),
}


def first_page(about: Mapping[str, str], programs: Sequence[str]) -> list[str]:
    """Return the lines of the page, from what each command is for, and the words of the programs that are on here."""
    lines = ["Usage: everlog [OPTIONS] [COMMAND] [ARGS]...", "", "An append-only event log that starts as a file."]
    for section, typed in FIRST.items():
        room = max(map(len, typed))
        lines += ["", f"{section}:"]
        for one in typed:
            command, _, words = one.partition(" ")
            text = about[command]
            lines.append(f"  {one:<{room}}  {text.partition(':')[0] + '.' if words else text}")
    here = ", ".join(programs)
    more = textwrap.wrap(f"Programs: {here}", WIDTH, max_lines=2, placeholder=" …") if here else []
    return [
        *lines,
        "",
        *more,
        "Options: -C DIR, --log URL, --url URL, --actor ACTOR, --json, --agent, -q,",
        "  --no-color, -V, -h. Without a command, everlog shows the state of the log.",
        "More: everlog COMMAND --help; everlog help TOPIC; everlog help --all",
    ]
