"""Plots as SVG, small and without a library: a path for each colour, and colours that follow light and dark.

bars, lines    values over days, weeks or names
rows           horizontal bars, one below the other
heat           a field for each day and name
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from html import escape
from typing import Any

from everlog.pipeline.sql.chart import COUNT, Chart

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 260, 56, 10, 24
COLOURS = 8
POINTS_MAX = 92
"""The last days, weeks or names that bars and lines show."""
ROWS_MAX = 15
_ROW, _LEVELS = 22, 5

Row = Mapping[str, Any]


def plot(chart: Chart, rows: Sequence[Row]) -> str:
    """Return the SVG of a chart with its legend; empty for a table."""
    if not rows or chart.kind == "table":
        return ""
    return {"bars": _bars, "lines": _lines, "rows": _rows, "heat": _heat}[chart.kind](chart, rows)


def shown(value: Any) -> str:
    """Return a value as a cell shows it."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _bars(chart: Chart, rows: Sequence[Row]) -> str:
    names, series = _series(chart, rows)
    stacked = bool(chart.by)
    sums = [sum(values[at] for values in series.values()) for at in range(len(names))]
    top = _top(max(sums) if stacked else max(map(max, series.values())))
    step = (WIDTH - LEFT) / len(names)
    thick = max(1.0, min(40.0, step * 0.8) / (1 if stacked else len(series)))
    aside = 1 if stacked else len(series)
    paths, base = [], [0.0] * len(names)
    for number, values in enumerate(series.values()):
        path = ""
        for at, value in enumerate(values):
            if value > 0:
                x = LEFT + step * at + (step - thick * aside) / 2 + (0 if stacked else number * thick)
                upper, lower = _y(base[at] + value, top), _y(base[at], top)
                path += f"M{x:.1f} {upper}V{lower}h{thick:.1f}V{upper}z"
                base[at] += value if stacked else 0
        paths.append(f'<path class="c{number % COLOURS}" d="{path}"/>')
    return _framed("".join(paths), names, top) + _legend(series)


def _lines(chart: Chart, rows: Sequence[Row]) -> str:
    names, series = _series(chart, rows)
    top = _top(max(map(max, series.values())))
    step = (WIDTH - LEFT) / len(names)
    paths = []
    for number, values in enumerate(series.values()):
        points = [f"{LEFT + step * (at + 0.5):.1f} {_y(value, top)}" for at, value in enumerate(values)]
        dots = "".join(f"M{point}h0" for point in points)
        paths.append(f'<path class="l l{number % COLOURS}" d="M{"L".join(points)}{dots}"/>')
    return _framed("".join(paths), names, top) + _legend(series)


