"""Every row of the crash table, in its short form. The whole of it: `./everlog test --crash`."""

from __future__ import annotations

import pytest
from tests.crash import table
from tests.crash.rows import Row, Scale, timed

SUITE = table.jobs_at(Scale.SUITE)


@pytest.mark.parametrize("job", SUITE, ids=[job.title.replace(" ", "-") for job in SUITE])
def test_no_surprise_loses_or_changes_anything(job: table.Job) -> None:
    row = table.run_job(table.JOBS.index(job), Scale.SUITE)
    if row.skipped:
        pytest.skip(row.skipped)
    assert row.problems == []
    assert row.verdict == "passed", row
    print(f"{row.count} {row.unit}: {row.remark}")


def test_the_table_has_every_row_that_the_suite_has_and_reaches_its_floors() -> None:
    whole = table.jobs_at(Scale.TABLE)
    assert [job for job in SUITE if job not in whole] == []
    for unit, floor in table.FLOORS.items():
        assert sum(job.times[Scale.TABLE] for job in whole if job.unit == unit) >= floor, unit


def test_a_row_fails_for_what_it_finds_and_for_what_it_did_not_do() -> None:
    def row(wanted: int = 1) -> Row:
        return Row("a", "b", "times", wanted=wanted, count=1)

    lost, changed, broken = row(), row(), row()
    lost.lost("x")
    changed.changed("x")
    broken.broken("x")
    verdicts = [each.verdict for each in (row(), row(wanted=2), lost, changed, broken)]
    assert verdicts == ["passed", "too few", "FAILED", "FAILED", "FAILED"]


def test_a_failing_row_ends_the_command_with_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(row: Row) -> None:
        row.count = 1
        row.lost("position 7 is gone")

    def told(jobs: list[table.Job], scale: Scale, processes: int) -> list[Row]:
        return [timed(lose, Row("kills", "sqlite", "kills"))]

    monkeypatch.setattr(table, "_run", told)
    assert table.main(["kills"]) == 1
    printed = capsys.readouterr().out
    assert "position 7 is gone" in printed
    assert "1 acknowledged events lost" in printed
    assert printed.endswith("0 passed, 1 failed\n")


def test_a_row_that_cannot_be_run_is_skipped_aloud_and_fails_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Row("power cuts", "sqlite", "power cuts", skipped="only root can")
    monkeypatch.setattr(table, "_run", lambda jobs, scale, processes: [row])
    assert table.main(["power cuts"]) == 0
    assert "only root can" in capsys.readouterr().out
    assert table.main(["--strict", "power cuts"]) == 1
    assert capsys.readouterr().out.endswith("0 passed, 1 failed, 1 skipped\n")


def test_a_row_of_no_such_name_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert table.main(["nonsense"]) == 2
    assert "power cuts" in capsys.readouterr().out
