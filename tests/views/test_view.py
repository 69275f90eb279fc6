"""A view that cannot run is refused, with what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.views.conftest import Said

from everlog.errors import InvalidField
from everlog.log.log import Log


@pytest.mark.parametrize(
    "fields", [{"name": ""}, {"name": "With Spaces"}, {"version": 0}, {"types": "thing.said"}, {"types": (1,)}]
)
def test_a_view_that_cannot_be_run_is_refused(log: Log, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        log.view(type("Broken", (Said,), fields))
