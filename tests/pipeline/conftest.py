"""One Spark session for all of these tests. Under xdist one process runs them all, so that there is one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the group
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the run: this machine, as the commands start it."""
    from everlog.pipeline.session import open_session

    session = open_session(master="local[2]", app="everlog tests")
    yield session
    session.stop()
