"""The report: one HTML file of at most 150 KB that needs no network, made from the tables with a `chart` line.

Below each plot are its rows and its SQL. Names come from events, so all of them are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any, NamedTuple

from everlog.core.text import counted
from everlog.errors import NotFound
from everlog.pipeline.lake.data_file import opened
from everlog.pipeline.lake.lake import ANSWERS, Lake
from everlog.pipeline.report.plots import plot, shown
from everlog.pipeline.sql.chart import COUNT, Chart
from everlog.pipeline.sql.definition import Definition, read_definitions

BYTES_MAX = 150_000
_ROWS_SHOWN = (100, 20, 5, 0)
"""The rows below a plot: fewer if the page would be too large."""
_CELL_CHARS_MAX = 120
_ORDER = ("flow_daily", "flow_weekly", "flow", "conflicts", "deploys", "refused", "activity", "talk", "growth")

Row = Mapping[str, Any]


class Section(NamedTuple):
    title: str
    says: str
    svg: str
    columns: Sequence[str]
    rows: Sequence[Row]
    sql: str


def report(lake: Lake, definitions: Mapping[str, Definition] | None = None, *, now: datetime | None = None) -> str:
    """Return the report of a lake, after its last complete run."""
    tables = _Tables(lake)
    made = now or datetime.now(UTC)
    chosen = read_definitions() if definitions is None else definitions
    order = sorted(
        chosen, key=lambda name: (not chosen[name].ours, _ORDER.index(name) if name in _ORDER else 0, name)
    )
    sections = [section for name in order for section in _sections(chosen[name], tables(name))]
    if not sections:
        raise NotFound("there is nothing to report", why="the lake holds no events", hint="everlog pipeline run")
    for rows_max in _ROWS_SHOWN:
        page = _page(tables, sections, made, rows_max)
        if len(page.encode()) <= BYTES_MAX:
            return page
    while len(page.encode()) > BYTES_MAX:  # many plots of a user: the last ones are left out, and the page says so
        sections = sections[:-1]
        page = _page(tables, sections, made, 0, left_out=True)
    return page


class _Tables:
    """The tables after the last complete run, as rows."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._published = lake, lake.published()
        self.position = self._published.cursor.partition("@")[0]

    def __call__(self, name: str) -> list[Row]:
        version = self._published.tables.get(f"{ANSWERS}/{name}")
        if version is None:
            return []
        paths = self._lake.table(f"{ANSWERS}/{name}").paths(version=version)
        return [row for path in paths for row in opened(path).read().to_pylist()]


def _sections(made: Definition, rows: Sequence[Row]) -> Iterator[Section]:
    if not rows:
        return
    for chart in made.charts:
        if odd := [name for name in (*chart.columns, chart.by) if name and name != COUNT and name not in rows[0]]:
            raise NotFound(
                f"{made.source}: the chart names {odd[0]}, which is not a column of the table",
                why="it has " + ", ".join(rows[0]),
                hint="correct the chart line, then everlog pipeline run",
            )
        columns = chart.columns if chart.kind == "table" else list(rows[0])
        says = f"{made.says} {counted(len(rows), 'row')}.".strip()
        yield Section(chart.title or made.name, says, plot(chart, rows), columns, _ordered(chart, rows), made.text)


