"""Every file of a segments log, damaged in every way, met by every way of reading: the whole answer, or `Damaged`.

The short form takes some of the damages of each file, the long form (--full) all of them and many more flipped bits.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.damage import Damage, additions, cuts, flip, flips, older_copy, swap, truncate

from everlog.core.codec import Packed
from everlog.core.event import START, Position, Recorded
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import Damaged, EverlogError
from everlog.log.verify.verify import verify
from everlog.stores import staged_group
from everlog.stores.segments import writer
from everlog.stores.segments.format.archive_source import zstd
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import put_claim, put_note, stamped
from everlog.testing.filling import CLAIMED

TYPES = ("note.added", "issue.opened", "issue.commented")
QUERIES = {
    "all": Query(),
    "a stream": Query(stream="note/1"),
    "a type": Query(types=frozenset({"issue.opened"})),
    "a scope": Query(scope="acme"),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_group, "GROUP_MAX", 4)
    monkeypatch.setattr(live_part, "BLOCK_POSITIONS", 4)
    monkeypatch.setattr(live_part, "PART_EVENTS_MAX", 40)
    monkeypatch.setattr(writer, "PART_EVENTS_MIN", 1)
    monkeypatch.setattr(writer, "SPACE_AFTER_FRAMES", 2)


def opened(path: Path) -> SegmentsStore:
    return SegmentsStore(path, segment_bytes_max=4000, space_bytes=600)


def add(store: SegmentsStore, *sizes: int) -> None:
    """A write for each size, with so many events."""
    for size in sizes:
        with store.open_write() as writer:
            for n in range(size):
                number = store.head() + n
                writer.append(
                    [
                        stamped(
                            writer,
                            store.identity.origin,
                            type=TYPES[number % 3],
                            stream=f"note/{number % 4}",
                            scope=("", "acme", "acme/shop")[number % 3],
                            payload={"n": number, "text": "x" * (number % 50)},
                        )
                    ]
                )
            put_note(writer, f"note {store.head()}", "kept")
            if size == 2:
                put_claim(writer, CLAIMED, Position(store.head() + 1), 2)


class Whole:
    """A log with everything: packed segments, one that a purge wrote anew, plain ones, a live one, index files."""

    def __init__(self, path: Path, *, closed: bool) -> None:
        self.path = path
        self.earlier: dict[Path, bytes] = {}
        store = opened(path)
        add(store, 1, 2, 12, 1, 3, 1, 1, 9, 1, 1)
        store.archive(days=0)
        with store.open_write() as writer:
            writer.purge("note/3", actor="user:ada", reason="asked to")
        store.close()
        self._remember()
        store = opened(path)
        add(store, 8, 1, 2, 5, 1, 1, 1)
        store.archive(days=0)
        add(store, 2, 2, 1, 6)
        self._remember()
        add(store, 12, 3, 1, 2, 1, 1)
        if closed:
            store.close()
        else:  # as after a kill: nothing more is written
            assert store._writer is not None
            store._writer.abandon()
            store._lock.close()
        fresh = opened(path)
        self.head = fresh.head()
        self.events = list(fresh.read())
        self.sequences = {f"note/{n}": fresh._sequence(f"note/{n}") for n in range(4)}
        self.link = fresh.state.chain(fresh.identity.origin).end
        self.places = list(fresh.slots())
        assert list(fresh.check()) == []
        fresh.close()

    def _remember(self) -> None:
        for file in self.files():
            self.earlier.setdefault(file, (self.path / file).read_bytes())

    def files(self) -> list[Path]:
        return sorted(
            path.relative_to(self.path)
            for path in self.path.rglob("*")
            if path.is_file() and not path.name.startswith("lock")
        )

    def damages(self, file: Path, *, many: bool) -> dict[str, Damage]:
        path = self.path / file
        found = {**cuts(path, at=self.frame_ends(file)), **additions(path), **flips(path, count=150 if many else 25)}
        if file in self.earlier and self.earlier[file] != path.read_bytes():
            found["an older copy"] = partial(older_copy, content=self.earlier[file])
        for other in self.files():
            if other.suffix == file.suffix and other != file:
                found[f"swapped with {other}"] = lambda at, other=other: swap(at, _beside(at, file, other))  # type: ignore[misc]
        if many:
            return found
        always, chance = ("deleted", "older", "cut at 0"), random.Random(str(file))
        swaps = [name for name in found if name.startswith("swapped")]
        rare = [name for name in found if not name.startswith((*always, "swapped"))]
        chosen = {*chance.sample(rare, min(4, len(rare))), *chance.sample(swaps, min(2, len(swaps)))}
        return {name: damage for name, damage in found.items() if name in chosen or name.startswith(always)}

    def frame_ends(self, file: Path) -> tuple[int, ...]:
        """Where some frames end: a cut there leaves a good, shorter file."""
        store = opened(self.path)
        ends = [
            offset
            for segment in store.state.segments
            if file.name == f"{segment.number:08}.seg"
            for part in segment.parts
            for offset in part.offsets
        ]
        store.close()
        return tuple(ends[:: max(1, len(ends) // 5)])


def _beside(at: Path, file: Path, other: Path) -> Path:
    return Path(str(at).removesuffix(str(file))) / other


@pytest.fixture(scope="module", params=["closed", "killed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    with pytest.MonkeyPatch.context() as patch:
        small_pieces.__wrapped__(patch)  # type: ignore[attr-defined]
        yield Whole(tmp_path_factory.mktemp("whole") / "log", closed=request.param == "closed")


def delivered(give: Callable[[], Iterator[Any]]) -> tuple[list[Any], Damaged | None]:
    """What a way of reading gives, until it stops."""
    found: list[Any] = []
    try:
        for one in give():
            found += [one]
    except Damaged as error:
        stopped: Damaged | None = error
    else:
        stopped = None
    if stopped is not None:
        assert {"position", "after", "file"} <= set(stopped.details), stopped.details
        assert stopped.details["after"] >= stopped.details["position"] > 0
    return found, stopped


def flat(pieces: Iterator[list[Recorded]]) -> Iterator[Recorded]:
    for piece in pieces:
        yield from piece


def require_right_or_damaged(store: SegmentsStore, whole: Whole) -> bool:
    """Every way of reading gives all of it or stops; True if one stopped."""
    stopped = False
    for query in QUERIES.values():
        expected = [record for record in whole.events if query.matches(record)]
        for give in (
            lambda query=query: store.read(query),
            lambda query=query: flat(store.read_pieces(query)),
            lambda query=query: store.read(query, upto=store.head()),
        ):
            found, error = delivered(give)
            stopped |= error is not None
            assert found == expected[: len(found)]
            if error is None:
                assert found == expected
            else:
                before = [record for record in expected if record.position < error.details["position"]]
                assert found == before
        found, error = delivered(lambda query=query: store.read(query, newest_first=True))  # type: ignore[misc]
        assert found == expected[::-1][: len(found)]
        assert error is not None or len(found) == len(expected)
        if error is not None:
            behind = [record for record in expected if record.position > error.details["after"]]
            assert found[: len(behind)] == behind[::-1]
    blocks, error = delivered(store.blocks)
    scanned = [position for block in blocks for position in block.positions]
    limit = whole.head + 1 if error is None else error.details["position"]
    assert scanned == [record.position for record in whole.events if record.position < limit]
    require_ids(store, whole)
    return stopped | require_rest(store, whole)


def require_ids(store: SegmentsStore, whole: Whole) -> None:
    for record in whole.events[::5]:
        found, error = delivered(lambda id=record.event.id: iter([store.get(id)]))  # type: ignore[misc]
        assert error is not None or found == [record]
    nobody = EventId("01M0000000ZZZZZZZZZZZZZZZZ")
    found, error = delivered(lambda: iter([store.get(nobody)]))
    assert error is not None or found == [None]


def require_rest(store: SegmentsStore, whole: Whole) -> bool:
    """Who goes on after each damage gets everything that is readable; verify counts what is not."""
    after, got, lost, times = START, list[Recorded](), set[int](), 0
    while True:
        found, error = delivered(lambda after=after: store.read(after=after))  # type: ignore[misc]
        got += found
        if error is None:
            break
        assert error.details["after"] > after, "it does not lead on"
        lost |= set(range(error.details["position"], error.details["after"] + 1))
        after = Position(error.details["after"])
        times += 1
    assert got == [record for record in whole.events if record.position not in lost]
    packed = [place for place in store.slots() if isinstance(place, Packed)]
    assert packed == [place for place in whole.places if isinstance(place, Packed) and place.position not in lost]
    assert not lost or not verify(store).ok
    return times > 0


def require_no_overwriting(path: Path, whole: Whole) -> None:
    """A writer is refused, or adds to what is there (G10)."""
    before = {file: (path / file).read_bytes() for file in whole.files() if (path / file).exists()}
    store = opened(path)
    try:
        with store.open_write() as writer:
            assert {stream: writer.sequence(stream) for stream in whole.sequences} == whole.sequences
            assert writer.link(store.identity.origin) == whole.link
            writer.append([stamped(writer, store.identity.origin, stream="note/new")])
    except Damaged:
        after = {file: (path / file).read_bytes() for file in whole.files() if (path / file).exists()}
        assert {file for file in before if before[file] != after.get(file)} <= {Path("log.json")}
        return
    finally:
        store.close()
    again = opened(path)
    assert again.head() == whole.head + 1
    found, error = delivered(again.read)
    assert error is not None or found[:-1] == whole.events
    again.close()


def meet(whole: Whole, path: Path, file: Path, name: str, damage: Damage) -> str:
    """What becomes of a copy of the log with this damage."""
    shutil.copytree(whole.path, path)
    before = opened(path)
    assert before.head() == whole.head
    damage(path / file)
    try:
        require_right_or_damaged(before, whole)
    finally:
        before.close()
    try:
        fresh = opened(path)
    except Damaged:
        return "refused"
    try:
        stopped = require_right_or_damaged(fresh, whole)
    finally:
        fresh.close()
    require_no_overwriting(path, whole)
    return "stopped" if stopped else "right"


def test_no_damage_to_any_file_gives_less_than_there_was_without_an_error(
    whole: Whole, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    many = bool(pytestconfig.getoption("--full"))
    met: dict[str, int] = {}
    wrong: list[str] = []
    for file in whole.files():
        for number, (name, damage) in enumerate(whole.damages(file, many=many).items()):
            path = tmp_path / f"{file.name}-{number}"
            try:
                became = meet(whole, path, file, name, damage)
            except BaseException as error:
                became = "wrong"
                wrong.append(f"{file} {name}: {type(error).__name__} {str(error)[:300]}")
            met[became] = met.get(became, 0) + 1
            shutil.rmtree(path)
    print(met)
    assert wrong == [], f"{len(wrong)} wrong, {met}\n" + "\n".join(wrong[:40])
    assert met["stopped"] > 20
    assert met["right"] > 20


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_purge_that_would_write_a_damaged_segment_anew_is_refused_and_leaves_it(
    whole: Whole, tmp_path: Path, packed: bool, cut: bool
) -> None:
    """What cannot be read of it would be gone for good."""
    path = tmp_path / "log"
    shutil.copytree(whole.path, path)
    file = path / "segments" / ("00000002.seg.zst" if packed else "00000004.seg")
    store = opened(path)
    with store.open_write():
        pass  # it is the writer, and has looked at everything, before the damage
    truncate(file, to=file.stat().st_size - 200) if cut else flip(file, at=file.stat().st_size - 300, bit=3)
    before = {one: (path / one).read_bytes() for one in whole.files()}
    with pytest.raises(Damaged), store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    assert {one: (path / one).read_bytes() for one in whole.files()} == before
    assert len(store.purges()) == 1
    store.close()


def test_a_segment_that_is_removed_under_its_writer_is_told_as_damage(whole: Whole, tmp_path: Path) -> None:
    path = tmp_path / "log"
    shutil.copytree(whole.path, path)
    store = opened(path)
    with store.open_write():
        pass
    (path / "segments" / "00000004.seg").unlink()
    with pytest.raises(Damaged), store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    found, error = delivered(store.read)
    assert error is not None
    assert error.details["file"] == "segments/00000004.seg"
    assert found == [record for record in whole.events if record.position < error.details["position"]]
    store.close()


# ---- what the system refuses


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EINVAL])
@pytest.mark.parametrize("call", ["open", "pread", "pwrite", "ftruncate"])
def test_errors_of_the_system_become_errors_of_everlog(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "log"
    shutil.copytree(whole.path, path)
    store = opened(path)

    def fail(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        for use in (
            lambda: list(store.read()),
            lambda: list(store.blocks()),
            lambda: list(store.slots()),
            lambda: store.get(whole.events[0].event.id),
            lambda: list(store.check()),
            lambda: add(store, 1),
        ):
            try:
                use()
            except EverlogError as error:
                assert error.why, error  # noqa: PT017 - whatever else is raised is the failure
    store.close()
    again = opened(path)
    assert list(again.read())[: len(whole.events)] == whole.events
    again.close()


# ---- packed segments that lie about their size


def test_a_member_that_unpacks_to_more_than_it_says_is_damage_and_takes_no_memory(
    whole: Whole, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    shutil.copytree(whole.path, path)
    file = path / "segments" / "00000001.seg.zst"
    content = file.read_bytes()
    bomb = zstd.compress(bytes(100 * 2**20))
    head = bytearray(content[:16])
    head[8:12] = struct.pack("<I", len(bomb))
    file.write_bytes(bytes(head) + bomb)
    tracemalloc.start()
    store = opened(path)
    found, error = delivered(store.read)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error is not None
    assert (found, error.details["position"], error.details["file"]) == ([], 1, "segments/00000001.seg.zst")
    assert peak < 20 * 2**20
    store.close()


@pytest.mark.parametrize("field", [8, 12])
@pytest.mark.parametrize("value", [0, 1, 2**18 + 1, 2**31, 2**32 - 1])
def test_a_member_that_says_an_impossible_size_is_damage(
    whole: Whole, tmp_path: Path, field: int, value: int
) -> None:
    path = tmp_path / "log"
    shutil.copytree(whole.path, path)
    file = path / "segments" / "00000001.seg.zst"
    content = bytearray(file.read_bytes())
    content[field : field + 4] = struct.pack("<I", value)
    file.write_bytes(content)
    store = opened(path)
    found, error = delivered(store.read)
    assert error is not None
    assert (found, error.details["position"]) == ([], 1)
    assert next(problem.code for problem in store.check()) in ("segment_unreadable", "segment_head_damaged")
    store.close()
