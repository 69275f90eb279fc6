"""Sorting more than is held in memory, and comparing all ids."""

from __future__ import annotations

import io
import math
import random

import pytest

from everlog.core.event import Position
from everlog.log.verify import spill
from everlog.log.verify.spill import Spill, UniqueIds


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_what_was_added_comes_back_in_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "PIECE", 8)
    monkeypatch.setattr(spill, "READ_BYTES_MAX", 37)
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
    monkeypatch.setattr(spill, "PIECE", 2000)
    monkeypatch.setattr(spill, "READ_BYTES_MAX", 4096)
    file = CountedReads()
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: file)
    items = [number.to_bytes(26, "big") for number in range(2000)]
    made = Spill()
    for item in items:
        made.add(item)
    assert list(made) == items
    assert file.reads == math.ceil(2000 * 28 / 4096)


@pytest.mark.parametrize("piece", [3, 10_000])
@pytest.mark.parametrize("seed", range(40))
def test_every_id_that_is_there_twice_is_found_wherever_it_is(
    seed: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the runs grow; some have an id that was there before, or that is too small, or come out of order."""
    monkeypatch.setattr(spill, "PIECE", piece)
    chance = random.Random(seed)
    ids = UniqueIds()
    first_at: dict[str, int] = {}
    expected, position, number = set(), 1, 1000
    for _ in range(chance.randrange(1, 12)):
        run = []
        for _ in range(chance.randrange(1, 5)):
            number += chance.randrange(1, 5)
            run.append(f"{number:026}")
        if chance.random() < 0.15:
            run.append(chance.choice([*first_at, run[0], f"{chance.randrange(1000):026}"]))
        if chance.random() < 0.1:
            run.reverse()
        ids.add(Position(position), run)
        for one in run:
            if one in first_at:
                expected.add((position, one))
            first_at.setdefault(one, position)
            position += 1
    assert set(ids.twice()) == expected
    ids.close()


def test_no_more_than_a_piece_is_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "PIECE", 8)
    some, ids = Spill(), UniqueIds()
    for number in range(1, 101):
        some.add(number.to_bytes(2, "big"))
        ids.add(Position(number), [f"{number:026}"])
        assert len(some._piece) <= 8
        assert sum(len(run) for _, run in ids._runs) < 8
    assert list(ids.twice()) == []
    ids.add(Position(101), [f"{1:026}"])
    assert list(ids.twice()) == [(101, f"{1:026}")]
    for made in (some, ids):
        made.close()
