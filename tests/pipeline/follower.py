"""A driver to be killed: follows a log with Spark and keeps every batch in a file of its own, written at once.

    python -m tests.pipeline.follower URL FOLDER

A batch that Spark asks for twice is written twice under the same name. `main` with `now` goes on where a driver was
killed, reads what is there and ends; in a process that has a session it uses that one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from everlog.pipeline.session.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(url: str, folder: Path, *, now: bool = False) -> None:
    spark = open_session(master="local[2]")

    def keep(batch: DataFrame, number: int) -> None:
        rows = batch.orderBy("position").select("position", "id", "payload").collect()
        text = "".join(f"{row.position} {row.id} {row.payload}\n" for row in rows)
        draft = folder / "batches" / f".{number}"
        draft.write_text(text)
        draft.replace(folder / "batches" / f"{number:06}")
        print(f"batch {number}", flush=True)

    size = 100_000 if now else 300
    stream = spark.readStream.format("everlog").option("url", url).option("maxEventsPerTrigger", size).load()
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
    query = (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
