"""Sorting more than is held in memory."""

from __future__ import annotations

import random

import pytest

from everlog.log.verify import audit
from everlog.log.verify.audit import Spill


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_what_was_added_comes_back_in_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PIECE", 8)
    monkeypatch.setattr(audit, "READ_BYTES_MAX", 37)
    chance = random.Random(count)
    items = [chance.randbytes(chance.randrange(0, 60)) for _ in range(count)]
    made = Spill()
    for item in items:
        made.add(item)
    assert list(made) == sorted(items)
    assert list(made) == sorted(items)  # and once more
    made.close()
