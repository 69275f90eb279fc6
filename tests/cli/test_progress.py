"""The progress of a long command: a bar, a line now and then, or nothing."""

from __future__ import annotations

import pytest

from everlog.cli import progress
from everlog.cli.output import Output


def output(**flags: bool) -> Output:
    wanted = {"json": False, "agent": False, "quiet": False, "no_color": False, **flags}
    return Output(**wanted, program="everlog")


def test_elsewhere_progress_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("everlog.cli.progress.time.monotonic", lambda: now)
    with progress.progress(output(), "verifying", 100_000) as show:
        for done in range(1, 31):
            now = float(done)
            show(done * 1000)
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.splitlines() == [
        "verifying: 10,000 of 100,000, 1,000 a second, 90 s left",
        "verifying: 20,000 of 100,000, 1,000 a second, 80 s left",
        "verifying: 30,000 of 100,000, 1,000 a second, 70 s left",
    ]


@pytest.mark.parametrize("flag", ["json", "agent", "quiet"])
def test_nobody_who_reads_by_program_gets_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    with progress.progress(output(**{flag: True}), "verifying", 10) as show:
        show(1)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_once_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress(output(), "verifying", 100) as show:
        show(1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "BAR_AFTER_S", 0.0)
    with progress.progress(output(), "verifying", 100) as show:
        show(60)
    assert "verifying" in capsys.readouterr().err
