"""The forms of an answer.

    a terminal     a table or a few lines, in colour
    a pipe         one row per line, fields separated by tabs, no header, no colour
    --json         one envelope {"schema_version":1,"data":…,"next":…,"warnings":[]}; a stream is one object per line;
                   --json=FIELD,FIELD gives these fields only
    --agent        OK key=value …, then ITEM key=value … for each item
    --quiet        ids only

Stdout contains only the answer; warnings and hints go to stderr. Text from elsewhere is never written as it is:
characters that could control a terminal are escaped.
"""

from __future__ import annotations

import json as json_library
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import click

from everlog.programs import COMMANDS

SCHEMA_VERSION = 1

# C0, DEL and C1 control terminals; line separators break rows; bidirectional marks make text look like other text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_NAMES = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_PLAIN = re.compile(r"[^\s\"'=\\]+")


def safe(text: str) -> str:
    """Return the text with every character escaped that controls a terminal or breaks a row."""
    return _UNSAFE.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    character = found.group()
    number = ord(character)
    return _NAMES.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON that is safe to print. Unsafe characters occur only inside strings, where JSON can escape them."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json_library.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    return _UNSAFE.sub(_json_escape, text) if indent is None else json_safe(text)


def json_safe(text: str) -> str:
    """Return JSON text with unsafe characters escaped; its own line breaks stay."""
    return "\n".join(_UNSAFE.sub(_json_escape, line) for line in text.split("\n"))


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a command, for all five forms at once: this is the one renderer of results."""

    data: Any
    ids: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    lines: Sequence[str] | None = None  # for a terminal, in place of the table
    facts: Mapping[str, Any] = field(default_factory=dict)
    next: Any = None

    @classmethod
    def of_one(
        cls, id: str, facts: Mapping[str, Any], *, lines: Sequence[str] | None = None, data: Any = None
    ) -> Self:
        """Return the answer for one thing, one row per fact.

        `data` replaces the facts with --json, `lines` replaces the rows on a terminal.
        """
        if lines is None:
            lines = json_text(facts, indent=2).split("\n")
        return cls(data=facts if data is None else data, ids=[id], rows=list(facts.items()), lines=lines, facts=facts)

    @classmethod
    def of_row(
        cls, id: str, facts: Mapping[str, Any], *, lines: Sequence[str], row: Sequence[Any] = (), data: Any = None
    ) -> Self:
        """Return the answer for one thing that is one row: its facts, or the given cells."""
        return cls(
            data=facts if data is None else data,
            ids=[id],
            rows=[row or tuple(facts.values())],
            lines=lines,
            facts=facts,
        )

    @classmethod
    def of_many(
        cls,
        found: Sequence[Any],
        columns: Sequence[str] = (),
        *,
        cells: Mapping[str, Callable[[Any], Any]] | None = None,
        named: str = "",
        ids: Sequence[str] | None = None,
        lines: Sequence[str] | None = None,
        facts: Mapping[str, Any] | None = None,
        data: Any = None,
        next: Any = None,
    ) -> Self:
        """Return the answer for many things, structs or mappings, one row each, and their count.

        The columns are those of their class, unless others are named; a field that a mapping lacks is empty. `cells`
        computes the cells of columns that are not a field. `named` is the field with the id of a thing, if that is
        not the first column. Other ids, facts, lines and data replace what follows from the things.
        """
        import msgspec

        columns = columns or (found[0].columns if found else ())
        special = cells or {}

        def cell(one: Any, name: str) -> Any:
            if name in special:
                return special[name](one)
            return one.get(name, "") if isinstance(one, Mapping) else getattr(one, name)

        return cls(
            data=msgspec.to_builtins(found) if data is None else data,
            ids=[str(cell(one, named or columns[0])) for one in found] if ids is None else ids,
            columns=columns,
            rows=[[cell(one, name) for name in columns] for one in found],
            lines=lines,
            facts={"count": len(found)} if facts is None else facts,
            next=next,
        )


class Output:
    def __init__(self, *, json: bool, agent: bool, quiet: bool, no_color: bool, program: str) -> None:
        self.json = json
        self.fields: Sequence[str] = ()  # of --json=FIELDS; all, if there are none
        self.agent = agent and not json
        self.quiet = quiet and not json and not agent
        self.silent = quiet  # no hints, no progress, in any form
        self.terminal = sys.stdout.isatty()
        self.human = self.terminal and not (json or agent or quiet)
        self.program = program
        self.warnings: list[str] = []
        self._missed: set[str] = set()
        self._no_color = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"

    # ---- stdout

    def answer(self, answer: Answer) -> None:
        if self.json:
            self.envelope(answer.data, next=answer.next)
        elif self.quiet:
            for name in answer.ids:
                self.line(safe(name))
        elif self.agent:
            self.line(("OK " + pairs(answer.facts)).rstrip())
            if answer.columns:
                for row in answer.rows:
                    self.line("ITEM " + pairs(dict(zip(answer.columns, row, strict=True))))
        elif not self.terminal:
            for row in answer.rows:
                self.line(tsv(row))
        elif answer.lines is not None:
            self.page(answer.lines)
        else:
            self.page(self.table_lines(answer.columns, answer.rows))

    def envelope(self, data: Any, *, next: Any = None) -> None:
        data = self._chosen(data)
        found = {"schema_version": SCHEMA_VERSION, "data": data, "next": next, "warnings": self.warnings}
        self.line(json_text(found, indent=2 if self.terminal else None))

    def json_line(self, found: Any) -> None:
        """Print one object of a stream."""
        self.line(json_text(self._chosen(found)))

    def _chosen(self, data: Any) -> Any:
        """Return the fields that `--json=FIELDS` names. Unknown ones are null; a warning names them."""
        if not self.fields:
            return data
        many = data if isinstance(data, list) else [data]
        found = [one for one in many if isinstance(one, dict)]
        missing = [name for name in self.fields if found and not any(name in one for one in found)]
        for name in (name for name in missing if name not in self._missed):
            self._missed.add(name)
            self.warn(_no_field(name, found))
            self.note("warning: " + safe(self.warnings[-1]))
        chosen = [{name: one.get(name) for name in self.fields} if isinstance(one, dict) else one for one in many]
        return chosen if isinstance(data, list) else chosen[0]

    def line(self, text: str) -> None:
        """Print one line of the answer unchanged."""
        sys.stdout.write(text + "\n")

    def page(self, lines: Sequence[str]) -> None:
        """Print lines for a person: none is wider than the terminal, and more than a screen goes to a pager."""
        if not self.terminal:
            self.line("\n".join(lines))
            return
        from everlog.cli.pager import show

        width = terminal_width()
        show([part for text in lines for line in text.split("\n") for part in wrapped(line, width)])

    def table_lines(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
        """Return aligned columns; the last one is cut at the edge of the terminal, between two words.

        If the other columns leave no room for it, a row takes several lines, and nothing is cut.
        """
        if not rows:
            return []
        texts = [[safe(_FRACTION.sub("Z", _shown(cell))) for cell in row] for row in rows]
        widths = [max(places(row[place]) for row in [columns, *texts]) for place in range(len(columns))]
        word = max((places(word) for row in texts for word in row[-1].split(" ")), default=0)
        groups = _groups(widths, terminal_width(), max(word, _LAST_MIN)) if self.terminal else [slice(None)]
        found: list[str] = []
        for number, row in enumerate([columns, *texts]):
            lines = [self.aligned(row, widths)] if len(groups) == 1 else _on_several_lines(row, widths, groups)
            found += [text if number else self.dim(text) for text in lines]
        return found

    def aligned(self, texts: Sequence[str], widths: Sequence[int], *, last_min: int = 0) -> str:
        """Return one line with its columns at these widths, cut at the edge of the terminal.

        If there is less room than `last_min` for the last column, it is on the next line.
        """
        line = "  ".join(_padded(text, width) for text, width in zip(texts, widths, strict=True)).rstrip()
        if not self.terminal:
            return line
        width = terminal_width()
        before_last = sum(max(places(text), one) + 2 for text, one in zip(texts[:-1], widths, strict=False))
        if places(line) > width and before_last + min(last_min, places(texts[-1])) > width:
            first = "  ".join(_padded(text, one) for text, one in zip(texts[:-1], widths, strict=False)).rstrip()
            return first + "\n" + _cut(_INDENT + texts[-1], width)
        return _cut(line, width)

    # ---- stderr

    def warn(self, text: str) -> None:
        """Print a warning; an empty text is none."""
        if not text:
            return
        text = self.as_typed(text)
        self.warnings.append(text)
        if self.agent:
            self.note("WARN " + pairs({"message": text}))
        elif not self.json:
            self.note(self.paint("warning:", "yellow", sys.stderr.isatty()) + " " + safe(text))

    def hint(self, text: str) -> None:
        """Print what to do next, for people only."""
        if not (self.json or self.agent or self.silent):
            for line in self.as_typed(text).split("\n"):
                self.note(self.dim(safe(line), sys.stderr.isatty()))

    def note(self, text: str) -> None:
        with suppress(OSError):  # standard output may be what failed
            sys.stdout.flush()
        if sys.stderr.isatty() and not (self.json or self.agent):
            text = "\n".join(part for line in text.split("\n") for part in wrapped(line, terminal_width()))
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def as_typed(self, text: str) -> str:
        """Return the text with commands written the way this program was started."""
        return text if self.program == "everlog" else _COMMAND.sub(self.program + " ", text)

    # ---- colour

    def paint(self, text: str, color: str, terminal: bool | None = None) -> str:
        if self._no_color or not (self.terminal if terminal is None else terminal):
            return text
        return click.style(text, fg=color)

    def dim(self, text: str, terminal: bool | None = None) -> str:
        if self._no_color or not (self.terminal if terminal is None else terminal):
            return text
        return click.style(text, dim=True)

    @property
    def progress_wanted(self) -> bool:
        return not (self.json or self.agent or self.silent)


def _no_field(name: str, found: Sequence[Mapping[str, Any]]) -> str:
    from everlog.core.text import did_you_mean

    known = list(dict.fromkeys(field for one in found for field in one))
    return f"the answer has no field {name}; {did_you_mean(name, known)} it has: {', '.join(known)}".replace(
        "  ", " "
    )


_FRACTION = re.compile(r"(?<=T\d\d:\d\d:\d\d)\.\d{6}Z\Z")
"""A table on a terminal shows times without fractions, to save room. Pipes and JSON show them in full."""

_COLORS = re.compile("\x1b\\[[0-9;]*m")
_LABEL = re.compile(r" *(?:(?:why|fix|again|next|last):|-) +")
"""The further lines of a wrapped line begin below the text after its label, or are indented."""
_WORDS = re.compile(r"( *)([^ ]+)")
_LAST_MIN = 16
_INDENT = "    "

_COMMAND = re.compile(
    r"(?<![\w./])everlog (?=(?:-C \S+ |--log \S+ )*"
    rf"(?:{'|'.join(COMMANDS)})\b|--help\b)"
)


def tsv(row: Iterable[Any]) -> str:
    return "\t".join(safe(_text(cell)) for cell in row)


def _text(cell: Any) -> str:
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case dict() | list():
            return json_text(cell)
        case _:
            return str(cell)


def _shown(cell: Any) -> str:
    """Return a cell for people: JSON with blanks between its words, where a line may end."""
    if not isinstance(cell, dict | list):
        return _text(cell)
    return _UNSAFE.sub(_json_escape, json_library.dumps(cell, ensure_ascii=False))


def pairs(facts: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in facts.items() if value is not None)


def _value(value: Any) -> str:
    text = _text(value)
    return safe(text) if _PLAIN.fullmatch(text) else json_text(text)


def terminal_width() -> int:
    """Return the number of characters in a line of the terminal."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):  # not a terminal after all
        return 80


