"""Settings of a group: what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from everlog.consumers import Group
from everlog.errors import InvalidField
from everlog.log.log import Log


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"partitions": 5000},
        {"lease_s": 0},
        {"prefetch": 0},
        {"attempts_max": 0},
        {"on_poison": "ignore"},
        {"name": "a/b"},
    ],
)
def test_settings_that_cannot_be_are_refused(memory_log: Log, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        Group(memory_log, **{"name": "mailer", **wrong})
