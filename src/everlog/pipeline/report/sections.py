"""What the report shows: a section for each question that the log has events for, with its figure or its table.

Names come from events, so all of them are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from everlog.pipeline.lake.data_file import opened
from everlog.pipeline.lake.lake import ANSWERS, Lake

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LANES = ("planned", "doing", "for_review")
_SHOWN_MAX = 15
_OUTCOMES = {"succeeded": "#4c9a6a", "failed": "#c0504d", "rolled_back": "#d9822b"}
_COLOURS = ("#2f6f8f", "#d9822b", "#4c9a6a", "#a4558f", "#8a7b52", "#c0504d", "#5c6bc0", "#9aa5b1")

Row = dict[str, Any]


class Section(msgspec.Struct, frozen=True):
    """A heading, a sentence, and a figure or a table."""

    title: str
    says: str
    figure: Any = None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()


class Answers:
    """The answers after the last complete run, as rows."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._published = lake.published()
        self.cursor = self._published.cursor

    def __call__(self, name: str) -> list[Row]:
        version = self._published.tables.get(f"{ANSWERS}/{name}")
        if version is None:
            return []
        paths = self._lake.table(f"{ANSWERS}/{name}").paths(version=version)
        return [row for path in paths for row in opened(path).read().to_pylist()]


def every_section(answers: Answers) -> list[Section]:
    return [section for make in _SECTIONS for section in make(answers)]


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
        f"One was finished {done:,} times from {day[0]} to {day[-1]};"
        f" {in_progress(answers('flow')):,} are being done or reviewed now.",
        figure,
    )
    packages = [row for row in answers("flow") if row["lead_hours"] is not None]
    weeks = answers("flow_weekly")
    if not weeks:
        return
    last = weeks[-1]
    yield Section(
        "How long it takes",
        f"Of what was finished in the week of {last['week']}, half took {_hours(last['lead_p50'])} or less from plan"
        f" to end (lead), and {_hours(last['cycle_p50'])} or less from begin to end (cycle).",
        _times_of_weeks(weeks) if len(weeks) > 1 else _times_of_week(last),
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


_PARTS = (50, 85, 95)
_KINDS = ("lead", "cycle")


def _times_of_weeks(weeks: Sequence[Row]) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for part, colour in zip(_PARTS, (_COLOURS[0], _COLOURS[1], _COLOURS[5]), strict=True):
        for kind, dash in zip(_KINDS, ("solid", "dot"), strict=True):
            figure.add_trace(
                Scatter(
                    x=[row["week"] for row in weeks],
                    y=[row[f"{kind}_p{part}"] for row in weeks],
                    name=f"{kind}, {part} % within",
                    mode="lines+markers",
                    line={"color": colour, "dash": dash},
                )
            )
    figure.update_layout(yaxis_title="hours", xaxis_type="category", xaxis_title="week that begins on")
    return figure


def _times_of_week(week: Row) -> Figure:
    """Show a single week: lines would be dots."""
    from plotly.graph_objects import Bar, Figure

    within = [f"{part} % within" for part in _PARTS]
    figure = Figure(
        [
            Bar(x=within, y=[week[f"{kind}_p{part}"] for part in _PARTS], name=kind, marker_color=colour)
            for kind, colour in zip(_KINDS, _COLOURS, strict=False)
        ]
    )
    figure.update_layout(barmode="group", yaxis_title="hours")
    return figure


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
        f"{len(found):,} requests in 90 days. The most common, by actor:",
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
    if len(days) == 1:
        yield _by_type_of_day(totals, title, says.format(total=sum(totals.values()), days=f"a day, {days[0]}"))
        return
    figure = Figure()
    for number, name in enumerate([*most, *(["others"] if len(totals) > len(most) else [])]):
        own = [row for row in found if (row["type"] == name if name in totals else row["type"] not in most)]
        counted = [sum(row["events"] for row in own if row["day"] == day) for day in days]
        figure.add_trace(Bar(x=days, y=counted, name=_label(name), marker_color=_COLOURS[number]))
    figure.update_layout(barmode="stack", yaxis_title="events", xaxis_type="category")
    yield Section(
        title,
        says.format(total=sum(totals.values()), days=f"{len(days):,} days"),
        figure,
    )


def _by_type_of_day(totals: Mapping[str, int], title: str, says: str) -> Section:
    """Show a single day: one column of many colours would be hard to read."""
    from plotly.graph_objects import Bar, Figure

    most = sorted(totals, key=lambda name: -totals[name])[:_SHOWN_MAX]
    counted = [totals[name] for name in most]
    figure = Figure([Bar(y=list(map(_label, most)), x=counted, orientation="h", marker_color=_COLOURS[0])])
    figure.update_layout(xaxis_title="events", yaxis_autorange="reversed")
    shown = f" The {len(most)} most common of {len(totals):,} types:" if len(totals) > len(most) else ""
    return Section(title, says + shown, figure)


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


def in_progress(flow: Sequence[Row]) -> int:
    return sum(row["lane"] in ("doing", "for_review") for row in flow)


def _hours(value: float | None) -> str:
    return "an unknown time" if value is None else f"{value:,.1f} hours"


def _label(name: str) -> str:
    """Escape a name for a figure, which renders some HTML in its labels."""
    return escape(name if len(name) <= 40 else name[:39] + "…")