def _rows(chart: Chart, rows: Sequence[Row]) -> str:
    label, *values = chart.columns
    most = sorted(rows, key=lambda row: -sum(_number(row[name]) for name in values))[:ROWS_MAX]
    top = max(sum(_number(row[name]) for name in values) for row in most) or 1.0
    room, height = 190, len(most) * _ROW
    parts = _names(room, [row[label] for row in most])
    for number, name in enumerate(values):
        path = ""
        for at, row in enumerate(most):
            before = sum(_number(row[other]) for other in values[:number]) / top * (WIDTH - room)
            wide = _number(row[name]) / top * (WIDTH - room)
            if wide > 0:
                path += f"M{room + before:.1f} {at * _ROW + 3}h{wide:.1f}v{_ROW - 6}h-{wide:.1f}z"
        parts.append(f'<path class="c{number % COLOURS}" d="{path}"/>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>' + _legend(values)


def _heat(chart: Chart, rows: Sequence[Row]) -> str:
    column, label, value = chart.columns
    cells: dict[tuple[Any, Any], float] = {}
    totals: dict[Any, float] = {}
    for row in rows:
        amount = 1.0 if value == COUNT else _number(row[value])
        totals[row[label]] = totals.get(row[label], 0.0) + amount
        place = (_day(row[column]), row[label])
        cells[place] = cells.get(place, 0.0) + amount
    labels = sorted(totals, key=lambda name: (-totals[name], str(name)))[:ROWS_MAX]
    names = sorted({name for name, _ in cells if name is not None})[-POINTS_MAX:]
    top = max((cells.get((name, one), 0.0) for name in names for one in labels), default=0.0) or 1.0
    room, height = 190, len(labels) * _ROW
    step = min((WIDTH - room) / max(len(names), 1), 40.0)
    parts = _names(room, labels)
    levels = [""] * _LEVELS
    for at, one in enumerate(labels):
        for column_at, name in enumerate(names):
            if amount := cells.get((name, one), 0.0):
                level = min(_LEVELS - 1, int(amount / top * _LEVELS))
                x, wide = room + column_at * step, step - 1
                levels[level] += f"M{x:.1f} {at * _ROW + 1}h{wide:.1f}v{_ROW - 2}h-{wide:.1f}z"
    parts += [
        f'<path class="c0" opacity="{(level + 1) / _LEVELS:.1f}" d="{path}"/>'
        for level, path in enumerate(levels)
        if path
    ]
    ends = f'<text x="{room}" y="{height + 16}">{_short(names[0])}</text>' if names else ""
    if len(names) > 1:
        right = room + step * len(names)
        ends += f'<text x="{right:.0f}" y="{height + 16}" text-anchor="end">{_short(names[-1])}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {height + BOTTOM}" role="img">{"".join(parts)}{ends}</svg>'


def _series(chart: Chart, rows: Sequence[Row]) -> tuple[list[Any], dict[str, list[float]]]:
    """Return the values of x, and the numbers of each series over them. The least common series become `others`."""
    column, *values = chart.columns
    found: dict[str, dict[Any, float]] = {}
    for row in rows:
        at = _day(row[column])
        for value in values:
            name = str(row[chart.by]) if chart.by else value
            own = found.setdefault(name, {})
            own[at] = own.get(at, 0.0) + (1.0 if value == COUNT else _number(row[value]))
    if len(found) > COLOURS:
        most = sorted(found, key=lambda name: (-sum(found[name].values()), name))[: COLOURS - 1]
        kept, others = {name: found[name] for name in most}, dict[Any, float]()
        for name, own in found.items():
            for at, amount in own.items() if name not in kept else ():
                others[at] = others.get(at, 0.0) + amount
        found = {**kept, "others": others}
    places = {at for own in found.values() for at in own if at is not None}
    names = sorted(places, key=lambda at: (str(type(at)), at))[-POINTS_MAX:] or [""]
    return names, {name: [own.get(at, 0.0) for at in names] for name, own in found.items()}


def _names(room: int, names: Sequence[Any]) -> list[str]:
    """Return the names of rows, to the left of them."""
    return [
        f'<text x="{room - 6}" y="{at * _ROW + 15}" text-anchor="end">{_short(name)}</text>'
        for at, name in enumerate(names)
    ]


def _framed(inside: str, names: Sequence[Any], top: float) -> str:
    lines = ""
    for value in (top * part / 4 for part in range(5)):
        y = _y(value, top)
        lines += f'<path class="g" d="M{LEFT} {y}H{WIDTH}"/>'
        lines += f'<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{_tick(value)}</text>'
    step = (WIDTH - LEFT) / len(names)
    every = -(-len(names) // 8)
    marks = "".join(
        f'<text x="{LEFT + step * (at + 0.5):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{_short(names[at])}</text>'
        for at in range(0, len(names), every)
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{lines}{inside}{marks}</svg>'


def _legend(names: Sequence[str] | Mapping[str, object]) -> str:
    if len(names) < 2:
        return ""
    parts = (f'<span><i class="c{number % COLOURS}"></i>{_short(name)}</span>' for number, name in enumerate(names))
    return f"<p class=legend>{''.join(parts)}</p>"


def _y(value: float, top: float) -> str:
    return f"{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top:.1f}"


def _top(value: float) -> float:
    """Return the end of the scale: 1, 2 or 5 times a power of ten, four steps above 0."""
    if value <= 0:
        return 4.0
    for power in _powers():
        for first in (1, 2, 5):
            if first * power * 4 >= value:
                return first * power * 4
    raise AssertionError("there is a power for every number")


def _powers() -> Iterator[float]:
    power = 1e-6
    while True:
        yield power
        power *= 10


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


def _day(value: Any) -> Any:
    return value.date() if isinstance(value, datetime) else value


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value)


def _short(value: Any) -> str:
    text = value.isoformat() if isinstance(value, date) else str(value)
    return escape(text if len(text) <= 28 else text[:27] + "…")
