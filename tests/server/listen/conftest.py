"""One server as a process, for the tests of a module that do not end it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.running import Running, new_log, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(new_log(tmp_path_factory.mktemp("served"))) as found:
        yield found
