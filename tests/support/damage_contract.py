"""What a store that keeps files promises where they are damaged: the whole answer, or an error; never a part.

    class TestDamageOfMyStore(DamageContract):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> OpenStore:
            return lambda: MyStore(tmp_path / "log")

        @pytest.fixture
        def place(self, tmp_path: Path) -> Path:
            return tmp_path / "log"

`place` is the file or folder that the store lives in. `tests/damage` does the same to whole logs, with views,
consumers and commands.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import damage

from everlog.core.event import Position
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, EverlogError
from everlog.stores.contract import ReadsPieces, Scanning, Store
from everlog.testing.builders import Chain
from everlog.testing.filling import append

OpenStore = Callable[[], Store]
Read = Callable[[Store], list[int]]

EVENTS = 30


def _positions(query: Query, **how: Any) -> Read:
    return lambda store: [recorded.position for recorded in store.read(query, **how)]


def _pieces(store: Store) -> list[int]:
    assert isinstance(store, ReadsPieces)
    pieces = store.read_pieces(EVERYTHING, after=Position(0), upto=None, limit=None)
    return [recorded.position for piece in pieces for recorded in piece]


def _slabs(store: Store) -> list[int]:
    assert isinstance(store, Scanning)
    return [position for block in store.blocks() for position in block.positions]


READS: dict[str, Read] = {
    "all": _positions(EVERYTHING),
    "backwards": _positions(EVERYTHING, newest_first=True),
    "a type": _positions(Query(types=frozenset(["note.added"]))),
    "a stream": _positions(Query(stream="note/2")),
    "a scope": _positions(Query(scope="acme")),
    "a kind": _positions(Query(kind="note")),
    "a part": _positions(EVERYTHING, after=Position(7), limit=9),
}


class DamageContract:
    @pytest.fixture
    def open_store(self) -> OpenStore:
        raise NotImplementedError("say how to open the store")

    @pytest.fixture
    def place(self) -> Path:
        raise NotImplementedError("say where the store's files are")

    @pytest.fixture
    def filled(self, open_store: OpenStore, place: Path, tmp_path: Path) -> dict[Path, bytes]:
        """The older state of every file of a log that has two thirds of its events by then."""
        chain = Chain()
        older: dict[Path, bytes] = {}
        for part in range(3):
            store = open_store()
            for number in range(EVENTS // 3):
                append(store, chain.next(stream=f"note/{number % 3}", type="note.added", scope="acme/shop"))
            if part == 0:
                with store.open_write() as writer:
                    writer.purge("note/1", actor="user:ada", reason="test")
            store.close()
            if part == 1:
                older = {path: path.read_bytes() for path in _files(place)}
        shutil.copytree(tmp_path, tmp_path.with_name(tmp_path.name + "-whole"))
        return older

    def test_no_read_is_a_part_without_an_error(
        self, open_store: OpenStore, place: Path, filled: dict[Path, bytes], tmp_path: Path
    ) -> None:
        whole = tmp_path.with_name(tmp_path.name + "-whole")
        expected = self._answers(open_store)
        wrong: list[str] = []
        errors = 0
        files = [tmp_path / path.relative_to(whole) for path in _files(whole / place.relative_to(tmp_path))]
        shutil.rmtree(tmp_path)
        shutil.copytree(whole, tmp_path)  # what a reader left beside them is not a part of the log
        for path in files:
            for said, hurt in _damages(path, files, filled).items():
                hurt(path)
                for name, found in self._answers(open_store).items():
                    errors += isinstance(found, EverlogError)
                    if not isinstance(found, EverlogError) and found != expected[name]:
                        if not self.is_known(path, said, found, open_store):
                            wrong.append(f"{path.name} {said}: {name}: {found}")
                    elif isinstance(found, Damaged) and "position" in found.details:
                        assert 0 < found.details["position"] <= found.details["after"], f"{path.name} {said}: {name}"
                shutil.rmtree(tmp_path)
                shutil.copytree(whole, tmp_path)
        assert not wrong, "\n".join(wrong[:20])
        assert errors

    def is_known(self, path: Path, said: str, found: object, open_store: OpenStore) -> bool:
        """Whether docs/why/guarantees.md names this as something that a read does not notice."""
        return False

    def _answers(self, open_store: OpenStore) -> dict[str, list[int] | EverlogError]:
        answers: dict[str, list[int] | EverlogError] = {}
        try:
            store = open_store()
        except EverlogError as error:
            return dict.fromkeys(READS, error)
        try:
            for name, read in _reads_of(store):
                try:
                    answers[name] = read(store)
                except EverlogError as error:
                    answers[name] = error
        finally:
            store.close()
        return answers


def _reads_of(store: Store) -> Iterator[tuple[str, Read]]:
    yield from READS.items()
    if isinstance(store, ReadsPieces):
        yield "pieces", _pieces
    if isinstance(store, Scanning):
        yield "blocks", _slabs


def _files(place: Path) -> list[Path]:
    """The files of a store; a lock holds nothing."""
    found = place.rglob("*") if place.is_dir() else place.parent.glob(place.name + "*")
    return sorted(path for path in found if path.is_file() and "lock" not in path.name)


def _damages(path: Path, files: list[Path], older: dict[Path, bytes]) -> dict[str, damage.Damage]:
    size = path.stat().st_size
    found: dict[str, damage.Damage] = {"deleted": damage.delete, **damage.flips(path, count=8)}
    if size:
        found |= {f"cut at {to}": partial(damage.truncate, to=to) for to in (0, size // 2, size - 1)}
    found |= {said: hurt for said, hurt in damage.additions(path).items() if said.endswith(("garbage", "its end"))}
    if path in older and older[path] != path.read_bytes():
        found["older copy"] = partial(damage.older_copy, content=older[path])
    for other in files:
        if other > path and (other.parent, other.suffix) == (path.parent, path.suffix):
            found[f"exchanged with {other.name}"] = partial(damage.swap, other=other)
            break
    return found
