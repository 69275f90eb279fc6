"""The Monday report: one HTML file that needs no network, made from the answers in the lake.

Every figure says what it shows in a sentence, and a question that the log has no events for is left out. Names come
from events, so all of them are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from everlog.errors import NotFound, Unavailable
from everlog.pipeline.lake import ANSWERS, Lake
from everlog.pipeline.questions import LANES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHOWN_MAX = 15
_INK, _QUIET = "#1f2933", "#6b7785"
_OUTCOMES = {"succeeded": "#4c9a6a", "failed": "#c0504d", "rolled_back": "#d9822b"}
_COLOURS = ("#2f6f8f", "#d9822b", "#4c9a6a", "#a4558f", "#8a7b52", "#c0504d", "#5c6bc0", "#9aa5b1")

Row = dict[str, Any]


class Section(msgspec.Struct, frozen=True):
    """A heading, a sentence, and what stands below it: a figure or a table."""

    title: str
    says: str
    figure: Any = None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()


def report(lake: Lake, *, now: datetime | None = None) -> str:
    """The report of a lake, as its last whole run left it."""
    _require_plotly()
    answers = Answers(lake)
    made = now or datetime.now(UTC)
    sections = [section for make in _SECTIONS for section in make(answers)]
    if not sections:
        raise NotFound("there is nothing to report", why="the lake holds no events", hint="everlog pipeline run")
    return _page(answers, sections, made)


class Answers:
    """The answers of the last whole run, as rows."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._published = lake.published()
        self.cursor = self._published.cursor

    def __call__(self, name: str) -> list[Row]:
        version = self._published.tables.get(f"{ANSWERS}/{name}")
        if version is None:
            return []
        paths = self._lake.table(f"{ANSWERS}/{name}").paths(version=version)
        return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def _require_plotly() -> None:
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise Unavailable(
            "the report needs the library plotly",
            why=str(error),
            hint="pip install 'everlog[report]', or EVERLOG_EXTRAS=report ./everlog …",
        ) from error


# ---- the sections


def _work(answers: Answers) -> Iterator[Section]:
    days = answers("flow_daily")
    if not days:
        return
    from plotly.graph_objects import Bar, Figure, Scatter

    day = [row["day"] for row in days]
    figure = Figure(
        [
            Bar(x=day, y=[row["done"] for row in days], name="finished", marker_color=_COLOURS[2]),
            Bar(x=day, y=[row["begun"] for row in days], name="begun", marker_color=_COLOURS[0]),
            Scatter(
                x=day, y=[row["in_progress"] for row in days], name="begun, not finished", line={"color": _COLOURS[1]}
            ),
        ]
    )
    figure.update_layout(barmode="group", yaxis_title="work packages", xaxis_type="category")
    done = sum(row["done"] for row in days)
    yield Section(
        "Work packages day by day",
        f"{done:,} were finished from {day[0]} to {day[-1]}; {_in_progress(answers('flow')):,} are in progress now.",
        figure,
    )
    packages = [row for row in answers("flow") if row["lead_hours"] is not None]
    weeks = answers("flow_weekly")
    if not weeks:
        return
    lead = Figure()
    for part, colour in ((50, _COLOURS[0]), (85, _COLOURS[1]), (95, _COLOURS[5])):
        for kind, dash in (("lead", "solid"), ("cycle", "dot")):
            lead.add_trace(
                Scatter(
                    x=[row["week"] for row in weeks],
                    y=[row[f"{kind}_p{part}"] for row in weeks],
                    name=f"{kind}, {part} % within",
                    mode="lines+markers",
                    line={"color": colour, "dash": dash},
                )
            )
    lead.update_layout(yaxis_title="hours", xaxis_type="category", xaxis_title="week that begins on")
    last = weeks[-1]
    yield Section(
        "How long it takes",
        f"Of what was finished in the week of {last['week']}, half took {_hours(last['lead_p50'])} or less from plan"
        f" to end, and {_hours(last['cycle_p50'])} or less from begin to end.",
        lead,
    )
    slowest = sorted(packages, key=lambda row: -row["lead_hours"])[:_SHOWN_MAX]
    lanes = Figure(
        [
            Bar(
                y=[_label(row["work_package"]) for row in slowest],
                x=[row[f"{lane}_hours"] for row in slowest],
                name=lane,
                orientation="h",
                marker_color=_COLOURS[number],
            )
            for number, lane in enumerate(LANES)
        ]
    )
    lanes.update_layout(barmode="stack", xaxis_title="hours in the lane", yaxis_autorange="reversed")
    back = sum(row["sent_back"] for row in packages)
    yield Section(
        "Where the time went", f"The slowest {len(slowest)} that are done. {back:,} times one was sent back.", lanes
    )


