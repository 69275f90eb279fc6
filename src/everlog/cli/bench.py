"""`everlog bench`: speed relative to what this machine can do at best, comparable between machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session


@click.command("bench")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=5, metavar="N", help="Number of measurements (default: 5)."
)
@click.option("--quick", is_flag=True, help="Small sizes, for a first impression in a few seconds.")
@click.option(
    "--on", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Measure the disk of DIR."
)
@common_options
@pass_session
def bench_command(session: Session, rounds: int, quick: bool, on: Path | None) -> None:
    """Measure everlog relative to the disk and to plain SQLite.

    Columns when piped: name, value, target, unit, ours, floor, note.

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
    ratios = run_benchmark(rounds=rounds, quick=quick, directory=directory, progress=show)
    columns = ("name", "value", "target", "unit", "ours", "floor", "note")
    rows = [
        (
            ratio.name,
            f"{ratio.value:.2f}",
            "" if ratio.target is None else f"{ratio.target:g}",
            ratio.unit,
            _figure(ratio.ours),
            _figure(ratio.floor),
            ratio.note,
        )
        for ratio in ratios
    ]
    out.answer(
        Answer(
            data=[msgspec.to_builtins(ratio) for ratio in ratios],
            ids=[ratio.name for ratio in ratios],
            columns=columns,
            rows=rows,
            facts={"count": len(rows)},
        )
    )


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
