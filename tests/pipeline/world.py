"""A log, its lake, and runs from the one to the other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.shop import SHOP

import everlog
from everlog.catalog.catalog import Catalog
from everlog.log.log import Log
from everlog.pipeline import run as running
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.run import RunOutcome
from everlog.pipeline.source.rows import COLUMNS, row_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class World:
    def __init__(self, spark: SparkSession, place: Path, catalog: Catalog = SHOP) -> None:
        self.spark = spark
        self.place = place
        self.url = f"sqlite:{place / 'log.db'}"
        self.log: Log = everlog.open(self.url, catalog=catalog)
        self.lake = Lake.open(place / "lake", log_id=self.log.identity.log_id, create=True)

    def run(self, **options: Any) -> RunOutcome:
        return running.run(SparkEngine(self.spark), self.log, self.url, self.lake, **options)

    def reopen(self, catalog: Catalog) -> None:
        self.log.close()
        self.log = everlog.open(self.url, catalog=catalog)

    def say(self, *texts: str, stream: str = "note/1") -> None:
        for text in texts:
            self.log.append("note.added", stream=stream, payload={"text": text})

    def rows(self, table: str) -> list[Any]:
        return self.lake.read(self.spark, table).orderBy("position").collect()

    def texts(self) -> list[str]:
        return [row["text"] for row in self.rows("silver/note.added")]

    def same_as_the_log(self) -> bool:
        held = self.lake.read(self.spark, "events").select(*COLUMNS).orderBy("position").collect()
        return [_plain(row) for row in held] == [_plain(row_of(recorded)) for recorded in self.log._store.read()]

    def files(self) -> dict[str, int]:
        return {
            str(path.relative_to(self.lake.path)): path.stat().st_mtime_ns
            for path in self.lake.path.rglob("*")
            if path.is_file()
        }


def _plain(row: Iterable[Any]) -> list[Any]:
    """Moments as text in UTC: Spark hands them out in the machine's own zone."""
    return [value.astimezone().isoformat() if hasattr(value, "astimezone") else value for value in row]
