"""An open write that is undone in part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everlog.errors import LogClosed, Unavailable
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.open_write import OpenWrite
from everlog.stores.postgres.store import PostgresStore
from everlog.stores.small_state import read_note
from everlog.testing.builders import Chain, put_claim, put_note, stamped


def test_an_error_of_the_store_within_an_append_reaches_the_caller_and_all_of_the_attempt_is_undone(
    kind: str, make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, new = make_log(kind), Chain().next(stream="thing/1")
    ends = log._store.ends

    def fail(**asked: Any) -> Any:
        if asked.get("streams"):
            raise Unavailable("the disk is away")
        return ends(**asked)

    def work(write: OpenWrite) -> None:
        with monkeypatch.context() as patched, pytest.raises(Unavailable, match="the disk is away"), write.attempt():
            put_note(write, "kept/x", "1")
            patched.setattr(log._store, "ends", fail)
            write.append([new])
        assert not write.dirty
        assert [recorded.sequence for recorded in write.append([new])] == [1]

    log.writer.write(work)
    assert log.head() == 1


class Stop(Exception):
    pass


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments", "postgres"])
def test_a_handle_goes_on_as_before_after_a_write_that_was_undone_whole(
    kind: str, make_log: Callable[..., Log], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What it had in memory of streams, keys and its chain is that of the log again, not that of the undone write."""
    if kind == "postgres":
        url, catalog = request.getfixturevalue("postgres_schemas").new(), request.getfixturevalue("catalog")
        logs = [Log(PostgresStore(url), catalog) for _ in range(2)]
    else:
        logs = [make_log(kind, tmp_path / "log") for _ in range(2 if kind in ("sqlite", "jsonl") else 1)]
    first, last = logs[0], logs[-1]
    made = [first.append("thing.said", stream=f"thing/{n % 2}", key=f"key-{n}") for n in range(4)]
    for turn, (log, other) in enumerate([(first, last), (last, first), (first, last)]):
        head = log.head()

        def fail(write: OpenWrite, log: Log = log) -> None:
            new = stamped(write, log.identity.origin, type="thing.said", stream="thing/0", payload={"value": 1})
            (staged,) = write.append([new], fresh=True)
            put_note(write, "undone/x", "1")
            put_claim(write, b"u" * 16, staged.position, 1)
            raise Stop

        with pytest.raises(Stop):
            log.writer.write(fail)
        assert (log.head(), other.head()) == (head, head)
        for one in (log, other):
            assert read_note(one._store.small_state, "undone/x") is None
            assert not one._store.small_state.claims([b"u" * 16])
            again = one.append("thing.said", stream="thing/1", key="key-1")
            assert (again.position, again.event.id) == (made[1].position, made[1].event.id)
        done = log.append("thing.said", stream="thing/0", expect=2 + 2 * turn)
        assert (done.sequence, done.position) == (3 + 2 * turn, head + 1)
        assert other.append("thing.said", stream="thing/0", expect=3 + 2 * turn).sequence == 4 + 2 * turn
        assert log.verify().ok
    for log in logs:
        log.close()


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_a_log_that_was_closed_is_not_checked_and_leaves_no_file_open(
    kind: str, make_log: Callable[..., Log], tmp_path: Path
) -> None:
    log = make_log(kind, tmp_path / "log")
    for number in range(3):
        log.append("thing.said", stream=f"thing/{number}")

    def look() -> int:
        for recorded in log.read():
            assert log.get(recorded.event.id) == recorded
        assert list(log.read(newest_first=True))
        assert list(log._store.slots())
        return len(list(Path("/proc/self/fd").iterdir()))

    first = look()
    assert [look() for _ in range(3)] == [first] * 3
    log.close()
    with pytest.raises(LogClosed):
        list(log._store.check())


def test_a_dry_run_says_that_it_is_one_and_writes_nothing(kind: str, make_log: Callable[..., Log]) -> None:
    log = make_log(kind)
    asked = [Draft("thing.said", "thing/1")]
    assert log.writer.commit(asked, dry_run=True).dry_run
    assert log.head() == 0
    assert not log.writer.commit(asked).dry_run
    assert log.head() == 1
