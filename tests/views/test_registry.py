"""The views of a log: names, registration, and names that do not exist."""

from __future__ import annotations

import pytest
from tests.views.conftest import Said

from everlog.errors import Conflict, NotFound
from everlog.log.log import Log


def test_two_views_of_one_name_are_refused(log: Log) -> None:
    class Other(Said):
        pass

    log.view(Said)
    with pytest.raises(Conflict):
        log.view(Other)
    with pytest.raises(Conflict):
        log.views.register(Said)


def test_a_name_that_was_not_registered_is_not_found(log: Log) -> None:
    with pytest.raises(NotFound):
        log.view("nothing")