def places(text: str) -> int:
    """Return how wide a text is on a terminal: combining marks take no room, wide characters two columns."""
    text = _COLORS.sub("", text)
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def _padded(text: str, width: int) -> str:
    return text + " " * (width - places(text))


def _groups(widths: Sequence[int], room: int, last_min: int) -> list[slice]:
    """Return which columns go on which line: all on one, if the last of them has enough room there."""
    before_last = sum(widths[:-1]) + 2 * (len(widths) - 1)
    if before_last + min(widths[-1], last_min) <= room:
        return [slice(0, len(widths))]
    groups, start, used = [], 0, 0
    for place, width in enumerate(widths):
        if place > start and used + 2 + width > room:
            groups.append(slice(start, place))
            start, used = place, len(_INDENT) - 2
        used += width + (2 if place > start or groups else 0)
    return [*groups, slice(start, len(widths))]


def _on_several_lines(row: Sequence[str], widths: Sequence[int], groups: Sequence[slice]) -> list[str]:
    lines: list[str] = []
    for group in groups:
        cells = [_padded(text, width) for text, width in zip(row[group], widths[group], strict=True)]
        line = (_INDENT if lines else "") + "  ".join(cells).rstrip()
        lines.append(_cut(line, terminal_width()))
    return [lines[0], *(line for line in lines[1:] if line.strip())]


