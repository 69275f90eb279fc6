"""`everlog bench`: ratios to this machine's own floor, which mean the same on every machine."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session


@click.command("bench")
@click.option("--rounds", type=click.IntRange(1, 100), default=5, metavar="N", help="Measure so many times (5).")
@click.option("--quick", is_flag=True, help="Small sizes: a first impression in a few seconds.")
@click.option(
    "--on", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Measure the disk of DIR."
)
@common_options
@pass_session
def bench_command(session: Session, rounds: int, quick: bool, on: Path | None) -> None:
    """Measure this log against its own disk and a bare SQLite.

    Columns when piped: name, value, target, unit, ours, floor, note.

    \b
    Example:
      everlog bench --quick
    """
    import msgspec

    from everlog.bench.run import run_benchmark

    out = session.out

    def tell(text: str) -> None:
        if out.progress_wanted:
            out.note(text)

    directory = None if on is None else session.place / on
    ratios = run_benchmark(rounds=rounds, quick=quick, directory=directory, progress=tell)
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


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
