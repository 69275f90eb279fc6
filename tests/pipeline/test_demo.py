"""The demo's week on Spark: every view of every program has the same digest there, and a report is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everlog.cli.main import main
from everlog.pipeline.report.report import BYTES_MAX


@pytest.mark.spark
def test_the_demo_finds_the_same_digests_on_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--dir", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]["on_spark"]
    assert len(found) >= 20
    assert [one["view"] for one in found if one["live"] != one["spark"]] == []
    assert 20_000 < (tmp_path / ".everlog" / "report.html").stat().st_size <= BYTES_MAX
