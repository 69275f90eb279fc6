"""The option --lake, and a Spark session whose temporary files are in the lake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from everlog.cli.session import Session
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.session.session import SparkSession


lake_option = click.option("--lake", metavar="PLACE", help="The lake: a folder, or s3://BUCKET/FOLDER.")


@contextmanager
def spark_beside(
    session: Session, lake: Lake, master: str, conf: Mapping[str, str], *, app: str
) -> Iterator[SparkSession]:
    """Open a Spark session for the length of a command. Its temporary files are in the lake: they hold events too."""
    from everlog.cli.pipeline.group import spark_of

    with ExitStack() as stack:
        if not master or master.startswith("local"):
            conf = {"spark.local.dir": str(stack.enter_context(lake.scratch())), **conf}
        yield stack.enter_context(spark_of(session, master, conf, app=app))
