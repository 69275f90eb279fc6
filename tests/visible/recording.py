"""What is compared: calls and their answers, options, errors; as text that a person can read and git can compare.

`python -m tests.visible.recording` writes all of it again. Do that on purpose only: see README.md.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from tests.visible import stories, world
from tests.visible.world import Answer, World

TEXT = "<text>"
WORDING = False
"""True: messages, hints and descriptions in answers are compared too. The pages of --help are always compared."""

PROSE = {"message", "hint", "fix", "detail", "doc", "description", "rule", "tried", "problems", "trace"}
PROSE_OF = {  # fields that hold what people typed in the answers of other commands
    "consumers dead-letters": {"reason"},
    "community ignored": {"why"},
    "community chats": {"why"},
    "dump": {"text"},
}
UNSTABLE = {"took_s": "<seconds>", "epoch": "<epoch>"}
UNSTABLE_OF = {
    "views rebuild": {"seconds": "<seconds>"},
    "snapshot": {"bytes": "<bytes>"},  # it depends on the version of a library that packs
    "pipeline report": {"bytes": "<bytes>"},
}
HELP_WIDTH = 100
ERROR = ["code", "message", "why", "hint", "details", "retryable", "request_id"]

_ULID = r"[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-7][0-9a-hjkmnp-tv-z]{25}"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_HASH = r"[0-9a-f]{64}|[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{22}=="
_EPOCH = r"(?<=\d@)[0-9a-z]{8}(?:\.[0-9a-f]{12})?\b"
_NOW = r"20(?:2[6-9]|[3-9]\d)-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?"
_MACHINE = r"(?:Python|SQLite) \d[\d.]*|[\d.]+ [MGT]B free"
_STABLE = re.compile(
    rf"(?P<id>\b(?:{_ULID})\b)|(?P<uuid>\b(?:{_UUID})\b)|(?P<hash>(?<![A-Za-z0-9+/])(?:{_HASH})(?![A-Za-z0-9+/=]))"
    rf"|(?P<epoch>{_EPOCH})|(?P<now>{_NOW})|(?P<machine>{_MACHINE})"
)


class Names:
    """Stable names for what is random: `<door>` for what the story calls so, and `<id 1>` in the order of appearance.

    The numbers begin again at every call, so that a difference in one call makes none in the calls after it.
    """

    def __init__(self, known: dict[str, str], places: dict[str, str], *, literal: bool = False) -> None:
        self._known = {value: f"<{name}>" for name, value in known.items()}
        self._places = places
        self._literal = literal  # ids and hashes stay as they are, and must be the same at every run
        self._seen: dict[str, dict[str, int]] = {}

    def __call__(self, text: str) -> str:
        for path, name in self._places.items():
            text = text.replace(path, name)
        if self._literal:
            return text
        for value, name in self._known.items():
            text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", name, text)
        return _STABLE.sub(self._number, text)

    def _number(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        if kind in ("epoch", "now", "machine"):
            return f"<{kind}>"
        seen = self._seen.setdefault(kind, {})
        return f"<{kind} {seen.setdefault(found.group(), len(seen) + 1)}>"


class Stable:
    """Makes an answer of a command the same at every run."""

    def __init__(self, command: str, names: Names) -> None:
        self._names = names
        self._prose = PROSE | PROSE_OF.get(command, set())
        group = command.partition(" ")[0]
        self._unstable = UNSTABLE | UNSTABLE_OF.get(group, {}) | UNSTABLE_OF.get(command, {})

    def __call__(self, value: Any, field: str = "") -> Any:
        if field in self._unstable and value is not None:
            return self._unstable[field]
        match value:
            case {"reason": str(), "hint": str(), **_others} if not WORDING:  # a refusal
                return self._fields(value | {"reason": TEXT})
            case {"path": str(), "reason": str()} if not WORDING:  # a defect
                return self._fields(value | {"reason": TEXT})
            case dict():
                return self._fields(value)
            case list():
                return [self(below, field) for below in value]
            case str() if field in self._prose and value and not WORDING:
                return TEXT
            case str():
                return self._names(value)
        return value

    def _fields(self, value: dict[str, Any]) -> dict[str, Any]:
        return {self._names(name): self(below, name) for name, below in value.items()}

    def error(self, found: dict[str, Any]) -> dict[str, Any]:
        """The same for an error: without what it says to people, and as many fields as it has."""
        if not WORDING and list(found) == ERROR:
            found = {name: below for name, below in found.items() if name not in ("message", "why", "hint")}
        return self._fields(found)

    def text(self, line: str) -> str:
        return self._names(line)


def shape(value: Any) -> Any:
    """The fields of a value and the kinds of what they hold; of a list, what any of its items has."""
    match value:
        case dict():
            return {name: shape(below) for name, below in value.items()}
        case list():
            united: Any = None
            for below in value:
                united = shape(below) if united is None else _united(united, shape(below))
            return [] if united is None else [united]
    return type(value).__name__


def _united(one: Any, other: Any) -> Any:
    match one, other:
        case dict(), dict():
            return {
                name: _united(one.get(name, "absent"), other.get(name, "absent"))
                for name in dict.fromkeys([*one, *other])
            }
        case list(), list():
            return [_united(*one, *other)] if one and other else one or other
        case str(), str():
            return " | ".join(sorted({*one.split(" | "), *other.split(" | ")}))
    return one if other == "NoneType" else other if one == "NoneType" else one if other == "absent" else other


# ---- calls


class Line(NamedTuple):
    """One line of a story."""

    text: str
    words: list[str]
    stdin: str
    called: str  # what its answer is called
    mark: str

    @property
    def refused(self) -> bool:
        return self.mark == "?"

    def said(self, known: dict[str, str]) -> list[str]:
        """The words to type, with what earlier lines called so in place of its $name."""
        return [re.sub(r"\$(\w+)", lambda found: known[found[1]], word) for word in self.words]

    def keep(self, answer: Answer, known: dict[str, str]) -> None:
        if self.called:
            found = answer.data
            known[self.called] = str(next(iter((found[0] if isinstance(found, list) else found).values())))


def lines(chapter: stories.Chapter) -> Iterator[Line]:
    for text in chapter.text.splitlines():
        if not text or text.startswith("#"):
            continue
        mark, command = (text[0], text[2:]) if text[:2] in ("? ", "~ ", "! ", "- ") else ("", text)
        named = re.match(r"(\w+) = (.*)", command)
        words = shlex.split(named[2] if named else command)
        stdin = ""
        if "<<<" in words:
            at = words.index("<<<")
            stdin = words[at + 1]
            del words[at : at + 2]
        yield Line(text, words, stdin, named[1] if named else "", mark)


class Call(NamedTuple):
    command: str
    text: str
    code: int
    refused: bool
    answered: str


def tell(chapter: stories.Chapter, place: Path) -> Iterator[Call]:
    """Run the lines of a chapter and give what each answered, as it is compared."""
    here = World(place / "work", random="counted")
    chapter.prepare(here.place)
    known: dict[str, str] = {}
    for line in lines(chapter):
        if line.text == "! group":
            world.make_failing_group(here)
            continue
        answer = here.run(*line.said(known), "--json", stdin=line.stdin)
        line.keep(answer, known)
        command = world.command_of(line.words)
        places = {f"{here.place}.home": "<home>", str(here.place): "<place>", str(world.ROOT): "<checkout>"}
        answered = as_text(answer, Stable(command, Names(known, places)), line.mark == "~")
        yield Call(command, line.text, answer.code, line.refused, answered)


def as_text(answer: Answer, stable: Stable, shape_only: bool = False) -> str:
    """An answer as it is recorded: the exit code, then what stood on standard output, then the error."""
    found = [f"exit {answer.code}"]
    for line in answer.out.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            found.append(f"text {stable.text(line)}" if WORDING else "text")
            continue
        if isinstance(said, dict) and list(said) == ["schema_version", "data", "next", "warnings"]:
            found += parts("data", shape(said["data"]) if shape_only else stable(said["data"]))
            if said["schema_version"] != 1:
                found.append(f"schema_version {said['schema_version']}")
            if said["next"] is not None:
                found.append("next " + compact(stable(said["next"])))
            found += [f"warning {stable.text(one)}" if WORDING else "warning" for one in said["warnings"]]
        else:
            found.append("line " + compact(stable(said)))
    for line in answer.err.splitlines():
        if not line.startswith('{"schema_version"'):
            continue  # notes and hints are for people
        said = json.loads(line)
        found.append("error " + compact(stable.error(said["error"])))
        if list(said) != ["schema_version", "error"] or said["schema_version"] != 1:
            found.append("envelope " + compact(said))
    return "\n".join(
        line for line, before in zip(found, ["", *found], strict=False) if line != before or line != "text"
    )


def parts(name: str, value: Any) -> list[str]:
    """A value in lines: one per item of a list, one per field of an object."""
    match value:
        case [_, *_]:
            return [f"{name}[] {compact(one)}" for one in value]
        case dict() if value and len(compact(value)) > 150:
            return [f"{name}.{field} {compact(below)}" for field, below in value.items()]
    return [f"{name} {compact(value)}"]


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def calls_text(calls: list[Call]) -> str:
    return "".join(f"$ {call.text}\n{call.answered}\n\n" for call in calls)


# ---- options


BLOCKS = {  # options that many commands have, by a command that has them: written once
    "as every command": ("verify", ("-C", "--log", "--url", "--json", "--agent", "-q", "--no-color")),
    "as every command that records": (
        "agent approve",
        ("--key", "--scope", "--causation", "--correlation", "--request-id", "--at", "--dry-run", "--actor"),
    ),
}


def options_text(command: click.Command) -> str:
    """The arguments of a command in order, and its options by name."""
    context = click.Context(command)
    found = [parameter_text(one, context) for one in command.params if isinstance(one, click.Argument)]
    options = {one.opts[0]: parameter_text(one, context) for one in command.params if isinstance(one, click.Option)}
    for title, (like, names) in BLOCKS.items():
        model = world.commands()[like]
        block = {one.opts[0]: parameter_text(one, context) for one in model.params if one.opts[0] in names}
        if command is not model and block.items() <= options.items():
            options = {name: text for name, text in options.items() if name not in block} | {
                f"zz{title}": f"({title})"
            }
    return "\n".join([*found, *(text for _, text in sorted(options.items()))])


def parameter_text(parameter: click.Parameter, context: click.Context) -> str:
    said = parameter.to_info_dict()
    kind = dict(said["type"])
    kind.pop("param_type", None)
    told = [kind.pop("name")]
    if "choices" in kind:
        told.append("|".join(map(str, kind.pop("choices"))))
    told += [f"{name}={value}" for name, value in kind.items() if value not in (None, False, True, "", "r")]
    if isinstance(parameter, click.Option):
        name = ", ".join([*parameter.opts, *(f"no: {one}" for one in parameter.secondary_opts)])
        if parameter.is_flag:
            told = ["flag"]
        else:
            told.append(parameter.make_metavar(context))
        told += [word for word in ("hidden", "count", "prompt") if said.get(word)]
    else:
        name = f"argument {parameter.make_metavar(context)}"
    default = said.get("default")
    if default not in (None, "", (), [], False) and "Sentinel" not in repr(default):
        told.append(f"default={default!r}")
    told += [word for word in ("required", "multiple") if said.get(word)]
    if said["nargs"] != 1:
        told.append(f"nargs={said['nargs']}")
    return f"{name}: {' '.join(told)}"


def errors_text() -> str:
    return "".join(
        f"{name} {code} exit={exit_code} retryable={str(retryable).lower()}\n"
        for name, code, exit_code, retryable in sorted(world.error_classes())
    )


# ---- everything, as files


def recordings(place: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of every file in recorded/ that can be made here."""
    yield "errors.txt", errors_text()
    yield "options.txt", all_options_text()
    yield "help.txt", all_help_text()
    for chapter in stories.CHAPTERS:
        yield f"{chapter.name}.txt", calls_text(list(tell(chapter, place / chapter.name)))


