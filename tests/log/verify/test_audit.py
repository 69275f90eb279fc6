"""Sorting more than is held in memory."""

from __future__ import annotations

import io
import math
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


class CountedReads(io.BytesIO):
    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size)


def test_a_piece_is_read_in_few_large_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read gives many ids, however short they are."""
    monkeypatch.setattr(audit, "PIECE", 2000)
    monkeypatch.setattr(audit, "READ_BYTES_MAX", 4096)
    file = CountedReads()
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: file)
    items = [number.to_bytes(26, "big") for number in range(2000)]
    made = Spill()
    for item in items:
        made.add(item)
    assert list(made) == items
    assert file.reads == math.ceil(2000 * 28 / 4096)
