"""A day file of a day to come, as a wrong clock makes it: it does not capture what is written later."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stores.jsonl.own import Clock, day_files, own, texts

from everlog.core.query import Query
from everlog.log.verify.verify import verify
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.filling import positions

DAY_US = 86_400_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(path: Path, clock: Clock) -> JsonlStore:
    """An event of today, one that a wrong clock dated, and one of today again."""
    store = JsonlStore(path, now_us=clock)
    own(store, payload={"text": "today"})
    clock.us += 400 * DAY_US
    own(store, payload={"text": "of the future"})
    clock.us -= 400 * DAY_US
    own(store, payload={"text": "today again"})
    return store


def lines_by_file(path: Path) -> dict[str, int]:
    return {file.name: file.read_bytes().count(b"\n") for file in day_files(path)}


def test_a_write_goes_to_the_file_of_its_day(store: JsonlStore, path: Path, clock: Clock) -> None:
    assert lines_by_file(path) == {"2027-01-15.jsonl": 2, "2028-02-19.jsonl": 1}
    clock.us += DAY_US
    own(store, payload={"text": "tomorrow"})
    assert lines_by_file(path) == {"2027-01-15.jsonl": 2, "2027-01-16.jsonl": 1, "2028-02-19.jsonl": 1}
    assert texts(store) == ["today", "of the future", "today again", "tomorrow"]
    assert store.future_files() == ["2028-02-19.jsonl"]
    clock.us += 500 * DAY_US
    assert store.future_files() == []
    assert verify(store).problems == ()
    store.close()


def test_an_index_from_nothing_keeps_the_order_of_each_stream(store: JsonlStore, path: Path, clock: Clock) -> None:
    """The order of the files is not that of the writes, so the causal order is taken."""
    store.rebuild_index()
    assert texts(store) == ["today", "of the future", "today again"]
    assert [recorded.sequence for recorded in store.read(Query(stream="note/1"))] == [1, 2, 3]
    own(store, payload={"text": "later"})
    assert verify(store).problems == ()
    clock.us += 500 * DAY_US  # the day has come, and the file is one among others
    store.rebuild_index()
    own(store, payload={"text": "much later"})
    assert texts(store) == ["today", "of the future", "today again", "later", "much later"]
    assert verify(store).problems == ()
    store.close()


def test_another_handle_sees_what_is_written_before_the_newest_file(
    store: JsonlStore, path: Path, clock: Clock
) -> None:
    other = JsonlStore(path, now_us=clock)
    for number in range(3):
        own(store, payload={"text": f"one {number}"})
        assert texts(other)[-1] == f"one {number}"
        own(other, payload={"text": f"two {number}"})
        assert texts(store)[-1] == f"two {number}"
    assert positions(store.read()) == list(range(1, 10))
    assert verify(other).problems == ()
    other.close()
    store.close()


@pytest.mark.parametrize("whole", [True, False])
def test_a_writer_that_is_killed_in_todays_file(store: JsonlStore, path: Path, clock: Clock, whole: bool) -> None:
    """Its line is on the disk, or half of it, and not in the index."""
    epoch = store.identity.epoch
    today = path / "events" / "2027-01-15.jsonl"
    kept = today.read_bytes()
    before = (path / "local" / "index.db").read_bytes(), (path / "local" / "index.db-wal").read_bytes()
    own(store, payload={"text": "killed"})
    line = today.read_bytes()[len(kept) :]
    store.close()
    for name, data in zip(("index.db", "index.db-wal"), before, strict=True):
        (path / "local" / name).write_bytes(data)
    (path / "local" / "index.db-shm").unlink(missing_ok=True)
    if not whole:
        today.write_bytes(kept + line[:40])
    again = JsonlStore(path, now_us=clock)
    assert texts(again)[-1] == ("killed" if whole else "today again")
    own(again, payload={"text": "after"})
    assert texts(again)[-2:] == (["killed", "after"] if whole else ["today again", "after"])
    assert verify(again).problems == ()
    assert again.identity.epoch == epoch
    assert lines_by_file(path)["2028-02-19.jsonl"] == 1
    again.close()