def _conflicts(answers: Answers) -> Iterator[Section]:
    found = answers("conflicts")
    if found:
        columns = ("work_package", "at", "won_lane", "won_by", "lost_lane", "lost_by")
        rows = [[row[name] for name in columns] for row in found[-_SHOWN_MAX:]]
        yield Section(
            "Conflicts", f"{len(found):,} moves were made without knowing of each other.", columns=columns, rows=rows
        )


def _refusals(answers: Answers) -> Iterator[Section]:
    found = answers("refusals")
    if not found:
        return
    counts: dict[tuple[str, str], int] = {}
    for row in found:
        kind = (row["operation"] or row["type"] or row["code"], row["actor"])
        counts[kind] = counts.get(kind, 0) + 1
    most = sorted(counts.items(), key=lambda item: -item[1])[:_SHOWN_MAX]
    yield Section(
        "What was refused",
        f"{len(found):,} requests in 90 days. The most common, by who asked:",
        columns=("what", "who", "times"),
        rows=[(what, who, times) for (what, who), times in most],
    )


def _deploys(answers: Answers) -> Iterator[Section]:
    found = answers("deploys")
    if not found:
        return
    from plotly.graph_objects import Bar, Figure

    outcomes = sorted({row["outcome"] for row in found})
    days = sorted({row["requested_at"].date() for row in found if row["requested_at"]})
    figure = Figure()
    for number, outcome in enumerate(outcomes):
        counted = [
            sum(
                1
                for row in found
                if row["outcome"] == outcome and row["requested_at"] and row["requested_at"].date() == day
            )
            for day in days
        ]
        figure.add_trace(
            Bar(
                x=days,
                y=counted,
                name=_label(outcome),
                marker_color=_OUTCOMES.get(outcome, _COLOURS[-1 - number % 3]),
            )
        )
    figure.update_layout(barmode="stack", yaxis_title="deploys", xaxis_type="category")
    good = sum(row["outcome"] == "succeeded" for row in found)
    yield Section("Deploys", f"{good:,} of {len(found):,} ended well.", figure)


def _activity(answers: Answers) -> Iterator[Section]:
    found = answers("activity")
    if not found:
        return
    from plotly.graph_objects import Figure, Heatmap

    totals: dict[str, int] = {}
    for row in found:
        totals[row["actor"]] = totals.get(row["actor"], 0) + row["events"]
    actors = sorted(totals, key=lambda actor: -totals[actor])[:_SHOWN_MAX]
    days = sorted({row["day"] for row in found})
    cells = {(actor, day): 0 for actor in actors for day in days}
    for row in found:
        if row["actor"] in totals and (row["actor"], row["day"]) in cells:
            cells[row["actor"], row["day"]] += row["events"]
    figure = Figure(
        Heatmap(
            x=days,
            y=[_label(actor) for actor in actors],
            z=[[cells[actor, day] for day in days] for actor in actors],
            colorscale="Blues",
            colorbar={"title": "events"},
        )
    )
    figure.update_layout(yaxis_autorange="reversed", xaxis_type="category")
    busiest = actors[0]
    yield Section(
        "Who did what",
        f"{len(totals):,} actor{'s' * (len(totals) != 1)}; {busiest} recorded the most, {totals[busiest]:,} events.",
        figure,
    )


def _talk(answers: Answers) -> Iterator[Section]:
    yield from _by_type(answers("talk"), "Chat and market", "{total:,} events in {days}.")


def _growth(answers: Answers) -> Iterator[Section]:
    yield from _by_type(answers("growth"), "How the log grows", "{total:,} events arrived in {days}.")


def _by_type(found: list[Row], title: str, says: str) -> Iterator[Section]:
    if not found:
        return
    from plotly.graph_objects import Bar, Figure

    totals: dict[str, int] = {}
    for row in found:
        totals[row["type"]] = totals.get(row["type"], 0) + row["events"]
    most = sorted(totals, key=lambda name: -totals[name])[: len(_COLOURS) - 1]
    days = sorted({row["day"] for row in found})
    figure = Figure()
    for number, name in enumerate([*most, *(["others"] if len(totals) > len(most) else [])]):
        own = [row for row in found if (row["type"] == name if name in totals else row["type"] not in most)]
        counted = [sum(row["events"] for row in own if row["day"] == day) for day in days]
        figure.add_trace(Bar(x=days, y=counted, name=_label(name), marker_color=_COLOURS[number]))
    figure.update_layout(barmode="stack", yaxis_title="events", xaxis_type="category")
    yield Section(
        title,
        says.format(total=sum(totals.values()), days="a day" if len(days) == 1 else f"{len(days):,} days"),
        figure,
    )


