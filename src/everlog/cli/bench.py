"""`everlog bench`: speed relative to the disk, to the least that a store must do, and to other event stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session


@click.command("bench")
@click.argument("what", type=click.Choice(["trust", "http"]), required=False)
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=7, metavar="N", help="Number of measurements (default: 7)."
)
@click.option("--quick", is_flag=True, help="Small sizes, for a first impression in a few seconds.")
@click.option(
    "--on", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Measure the disk of DIR."
)
@common_options
@pass_session
def bench_command(session: Session, what: str | None, rounds: int, quick: bool, on: Path | None) -> None:
    """Measure everlog relative to the disk, to a straight line of code and to other event stores.

    Columns when piped: name, store, value, target, straight_line, eventsourcing, umadb, unit, ours, floor, cpu_us,
    switches, note. A peer that is not installed is reported as absent.

    With `trust`, measure what checkpoints and proofs cost; with `http`, what the server costs. Columns: name, store,
    value, unit, must, met, note.

    \b
    Examples:
      everlog bench --quick
      everlog bench trust
      everlog bench http
    """
    import msgspec

    out = session.out

    def show(text: str) -> None:
        if out.progress_wanted:
            out.note(text)

    directory = None if on is None else session.directory / on
    run = _benchmark(what or "bench.run")
    if what:
        measure = run.run_trust if what == "trust" else run.run_http
        found = measure(rounds=rounds, quick=quick, directory=directory, progress=show)
        out.answer(
            Answer(
                data=[{**msgspec.to_builtins(row), "met": row.met} for row in found],
                ids=[f"{row.name}, {row.store}" for row in found],
                columns=("name", "store", "value", "unit", "must", "met", "note"),
                rows=[(r.name, r.store, f"{r.value:.3f}", r.unit, r.must or "", r.met, r.note) for r in found],
                facts={"count": len(found)},
            )
        )
        return
    figures = run.run_benchmark(rounds=rounds, quick=quick, directory=directory, progress=show)
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


def _benchmark(name: str) -> Any:
    """Return a benchmark, which lies beside the package in a checkout and is not part of an installed everlog."""
    import sys
    from importlib import import_module

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
    return import_module(f"benchmarks.{name}")


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