def wrapped(line: str, width: int) -> list[str]:
    """Return a line as lines of at most this width. Only blanks end a line: a longer word stays whole."""
    if places(line) <= width:
        return [line]
    label = _LABEL.match(line)
    indent = label.end() if label else len(line) - len(line.lstrip(" ")) + len(_INDENT)
    margin = " " * min(indent, width // 2)
    found, now = [], ""
    for blanks, word in _WORDS.findall(line):
        if now.strip() and places(now) + len(blanks) + places(word) > width:
            found.append(now.rstrip())
            now = margin + word
        else:
            now += blanks + word
    return [*found, now.rstrip()]


def fitted(text: str, width: int) -> str:
    """Return the text at exactly this width, padded with blanks or cut."""
    return _padded(_cut(text, width), width)


def _cut(text: str, width: int) -> str:
    """Return the text with at most this width, cut after a word. A word that fills half of it is cut itself."""
    if places(text) <= width:
        return text
    kept = _first(text, width - 2)
    whole = (kept if text[len(kept)] == " " else kept.rpartition(" ")[0]).rstrip()
    return f"{whole} …" if places(whole) * 2 > width else _first(text, width - 1) + "…"


def _first(text: str, width: int) -> str:
    kept = text[:width]
    while places(kept) > width:
        kept = kept[:-1]
    return kept
