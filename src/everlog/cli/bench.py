"""`everlog bench`: speed relative to the disk, to the least that a store must do, and to other event stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session


@click.command("bench")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=7, metavar="N", help="Number of measurements (default: 7)."
)
@click.option("--quick", is_flag=True, help="Small sizes, for a first impression in a few seconds.")
@click.option(
    "--on", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Measure the disk of DIR."
)
@common_options
@pass_session
def bench_command(session: Session, rounds: int, quick: bool, on: Path | None) -> None:
    """Measure everlog relative to the disk, to a straight line of code and to other event stores.

    Columns when piped: name, store, value, target, straight_line, eventsourcing, umadb, unit, ours, floor, cpu_us,
    switches, note. A peer that is not installed is reported as absent.

    \b
    Example:
      everlog bench --quick
    """
    import msgspec

    run_benchmark = _benchmark()
    out = session.out

    def show(text: str) -> None:
        if out.progress_wanted:
            out.note(text)

    directory = None if on is None else session.directory / on
    figures = run_benchmark(rounds=rounds, quick=quick, directory=directory, progress=show)
    columns = ("name", "store", "value", "target", "straight_line", "eventsourcing", "umadb", "unit", "ours", "floor")
    rows = [
        (
            figure.name,
            figure.store,
            f"{figure.value:.2f}",
            "" if figure.target is None else f"{figure.target:.2g}",
            *(_ratio(figure.against, side) for side in ("straight line", "eventsourcing", "UmaDB")),
            figure.unit,
            _figure(figure.ours),
            _figure(figure.floor),
            "" if figure.cpu_us is None else f"{figure.cpu_us:.1f}",
            "" if figure.switches is None else f"{figure.switches:.2f}",
            figure.note,
        )
        for figure in figures
    ]
    absent = sorted({side for figure in figures for side, found in figure.against.items() if found is None})
    out.answer(
        Answer(
            data=[msgspec.to_builtins(figure) for figure in figures],
            ids=[f"{figure.name}, {figure.store}" for figure in figures],
            columns=(*columns, "cpu_us", "switches", "note"),
            rows=rows,
            facts={"count": len(rows), "absent": ",".join(absent) or "none"},
        )
    )


def _ratio(against: Mapping[str, Any], side: str) -> str:
    """Return a ratio as text: empty if the other side does not do this work, `absent` if it is not installed."""
    if side not in against:
        return ""
    return "absent" if against[side] is None else f"{against[side].value:.2f}"


def _benchmark() -> Callable[..., Any]:
    """Return the benchmark, which lies beside the package in a checkout and is not part of an installed everlog."""
    import sys

    import everlog
    from everlog.errors import Unavailable

    root = Path(everlog.__file__).resolve().parents[2]
    if not (root / "benchmarks" / "bench" / "run.py").is_file():
        raise Unavailable(
            "the benchmark is not installed",
            why="it is part of everlog's source tree, not of the package",
            hint="run it in a checkout of the source: ./everlog bench --quick",
        )
    if str(root) not in sys.path:
        sys.path.append(str(root))
    from benchmarks.bench.run import run_benchmark

    return run_benchmark


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