def _ordered(chart: Chart, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows as they are shown: days from the newest one, others as they are."""
    if chart.kind in ("table", "rows"):
        return rows
    first = chart.columns[0]
    return sorted(rows, key=lambda row: (row[first] is not None, str(row[first])), reverse=True)


def _page(
    tables: _Tables, sections: Sequence[Section], made: datetime, rows_max: int, *, left_out: bool = False
) -> str:
    facts = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in _facts(tables, made))
    body = "\n".join(_html(section, rows_max) for section in sections)
    end = f"<p>More plots do not fit into {BYTES_MAX // 1000} KB.</p>" if left_out else ""
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>everlog report, {made:%Y-%m-%d}</title><style>{_STYLE}</style></head><body><main>"
        f"<header><h1>The week in the log</h1><p>Made {made:%A, %d %B %Y, %H:%M} UTC, up to position"
        f" {escape(tables.position)}.</p></header>"
        f"<section class=facts>{facts}</section>\n{body}\n{end}</main></body></html>\n"
    )


def _facts(tables: _Tables, made: datetime) -> Iterator[tuple[str, str]]:
    week = (made - timedelta(days=7)).date()
    growth = [row for row in tables("growth") if {"day", "events"} <= row.keys()]
    yield "events in all", f"{sum(row['events'] for row in growth):,}"
    yield "in the last 7 days", f"{sum(row['events'] for row in growth if row['day'] > week):,}"
    flow = [row for row in tables("flow") if {"begun_at", "done_at"} <= row.keys()]
    if flow:
        recent = [row for row in flow if row["done_at"] is not None and row["done_at"].date() > week]
        yield "work packages finished in 7 days", f"{len(recent):,}"
        begun = sum(row["begun_at"] is not None and row["done_at"] is None for row in flow)
        yield "being done or reviewed", f"{begun:,}"
    yield "refused in 90 days", f"{len(tables('refusals')):,}"


def _html(section: Section, rows_max: int) -> str:
    table = _table(section.columns, section.rows[:rows_max]) if rows_max else ""
    more = f"<p>The first {rows_max} of {len(section.rows):,}.</p>" if 0 < rows_max < len(section.rows) else ""
    rows = f"<details><summary>Rows</summary>{table}{more}</details>" if section.svg else table + more
    sql = f"<details><summary>SQL</summary><pre>{escape(section.sql)}</pre></details>"
    return f"<section><h2>{escape(section.title)}</h2><p>{escape(section.says)}</p>{section.svg}{rows}{sql}</section>"


def _table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(shown(row[name])[:_CELL_CHARS_MAX])}" for name in columns) for row in rows
    )
    return f"<table><tr>{head}{body}</table>"


_LIGHT = ("#2f6f8f", "#d9822b", "#4c9a6a", "#a4558f", "#8a7b52", "#c0504d", "#5c6bc0", "#7d8894")
_DARK = ("#63a9cc", "#e9a35c", "#74c292", "#c987b8", "#b9a97b", "#e0807d", "#909ce6", "#a7b1bb")


def _colours(colours: Sequence[str]) -> str:
    return "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours))


_STYLE = f"""
:root{{--ink:#1f2933;--quiet:#5b6775;--page:#f4f6f8;--card:#fff;--line:#dfe4e9;{_colours(_LIGHT)}
color-scheme:light dark}}
@media (prefers-color-scheme:dark){{:root{{--ink:#e4e8ec;--quiet:#9aa7b4;--page:#14191e;--card:#1d242b;--line:#37414b;
{_colours(_DARK)}}}}}
body{{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}}
main{{max-width:60rem;margin:0 auto;padding:1.5rem}}
p{{color:var(--quiet);margin:.2rem 0 .8rem}} h1{{margin:0;font-size:1.8rem}} h2{{margin:0;font-size:1.15rem}}
section{{background:var(--card);border-radius:.5rem;padding:1rem 1.2rem;margin:1rem 0;overflow-x:auto}}
.facts{{display:flex;flex-wrap:wrap;gap:1.5rem}} .facts b{{font-size:1.6rem;display:block;line-height:1.2}}
.facts span,summary{{color:var(--quiet);font-size:.85rem}} summary{{cursor:pointer}}
table{{border-collapse:collapse;width:100%;font-size:.9rem}} th{{text-align:left;color:var(--quiet)}}
th,td{{padding:.3rem .6rem;border-bottom:1px solid var(--line)}} pre{{font-size:.8rem;overflow-x:auto}}
svg{{width:100%;min-width:32rem}} svg text{{fill:var(--quiet);font-size:12px}} .g{{stroke:var(--line);fill:none}}
.l{{fill:none;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}}
.legend span{{margin-right:1rem;font-size:.85rem}}
.legend i{{display:inline-block;width:.8em;height:.8em;margin-right:.3em}}
{"".join(f".c{n}{{fill:var(--c{n});background:var(--c{n})}}.l{n}{{stroke:var(--c{n})}}" for n in range(len(_LIGHT)))}
"""
