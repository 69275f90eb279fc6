"""A driver to be killed: brings a lake up to its log once, or follows it.

    python -m tests.pipeline.driver run|stream URL LAKE

It says `started` when Spark is there and `done` when a run is over; what it is doing in between is anybody's guess.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tests.pipeline.shop import SHOP

import everlog
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.run import run
from everlog.pipeline.session.session import open_session
from everlog.pipeline.stream_run import Follower


def main(what: str, url: str, place: Path) -> None:
    spark = open_session(master="local[2]", conf={"spark.driver.memory": "512m"})
    print("started", flush=True)
    with everlog.open(url, catalog=SHOP) as log:
        lake = Lake.open(place, log_id=log.identity.log_id, create=True)
        if what == "run":
            run(SparkEngine(spark), log, url, lake)
        else:
            Follower(spark, log, url, lake, refresh_s=0.5).run(threading.Event())
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
