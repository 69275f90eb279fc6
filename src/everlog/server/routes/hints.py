"""Hints of errors as a caller over HTTP can use them: routes and fields in place of commands and options.

Errors are made far below, and their hints name what to type. The server translates a hint in this one place. What
only the operator of the server can do stays a command, and the hint says so.
"""

from __future__ import annotations

import re
from functools import partial

from everlog.programs.command import Question
from everlog.programs.program import known_values

OPERATOR = "on the machine of the server: "
"""What a hint begins with that is for the operator."""

_NAME = r"([^\s;,'\"]+)"
_ROUTES: tuple[tuple[str, str], ...] = (
    (rf"log --stream {_NAME}", r"GET /v1/streams/\1/history"),
    (rf"log --kind {_NAME}", r"GET /v1/events?kind=\1"),
    (rf"log --correlation {_NAME}", r"GET /v1/events?correlation=\1"),
    (r"log --purges", "GET /v1/events?from=1 shows them as holes"),
    (r"log --stream ?$", "GET /v1/events"),
    (r"log(?: -n \d+)?(?: -q| --json)?\b", "GET /v1/events?order=newest"),
    (r"show '?#?(\d+)'?", r"GET /v1/at/\1"),
    (rf"show {_NAME}", r"GET /v1/events/\1"),
    (rf"schema show {_NAME}", r"GET /v1/schema?type=\1"),
    (r"schema list", "GET /v1/schema"),
    (rf"views get {_NAME}", r"GET /v1/views/\1"),
    (r"views list", "GET /v1/views"),
    (rf"views rebuild {_NAME}(?: --engine \w+)?", r"POST /v1/views/\1:rebuild"),
    (rf"views audit {_NAME}", r"POST /v1/views/\1:audit"),
    (r"views audit", "POST /v1/do/view.audit"),
    (r"state lists", "GET /v1/streams/KIND/ID/state lists"),
    (r"state ([^\s;,'\"/]+/[^\s;,'\"]+)", r"GET /v1/streams/\1/state"),
    (rf"state {_NAME} {_NAME}", r"GET /v1/views/\1/\2"),
    (r"snapshot list", "GET /v1/snapshots"),
    (r"snapshot verify", "POST /v1/snapshots:verify"),
    (rf"snapshot create {_NAME}(?: --full)?(?= |$|;|,)", r"POST /v1/snapshots for \1"),
    (r"snapshot create", "POST /v1/snapshots"),
    (r"consumers list", "GET /v1/groups"),
    (rf"consumers dead-letters {_NAME}", r"GET /v1/groups/\1/dead-letters"),
    (r"consumers reset --help shows", "POST /v1/groups/GROUP:reset is"),
    (r"errors(?: --stats)?", "GET /v1/refusals"),
    (r"doctor", "GET /v1/doctor"),
    (r"verify(?! --)", "POST /v1/verify"),
    (rf"append {_NAME} -s {_NAME} --scope {_NAME}", r"POST /v1/events with the type \1, stream \2, scope \3"),
    (rf"append {_NAME} -s {_NAME}", r"POST /v1/events with the type \1, stream \2"),
    (r"help operations --json", "GET /openapi.json"),
)
_PATTERNS = [(re.compile(rf"\beverlog {pattern}"), route) for pattern, route in _ROUTES]
_CONFIRM = re.compile(r"repeat the command with --confirm (['\"])(.*?)\1")
_COMMAND = re.compile(r"\beverlog ([a-z][a-z-]*) ([^;]*?)(?=;|, |: | prints\b| shows\b| and\b|$)")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:[ =]('[^']*'|\"[^\"]*\"|(?!--)[^\s;,]+))?")
_FOR_OPERATOR = re.compile(r"\beverlog\b|\bchmod\b|\bpip install\b|(?<![\w-])--[a-z]")


def hint_for_api(hint: str) -> str:
    """Return a hint with routes and fields in place of commands and options."""
    if not hint or ("everlog" not in hint and "--" not in hint):
        return hint
    hint = _CONFIRM.sub(r'repeat the request with the field confirm: "\2"', hint)
    for pattern, route in _PATTERNS:
        hint = pattern.sub(route, hint)
    hint = _COMMAND.sub(_operation_of, hint)
    if "everlog" not in hint:
        hint = _OPTION.sub(partial(_field_of, name_only=True), hint)
    return OPERATOR + hint if _FOR_OPERATOR.search(hint) else hint


def _operation_of(found: re.Match[str]) -> str:
    """Return the route of a program's command, with what follows it as fields."""
    group, rest = found[1], found[2].strip()
    fits = [
        (len(value.verb), program.name, value)
        for value, program in known_values().items()
        if program.group == group and (rest == value.verb or rest.startswith(f"{value.verb} "))
    ]
    if not fits:
        return found[0]
    _, name, value = max(fits, key=lambda fit: fit[0])
    ask = issubclass(value, Question)
    route = f"{'GET /v1/ask' if ask else 'POST /v1/do'}/{name}.{value.verb.replace(' ', '_')}"
    given = _OPTION.sub(_field_of, rest.removeprefix(value.verb)).split()
    return f"{route} ({' '.join(given)})" if given else route


def _field_of(found: re.Match[str], name_only: bool = False) -> str:
    name = found[1].replace("-", "_")
    if name == "actor":
        return ""  # the token decides who acts
    if name_only:
        return f"{name} {found[2]}" if found[2] else name
    return f"{name}={found[2]}" if found[2] else name
