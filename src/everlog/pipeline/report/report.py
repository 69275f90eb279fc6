"""The Monday report: one HTML file that needs no network, made from the answers in the lake.

A sentence explains each figure, and a question without events in the log is left out (`sections.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, Any

from everlog.errors import NotFound, Unavailable
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.report.sections import Answers, Section, every_section, in_progress

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_INK, _QUIET = "#1f2933", "#6b7785"


def report(lake: Lake, *, now: datetime | None = None) -> str:
    """Return the report of a lake, after its last complete run."""
    _require_plotly()
    answers = Answers(lake)
    made = now or datetime.now(UTC)
    sections = every_section(answers)
    if not sections:
        raise NotFound("there is nothing to report", why="the lake holds no events", hint="everlog pipeline run")
    return _page(answers, sections, made)


def _require_plotly() -> None:
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise Unavailable(
            "the report needs the library plotly",
            why=str(error),
            hint="pip install 'everlog[report]', or EVERLOG_EXTRAS=report ./everlog …",
        ) from error


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
        yield "being done or reviewed", f"{in_progress(flow):,}"
    yield "refused in 90 days", f"{len(answers('refusals')):,}"


def _section(section: Section, number: int) -> str:
    inner = _figure(section.figure, number) if section.figure is not None else _table(section)
    return f"<section><h2>{escape(section.title)}</h2><p>{escape(section.says)}</p>{inner}</section>"


def _figure(figure: Figure, number: int) -> str:
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "color": _INK, "size": 13},
        margin={"r": 20, "t": 10, "b": 40},
        yaxis_automargin=True,
        # Anchored at the bottom: a legend of several lines grows away from the figure.
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        height=360,
    )
    made: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{number}",
        config={"displayModeBar": False, "responsive": True},
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
