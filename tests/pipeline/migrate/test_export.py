"""A folder of exports, written by many at once, comes back as the log that it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import everlog
from everlog.errors import Conflict
from everlog.pipeline.migrate.chunks import MANIFEST
from everlog.pipeline.migrate.export import export_all
from everlog.pipeline.migrate.migrate import migrate
from everlog.transfer.exporting import Format
from everlog.wiring import copy_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(found, actor="user:ada") as log:
        drafts = [everlog.Draft("note.added", f"note/{n % 7}", {"text": f"note {n}"}) for n in range(95)]
        log.append_batch(drafts)
    return found


@pytest.mark.parametrize("form", [Format.EVERLOG, Format.CLOUDEVENTS])
def test_every_event_is_in_one_part_and_a_migration_makes_the_same_log_of_them(
    spark: SparkSession, url: str, tmp_path: Path, form: Format
) -> None:
    made = export_all(spark, url, tmp_path / "out", form, part_events=40)
    assert [(part.first, part.last, part.count) for part in made.parts] == [(1, 40, 40), (41, 80, 40), (81, 95, 15)]
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["count"] == 95
    again = migrate(spark, [tmp_path / "out"], copy_target("segments:new", base=tmp_path), tmp_path / "staging")
    with everlog.open(url, create=False) as log, everlog.open(f"segments:{tmp_path / 'new'}", create=False) as new:
        assert [r.event for r in log.read()] == [r.event for r in new.read()]
        assert again.digest == log.verify().digest


def test_an_export_never_goes_into_a_folder_that_holds_something(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_text("mine")
    with pytest.raises(Conflict):
        export_all(spark, url, tmp_path)


def test_an_empty_log_has_a_manifest_and_no_parts(spark: SparkSession, tmp_path: Path) -> None:
    everlog.open(f"sqlite:{tmp_path / 'empty.db'}").close()
    assert export_all(spark, f"sqlite:{tmp_path / 'empty.db'}", tmp_path / "out").parts == []
