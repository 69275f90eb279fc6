"""Keys of requests survive what happens to the files and to the index: no retry is recorded twice, and none is
answered with the events of somebody else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from everlog import Draft
from everlog.catalog.builtin import BUILT_IN
from everlog.log.log import Log
from everlog.stores.jsonl.index import changes
from everlog.stores.jsonl.merge import merge_day_files
from everlog.stores.jsonl.store import JsonlStore


class Clock:
    """One day, so that both clones write to one file."""

    def __call__(self) -> int:
        return 1_800_000_000_000_000


def opened(path: Path) -> Log:
    return Log(JsonlStore(path, now_us=Clock()), BUILT_IN, actor="user:ada", now_us=Clock())


def note(log: Log, stream: str, text: str, key: str = "") -> None:
    log.append("note.added", stream=stream, payload={"text": text}, key=key)


def texts(log: Log, stream: str) -> list[str]:
    return [recorded.event.payload["text"] for recorded in log.read(stream=stream)]


BATCH = [Draft(type="note.added", stream="note/a", payload={"text": str(number)}) for number in range(3)]
MORE = [Draft(type="note.added", stream="note/more", payload={"text": str(number)}) for number in range(2)]


@pytest.mark.parametrize("piece", [1 << 20, 700])
def test_a_batch_keeps_its_key_when_lines_of_others_came_in_between_and_the_index_was_made_anew(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "PIECE_BYTES", piece)
    ours = opened(tmp_path / "a")
    note(ours, "note/0", "x")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "local")
    theirs = opened(tmp_path / "b")
    made = [recorded.event.id for recorded in ours.append_batch(BATCH, key="k1")]
    more = [recorded.event.id for recorded in ours.append_batch(MORE, key="k2")]
    for number in range(6):
        note(theirs, "note/b", str(number))
    ours.close()
    theirs.close()
    (file,) = (tmp_path / "a" / "events").iterdir()
    other = tmp_path / "b" / "events" / file.name
    file.write_bytes(merge_day_files(file.name, file.read_bytes(), other.read_bytes()))
    for path in (tmp_path / "a" / "local").glob("index.db*"):
        path.unlink()

    again = opened(tmp_path / "a")
    streams = [recorded.event.stream for recorded in again.read()]
    assert sorted(streams) == ["note/0", *["note/a"] * 3, *["note/b"] * 6, *["note/more"] * 2]
    assert [recorded.event.id for recorded in again.append_batch(BATCH, key="k1")] == made
    assert [recorded.event.id for recorded in again.append_batch(MORE, key="k2")] == more
    assert (texts(again, "note/a"), texts(again, "note/b")) == (["0", "1", "2"], list("012345"))
    assert again.verify().problems == ()
    again.close()


def test_a_request_that_lost_an_event_does_not_take_the_lines_of_others_out_of_their_order(tmp_path: Path) -> None:
    ours = opened(tmp_path / "a")
    ours.append_batch(BATCH, key="k1")
    note(ours, "note/b", "after")
    ours.close()
    (file,) = (tmp_path / "a" / "events").iterdir()
    merged = merge_day_files(file.name, file.read_bytes(), b"")
    first, _, third, after = merged.splitlines(keepends=True)
    file.write_bytes(first + third + after)
    for path in (tmp_path / "a" / "local").glob("index.db*"):
        path.unlink()
    again = opened(tmp_path / "a")
    assert [recorded.event.payload["text"] for recorded in again.read()] == ["0", "2", "after"]
    again.close()


def test_going_on_without_what_is_lost_forgets_no_key(tmp_path: Path) -> None:
    log = opened(tmp_path / "a")
    note(log, "note/pay", "pay", key="k1")
    note(log, "note/x", "lost")
    log.close()
    (file,) = (tmp_path / "a" / "events").iterdir()
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    origins = set()
    for _ in range(2):  # the second time it is not the last origin, but the one before
        store = JsonlStore(tmp_path / "a", now_us=Clock())
        origins.add(store.identity.origin)
        assert store.rebuild_index(accept_missing=True) >= 1
        store.close()
        log = opened(tmp_path / "a")
        note(log, "note/pay", "pay", key="k1")
        assert texts(log, "note/pay") == ["pay"]
        note(log, "note/x", "more")
        log.close()
        kept = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(kept[:-1]))
    assert len(origins) == 2
