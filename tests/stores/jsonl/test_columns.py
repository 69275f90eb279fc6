"""Slabs of lines: runs, holes and lines of other shapes, whatever the size of a block."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from everlog.core.codec import Packed
from everlog.core.event import Position
from everlog.errors import Damaged
from everlog.stores.jsonl import columns
from everlog.stores.jsonl.index.query import Row
from everlog.stores.jsonl.index.read import Lines
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import stamped
from everlog.testing.scan_contract import fill_with_everything, packed


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 30])
def test_small_slabs_hold_what_reading_gives(path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """A purge leaves holes at every place of a block, also as wide as one: what comes behind them is not lost."""
    monkeypatch.setattr(columns, "SLAB_ROWS", rows)
    with closing(JsonlStore(path)) as store:
        fill_with_everything(store)
        stored = {place.position: place for place in store.slots() if isinstance(place, Packed)}
        for after, upto in ((0, None), (7, 60), (30, 31)):
            last = None if upto is None else Position(upto)
            expected = [stored[record.position] for record in store.read(after=Position(after), upto=last)]
            blocks = list(store.blocks(after=Position(after), upto=last))
            assert [each for block in blocks for each in packed(block)] == expected
            assert all(len(block.positions) <= rows for block in blocks)


def test_a_run_is_read_without_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(JsonlStore(path)) as store:
        fill_with_everything(store)
        hole = next(purged.position for purged in store.slots() if not isinstance(purged, Packed))
        looked: list[object] = []
        real = columns._page

        def page(*given: object) -> object:
            looked.append(given[2])
            return real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(columns, "_page", page)
        (block,) = store.blocks(upto=Position(hole - 1))
        assert list(block.positions) == list(range(1, hole))
        assert looked == [hole - 1]  # for what might come behind the last one


def test_a_changed_line_is_never_part_of_a_run(path: Path) -> None:
    """The size and the time of the file are as before, as after a bit that the disk lost."""
    with closing(JsonlStore(path)) as store:
        for number in range(9):
            with store.open_write() as writer:
                made = stamped(writer, store.identity.origin, payload={"text": f"text {number}"})
                writer.append([made], fresh=True)
        (file,) = (path / "events").iterdir()
        times = file.stat()
        file.write_bytes(file.read_bytes().replace(b"text 4", b"text 5"))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        read: list[int] = []
        with pytest.raises(Damaged, match="position 5"):
            for block in store.blocks():
                read += block.positions
        assert read == [1, 2, 3, 4]


def test_lines_that_are_not_what_the_index_says_are_no_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a file is replaced between the look at the index and the look at the lines."""
    with closing(JsonlStore(path)) as store:
        fill_with_everything(store)
        calls: list[int] = []
        real = Lines.span

        def other_lines(lines: Lines, first: Row, last: Row) -> bytes:
            calls.append(1)
            one, other, *rest = real(lines, first, last).split(b"\n")
            return b"\n".join([other, one, *rest] if len(calls) == 1 else [one, other, *rest])

        monkeypatch.setattr(Lines, "span", other_lines)
        (block,) = store.blocks(upto=Position(5))
        found = list(zip(block.positions, block.fields[0], strict=True))
        assert len(calls) == 2
        assert found == [(record.position, record.event.id) for record in store.read(upto=Position(5))]
