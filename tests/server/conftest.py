"""A server in this process: the application over a log, called without a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.calling import Calls

import everlog
from everlog.server.app import App
from everlog.server.serve import make_app


@pytest.fixture
def app(tmp_path: object) -> Iterator[App]:
    with everlog.open(f"sqlite:{tmp_path}/log.db", actor="user:host") as log:
        made = make_app({"log": log})
        yield made
        made.close()


@pytest.fixture
def calls(app: App) -> Calls:
    """A caller with the role admin and without a limit."""
    return Calls.of(app, "admin", role="admin")


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long forms run."""
    return bool(request.config.getoption("--full"))
