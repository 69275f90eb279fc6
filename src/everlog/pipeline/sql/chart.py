"""What a `chart` line of a table says: `KIND COLUMN, COLUMN… [by COLUMN] [| Title]`.

    bars x, y…          bars over x, one colour for each y; with `by`, stacked by the values of that column
    lines x, y…         lines over x
    rows label, y…      the 15 rows with the most, as horizontal bars
    heat x, label, y    one field for each x and label, darker for more
    table column…       no plot: the first rows

A moment counts as its day; `count` as y is the number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from everlog.core.text import did_you_mean
from everlog.errors import SqlRefused
from everlog.pipeline.sql.statement import refused

COUNT = "count"
_LEAST = {"bars": 2, "lines": 2, "rows": 2, "heat": 3, "table": 1}
_CHART = re.compile(r"(\w+)\s+(.+?)(?:\s+by\s+(\w+))?\s*(?:\|\s*(.+))?")


class Chart(NamedTuple):
    """A plot, or a table, of the report."""

    kind: str
    columns: tuple[str, ...]
    by: str = ""
    title: str = ""


def read_chart(text: str, columns: Sequence[str] | None, source: str, line: int) -> Chart:
    """Return what a line says. `columns` are those of the table, if they are known."""

    def wrong(what: str, hint: str) -> SqlRefused:
        return refused(source, f"chart: {what}", hint=hint, line=line)

    found = _CHART.fullmatch(text)
    kind = text.split(maxsplit=1)[0]
    if kind not in _LEAST:
        raise wrong(f"there is no chart {kind}", did_you_mean(kind, _LEAST) or "there are " + ", ".join(_LEAST))
    named = tuple(name.strip() for name in found[2].split(",")) if found else ()
    if found is None or len(named) < _LEAST[kind] or not all(named):
        raise wrong(f"{kind} needs {_LEAST[kind]} columns", f"write it like: {kind} day, events | Title")
    by = found[3] or ""
    if by and (kind != "bars" or len(named) != 2):
        raise wrong("by is for bars with one number", f"chart: bars {named[0]}, {named[1]} by {by}")
    for name in (*named, *([by] if by else [])):
        if columns is not None and name not in columns and name != COUNT:
            raise wrong(
                f"there is no column {name}", did_you_mean(name, columns) or "there are " + ", ".join(columns)
            )
    return Chart(kind, named, by, found[4] or "")
