"""A table that a file defines: `tables/NAME.sql` beside the settings, or one of ours in `own/`.

    -- What was sold on each day.
    -- grain: day                                         no two rows have the same values of these columns
    -- by: day                                            compute and replace only the days that new events touch
    -- check: SELECT * FROM revenue WHERE revenue < 0     must return no rows
    -- chart: bars day, revenue | Revenue                 a plot of the report: `chart.py`
    SELECT to_date(occurred_at) AS day, sum(amount) AS revenue
    FROM silver.shop_order_placed
    GROUP BY to_date(occurred_at)

`{name}` stands for a setting of `[pipeline]`: for its words as texts, `'chat', 'market'`; between backticks for the
name that it is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from everlog.core.text import did_you_mean
from everlog.files import DiskFiles
from everlog.pipeline.lake.lake import ANSWERS
from everlog.pipeline.sql.chart import read_chart
from everlog.pipeline.sql.statement import Statement, read_statement, refused
from everlog.settings import SECTIONS, Settings

FOLDER = "tables"
OWN = Path(__file__).with_name("own")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_HEADER = re.compile(r"\s*--\s*([A-Za-z]+)\s*:\s*(.*?)\s*")
_KEYS = ("grain", "by", "check", "chart")
_SETTING = re.compile(r"(`?)\{([a-z_]+)\}(`?)")
_UNFIT = re.compile(r"['\"`\\\n{}]")
DEFAULTS = Settings()
TAKEN = frozenset({"events", "quarantine", "buckets", "silver", "gold", "letters", "answers", "refusals", "views"})
"""What a table in SQL cannot be called: these are tables of the lake already, or kinds of them."""


class Line(NamedTuple):
    """What a line of the header says."""

    text: str
    line: int


class Definition:
    """A table in SQL: what its header declares, and its SELECT."""

    def __init__(self, name: str, text: str, source: str, *, ours: bool, settings: Mapping[str, str]) -> None:
        self.name = name
        self.source = source
        self.ours = ours
        self.text = text.strip() + "\n"
        self._settings = settings
        header = _header(text, source)
        self.grain = tuple(word for line in header["grain"] for word in _words(line.text))
        self.by = _one(header["by"], "by", source)
        self.says = _about(text)
        self.statement = read_statement(_filled(text, source, settings), source)
        self.charts = [read_chart(text, self.statement.columns, source, line) for text, line in header["chart"]]
        self.checks = [
            read_statement(_filled(line.text, source, settings), source, first_line=line.line)
            for line in header["check"]
        ]
        _require_columns(self)
        if self.by:
            _require_days(self)

    @property
    def table(self) -> str:
        return f"{ANSWERS}/{self.name}"

    @cached_property
    def code(self) -> int:
        """A number that changes with the rows that the file means."""
        return zlib.crc32("\n".join([self.statement.text, self.by]).encode())


def read_definitions(folder: Path | None = None, settings: Settings = DEFAULTS) -> dict[str, Definition]:
    """Return the tables that the package defines and those of a folder, by name. A file of the folder comes first."""
    words = {name: getattr(settings, name) for name in SECTIONS["pipeline"] if name not in ("lake", "lake_file_mb")}
    found: dict[str, Definition] = {}
    disk = DiskFiles()
    for folder_of, ours in ((OWN, True), (folder, False)):
        for path in sorted(folder_of.glob("*.sql")) if folder_of is not None else ():
            source = path.name if ours else f"{FOLDER}/{path.name}"
            _require_name(path.stem, source)
            text = _text(disk.read_all(path), source)
            found[path.stem] = Definition(path.stem, text, source, ours=ours, settings=words)
    return found


def _require_name(name: str, source: str) -> None:
    if not _NAME.fullmatch(name) or name in TAKEN:
        raise refused(
            source,
            f"a table cannot be called {name}",
            why="a table of the lake has this name" if name in TAKEN else "a name is a to z, 0 to 9 and _",
            hint="rename the file",
        )


def _text(content: bytes, source: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise refused(source, "the file is not UTF-8", why=str(error), hint="save it as UTF-8") from error


# ---- the header


def _header(text: str, source: str) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {key: [] for key in _KEYS}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip().startswith("--"):
            if line.strip():
                break
            continue
        declared = _HEADER.fullmatch(line)
        if declared is None:
            continue
        key = declared[1].lower()
        if key in found:
            if not declared[2]:
                raise refused(source, f"{key} names nothing", hint=f"-- {key}: …", line=number)
            found[key].append(Line(declared[2], number))
        elif near := get_close_matches(key, _KEYS, n=1, cutoff=0.7):
            raise refused(source, f"{declared[1]} is not known here", hint=f"did you mean {near[0]}?", line=number)
    return found


def _about(text: str) -> str:
    """Return what the first lines of a file say about its table, before what they declare."""
    found = []
    for line in text.splitlines():
        if not line.startswith("--") or _HEADER.fullmatch(line):
            break
        found.append(line.removeprefix("--").strip())
    return " ".join(found)


def _one(lines: list[Line], key: str, source: str) -> str:
    if not lines:
        return ""
    words = [word for line in lines for word in _words(line.text)]
    if len(words) != 1:
        raise refused(source, f"{key} names {len(words)} columns", hint=f"-- {key}: one column", line=lines[0].line)
    return words[0]


def _words(text: str) -> list[str]:
    return [word.strip(" `") for word in text.split(",") if word.strip(" `")]


# ---- settings in the text


def _filled(text: str, source: str, settings: Mapping[str, str]) -> str:
    def filled(found: re.Match[str]) -> str:
        before, name, after = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        if name not in settings:
            raise refused(source, f"there is no setting {name}", hint=did_you_mean(name, settings), line=line)
        words = _words(settings[name])
        if any(map(_UNFIT.search, words)):
            raise refused(source, f"the setting {name} has a character that is not allowed here", line=line)
        if not before:
            return ", ".join(f"'{word}'" for word in words) or "NULL"
        if len(words) != 1:
            raise refused(
                source, f"the setting {name} must be one name here", why=f"it is {settings[name]!r}", line=line
            )
        return f"{before}{words[0]}{after}"

    return _SETTING.sub(filled, text)


# ---- columns


def _require_columns(made: Definition) -> None:
    columns = made.statement.columns
    if columns is None:
        return
    for number, name in enumerate(columns, 1):
        if not name:
            raise refused(made.source, f"column {number} has no name", hint="add AS and a name")
    lowered = [name.lower() for name in columns]
    if twice := [name for name in columns if lowered.count(name.lower()) > 1]:
        raise refused(made.source, f"two columns are called {twice[0]}", hint="add AS and another name")
    for key, names in (("grain", made.grain), ("by", [made.by] if made.by else [])):
        for name in names:
            if name.lower() not in lowered:
                raise refused(
                    made.source,
                    f"{key} names {name}, which is not a column of the table",
                    why="it has " + ", ".join(columns),
                    hint=did_you_mean(name, columns),
                )


def _require_days(made: Definition) -> None:
    """Refuse `by` where a day's rows may depend on the events of other days."""
    from sqlglot import exp

    tree, why = made.statement.tree, ""
    references = made.statement.references
    parts = ("having", "qualify", "limit", "offset", "distinct", "with_", "joins", "laterals")
    if not isinstance(tree, exp.Select) or any(tree.args.get(part) for part in parts) or tree.find(exp.Subquery):
        why = "a day can be computed alone only from a plain SELECT … FROM … WHERE … GROUP BY …"
    elif len(references) != 1 or not (references[0].name == "events" or references[0].parts[0] == "silver"):
        why = "the days that new events touch are known of one table of events: events, or a silver one"
    elif tree.find(exp.Window):
        why = "OVER (…) looks at the rows of other days"
    elif (tree.args.get("group") or tree.find(exp.AggFunc)) and not _grouped(tree, made.by):
        why = f"{made.by} is not in GROUP BY"
    if why:
        raise refused(made.source, f"by: {made.by} is not possible", why=why, hint="leave out the line")


def _grouped(tree: object, name: str) -> bool:
    from sqlglot import exp

    assert isinstance(tree, exp.Select)
    group = tree.args.get("group")
    if group is None:
        return False
    wanted = next((one for one in tree.selects if one.alias_or_name.lower() == name.lower()), None)
    place = None if wanted is None else tree.selects.index(wanted) + 1
    return bool(group.args.get("all")) or any(
        (isinstance(one, exp.Literal) and one.name == str(place))
        or (isinstance(one, exp.Column) and one.name.lower() == name.lower())
        or (wanted is not None and one == wanted.unalias())
        for one in group.expressions
    )


def statements_of(made: Definition) -> list[Statement]:
    return [made.statement, *made.checks]
