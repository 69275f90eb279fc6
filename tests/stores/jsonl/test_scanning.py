"""Slabs of lines: runs, holes and lines of other shapes, whatever the size of a slab."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from everlog.core.codec import Packed
from everlog.core.event import Position
from everlog.stores.jsonl import scanning
from everlog.stores.jsonl.lines import scan_events
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.scan_contract import fill_with_everything, packed


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 30])
def test_small_slabs_hold_what_reading_gives(path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """A purge leaves holes at every place of a slab, also as wide as one: what comes behind them is not lost."""
    monkeypatch.setattr(scanning, "SLAB_ROWS", rows)
    with closing(JsonlStore(path)) as store:
        fill_with_everything(store)
        stored = {place.position: place for place in store.packed() if isinstance(place, Packed)}
        for after, upto in ((0, None), (7, 60), (30, 31)):
            last = None if upto is None else Position(upto)
            expected = [stored[record.position] for record in store.read(after=Position(after), upto=last)]
            slabs = list(store.scan(after=Position(after), upto=last))
            assert [each for slab in slabs for each in packed(slab)] == expected
            assert all(len(slab.positions) <= rows for slab in slabs)


def test_a_run_is_read_without_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(JsonlStore(path)) as store:
        fill_with_everything(store)
        hole = next(purged.position for purged in store.packed() if not isinstance(purged, Packed))
        looked: list[int] = []
        real = scanning._page

        def page(*given: object) -> object:
            looked.append(1)
            return real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(scanning, "_page", page)
        (slab,) = store.scan(upto=Position(hole - 1))
        assert list(slab.positions) == list(range(1, hole))
        assert len(looked) == 1  # for what might come behind the last one


def test_lines_that_are_not_what_the_index_says_are_no_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a file is replaced between the look at the index and the look at the lines."""
    with closing(JsonlStore(path)) as store:
        fill_with_everything(store)
        calls: list[int] = []
        real = scan_events

        def other_lines(data: bytes) -> list[tuple[Any, ...]]:
            calls.append(1)
            first, second, *rest = real(data)
            return [second, first, *rest] if len(calls) == 1 else [first, second, *rest]

        monkeypatch.setattr(scanning, "scan_events", other_lines)
        (slab,) = store.scan(upto=Position(5))
        found = list(zip(slab.positions, slab.fields[0], strict=True))
        assert found == [(record.position, record.event.id) for record in store.read(upto=Position(5))]
        assert len(calls) == 2