def all_options_text() -> str:
    return "".join(f"# {name or 'everlog'}\n{options_text(found)}\n\n" for name, found in world.commands().items())


def all_help_text() -> str:
    """Every page of --help, at a fixed width. Options that many commands have are written out once, at the end."""
    found = [f"# {name or 'everlog'}\n{help_text(name, one)}" for name, one in world.commands_and_groups().items()]
    found += [
        "\n".join([f"# ({title})", *(f"{names}: {text}" for names, text in _help_of_block(title))])
        for title in BLOCKS
    ]
    return "\n\n".join(found) + "\n"


def help_text(name: str, command: click.Command) -> str:
    vars(command)["_help_option"] = None  # click keeps the one that another test may have asked for
    with click.Context(
        command,
        info_name=f"everlog {name}".strip(),
        terminal_width=HELP_WIDTH,
        help_option_names=["-h", "--help"],
    ) as context:
        lines = {one.name: one.get_help_record(context) for one in command.params}
        blocks = {title: _help_of_block(title) for title in BLOCKS if name}
        shared = [title for title, block in blocks.items() if all(line in lines.values() for line in block)]
        once = [line for title in shared for line in blocks[title]]
        every = command.params
        command.params = [one for one in every if lines[one.name] not in once]
        try:
            page = command.get_help(context)
        finally:
            command.params = every
    return "\n".join([page, *(f"  ({title})" for title in shared)])


def _help_of_block(title: str) -> list[tuple[str, str]]:
    like, names = BLOCKS[title]
    command = world.commands()[like]
    context = click.Context(command)
    found = [
        one.get_help_record(context)
        for one in command.params
        if one.opts[0] in names and one.opts[0] != "--scope"  # each program describes its own
    ]
    return [line for line in found if line is not None]


def sections(text: str, mark: str) -> dict[str, list[str]]:
    """The parts of a recorded text by their first line, which begins with the mark. A call may occur twice."""
    found: dict[str, list[str]] = {}
    for part in text.split(f"{mark} ")[1:] if text.startswith(f"{mark} ") else []:
        head, _, below = part.partition("\n")
        found.setdefault(head, []).append(below.rstrip("\n"))
    return found


def record() -> None:
    """Write every recording again."""
    import tempfile

    world.RECORDED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for name, text in recordings(Path(place)):
            (world.RECORDED / name).write_text(text, encoding="utf-8")
            print(f"wrote {name}: {text.count(chr(10))} lines")


if __name__ == "__main__":
    record()
