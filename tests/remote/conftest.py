"""One log in this process or behind a server: the tests that use `log` cannot tell which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remote.serving import AnyLog, Process, Served, catalog, served

import everlog


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Served]:
    """A log behind a server in this process."""
    with (
        everlog.open(f"sqlite:{tmp_path}/behind.db", catalog=catalog, actor="user:host") as log,
        served(log) as found,
    ):
        yield found


@pytest.fixture
def remote(behind: Served) -> Iterator[everlog.RemoteLog]:
    with everlog.connect(behind.url, token=behind.token(), catalog=catalog) as log:
        yield log


@pytest.fixture(params=["memory", "sqlite", "remote"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyLog]:
    """A log in memory, one in a file, and one behind a server."""
    if request.param == "remote":
        yield request.getfixturevalue("remote")
        return
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/log.db"
    with everlog.open(url, catalog=catalog, actor="user:ada") as found:
        yield found


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """A server that can be killed, and a token for it that outlasts it."""
    found = Process(tmp_path)
    yield found
    found.kill()