def _views(answers: Answers) -> Iterator[Section]:
    found = answers("views")
    if found:
        columns = ("view", "state", "position", "lag", "gap", "keys", "letters")
        gaps = sum(row["gap"] for row in found)
        says = "None misses an event" if not gaps else f"{gaps:,} events are missing: everlog views rebuild"
        behind = sum(row["lag"] > 0 for row in found)
        says += f"; {behind:,} {'is' if behind == 1 else 'are'} behind, and will catch up." if behind else "."
        yield Section("Views", says, columns=columns, rows=[[row[name] for name in columns] for row in found])


_SECTIONS = (_work, _conflicts, _deploys, _refusals, _activity, _talk, _growth, _views)


# ---- the page


def _page(answers: Answers, sections: Sequence[Section], made: datetime) -> str:
    from plotly.offline import get_plotlyjs

    body = "\n".join(_section(section, number) for number, section in enumerate(sections))
    facts = "".join(f"<div><b>{value}</b><span>{escape(name)}</span></div>" for name, value in _facts(answers, made))
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>everlog report, {made:%Y-%m-%d}</title><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><main>"
        f"<header><h1>The week in the log</h1><p>Made {made:%A, %d %B %Y, %H:%M} UTC, up to position"
        f" {escape(answers.cursor.partition('@')[0])}.</p></header>"
        f"<section class=facts>{facts}</section>\n{body}\n</main></body></html>\n"
    )


def _facts(answers: Answers, made: datetime) -> Iterator[tuple[str, str]]:
    growth, week = answers("growth"), (made - timedelta(days=7)).date()
    yield "events in all", f"{sum(row['events'] for row in growth):,}"
    yield "in the last 7 days", f"{sum(row['events'] for row in growth if row['day'] > week):,}"
    flow = answers("flow")
    if flow:
        recent = [row for row in flow if row["done_at"] is not None and row["done_at"].date() > week]
        yield "work packages finished in 7 days", f"{len(recent):,}"
        yield "in progress", f"{_in_progress(flow):,}"
    yield "refused in 90 days", f"{len(answers('refusals')):,}"


def _in_progress(flow: Sequence[Row]) -> int:
    return sum(row["lane"] in ("doing", "for_review") for row in flow)


def _section(section: Section, number: int) -> str:
    inner = _figure(section.figure, number) if section.figure is not None else _table(section)
    return f"<section><h2>{escape(section.title)}</h2><p>{escape(section.says)}</p>{inner}</section>"


def _figure(figure: Figure, number: int) -> str:
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "color": _INK, "size": 13},
        margin={"l": 60, "r": 20, "t": 10, "b": 40},
        legend={"orientation": "h", "y": 1.12},
        height=360,
    )
    made: str = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"figure-{number}", config={"displayModeBar": False}
    )
    return made


def _table(section: Section) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in section.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(cell))}</td>" for cell in row) + "</tr>" for row in section.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _hours(value: float | None) -> str:
    return "an unknown time" if value is None else f"{value:,.1f} hours"


def _label(name: str) -> str:
    """A name for a figure, which takes some HTML in its labels for HTML."""
    return escape(name if len(name) <= 40 else name[:39] + "…")


_STYLE = f"""
body{{margin:0;background:#f4f6f8;color:{_INK};font:16px/1.5 system-ui,sans-serif}}
main{{max-width:60rem;margin:0 auto;padding:1.5rem}}
header p,section p{{color:{_QUIET};margin:.2rem 0 .8rem}}
h1{{margin:0;font-size:1.8rem}} h2{{margin:0;font-size:1.15rem}}
section{{background:#fff;border-radius:.5rem;padding:1rem 1.2rem;margin:1rem 0;overflow-x:auto}}
.facts{{display:flex;flex-wrap:wrap;gap:1.5rem}} .facts b{{font-size:1.6rem;display:block;line-height:1.2}}
.facts span{{color:{_QUIET};font-size:.85rem}}
table{{border-collapse:collapse;width:100%;font-size:.9rem}}
th{{text-align:left;color:{_QUIET};font-weight:600}} th,td{{padding:.3rem .6rem;border-bottom:1px solid #e4e8ec}}
@media (prefers-color-scheme:dark){{html{{color-scheme:light}}}}
"""
