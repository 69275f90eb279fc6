"""A fold on a cluster, for a test that kills a worker of it: says how far it is, and at the end what it derived."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from everlog.catalog.builtin import BUILT_IN
from everlog.core.event import Event
from everlog.pipeline.fold.fold import fold_view
from everlog.pipeline.fold.sorted_fold import ROW
from everlog.pipeline.session.progress import Status, watched
from everlog.pipeline.session.session import opened_session
from everlog.views.builtin import Streams
from everlog.views.view import digest_of_bytes


class Slow(Streams):
    """Slow enough to be killed in the middle."""

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        time.sleep(0.003)
        return super().apply(state, event)


def tell(status: Status) -> None:
    print(json.dumps(status._asdict()), flush=True)


def main(master: str, url: str) -> None:
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        # Who is killed here does not come back: asking three times for its files, 5 s apart, is only waiting.
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "100ms",
    }
    with opened_session(master=master, conf=conf, app="everlog cluster test") as spark:
        events = spark.read.format("everlog").option("url", url).option("placeEvents", "300").load()
        folded = fold_view(events, Slow(), BUILT_IN, partitions=12)
        states: dict[str, bytes] = {}
        with watched(spark, tell):
            # All partitions in one job, so that tasks of both workers are under way when one is killed.
            for row in folded.where(f"what = '{ROW}'").select("key", "state").collect():
                assert row["key"] not in states, "a key came twice"
                states[row["key"]] = row["state"].encode()
    print(json.dumps({"digest": digest_of_bytes(sorted(states.items())), "keys": len(states)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
