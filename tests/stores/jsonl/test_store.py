"""What is the JSONL store's own business: its files, and the log on top of it."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.stores.jsonl.own import Clock, day_files, own, texts
from tests.support.faults import RecordingFiles
from tests.support.steps import Sync

from everlog.catalog.builtin import BUILT_IN
from everlog.core.codec import header_bytes
from everlog.core.query import Query
from everlog.errors import Busy, Damaged, NewerFormat, NotALog, NotFound
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.stores.jsonl import store as store_module
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import seal_any
from everlog.testing.filling import append, positions

DAY_US = 86_400_000_000


# ---- files


def test_an_append_is_one_write_and_one_flush_before_the_answer() -> None:
    files = RecordingFiles()
    store = JsonlStore(Path("/log"), files=files, index_in_memory=True)
    own(store)
    before = len(files.trace)
    own(store)
    kinds = [type(step).__name__ for step in files.trace[before:]]
    assert [step for step in files.trace[before:] if isinstance(step, Sync)] != []
    assert kinds[:2] == ["Write", "Sync"]
    assert kinds.count("Sync") == 1
    store.close()


def test_a_file_a_utc_day(path: Path) -> None:
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    own(store)
    clock.us += DAY_US
    own(store)
    own(store)
    assert [(file.name, file.read_bytes().count(b"\n")) for file in day_files(path)] == [
        ("2027-01-15.jsonl", 1),
        ("2027-01-16.jsonl", 2),
    ]
    assert positions(store.read()) == [1, 2, 3]
    store.close()


def test_only_a_newline_ends_a_line(path: Path) -> None:
    text = "a\u2028b\u0085c\rd\u2029e\x0bf\x1cg"
    store = JsonlStore(path)
    append(store, seal_any(payload={"text": text}))
    store.close()
    shutil.rmtree(path / "local")
    again = JsonlStore(path)
    assert texts(again) == [text]
    again.close()


def test_files_are_not_open_to_others(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    for file in [path, *path.rglob("*")]:
        mode = stat.S_IMODE(file.stat().st_mode)
        assert mode & 0o027 == 0, (file, oct(mode))
    assert stat.S_IMODE((path / "events").stat().st_mode) == 0o750
    assert stat.S_IMODE(day_files(path)[0].stat().st_mode) == 0o640
    store.close()


@pytest.mark.parametrize("content", [b"", b"{", b'{"value": 1}', b'{"value": "x"}', None])
def test_the_clock_file_is_never_trusted_below_the_log(path: Path, content: bytes | None) -> None:
    """F09."""
    store = JsonlStore(path)
    append(store, seal_any(lamport=41))
    store.close()
    if content is None:
        (path / "clock.json").unlink()
    else:
        (path / "clock.json").write_bytes(content)
    again = JsonlStore(path)
    with again.open_write() as writer:
        assert writer.tick() == 42
    again.close()
    assert json.loads((path / "clock.json").read_bytes())["value"] == 42


def test_a_second_writer_is_told_who_holds_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G13."""
    one, other = JsonlStore(path), JsonlStore(path)
    with one.open_write(), monkeypatch.context() as patched:
        patched.setattr(store_module, "LOCK_TIMEOUT_S", 0.05)
        with pytest.raises(Busy) as refused, other.open_write():
            pass
        assert refused.value.hint
    own(other)
    assert one.head() == 1
    one.close()
    other.close()


def test_a_folder_that_is_no_log_is_refused_and_left_alone(path: Path) -> None:
    with pytest.raises(NotFound):
        JsonlStore(path, create=False)
    assert not path.exists()
    path.mkdir()
    (path / "log.json").write_text('{"log_id": "x", "created_us": 1}')
    with pytest.raises(NotALog):
        JsonlStore(path)
    (path / "log.json").write_text('{"log_id": "x", "created_us": 1, "everlog": "jsonl", "format": 99}')
    with pytest.raises(NewerFormat, match="99"):
        JsonlStore(path)
    (path / "log.json").write_text("{")
    with pytest.raises(Damaged):
        JsonlStore(path)


def test_the_seeds_own_files_become_a_log(path: Path) -> None:
    (path / "events").mkdir(parents=True)
    lines = [
        {
            "event_id": f"01HN3R5K8D1234567890ABCDE{number}",
            "event_type": "WPStatusChanged",
            "event_version": 1,
            "lamport_clock": number,
            "entity_id": "WP03",
            "entity_type": "WorkPackage",
            "timestamp": "2026-01-27T10:30:00Z",
            "actor": "builder",
            "causation_id": None,
            "correlation_id": None,
            "payload": {"new_status": "doing"},
        }
        for number in (1, 2)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "events" / "2026-01-27.jsonl").write_text(text)
    with pytest.raises(NotFound, match="is not a log"):
        JsonlStore(path, create=False)
    store = JsonlStore(path)
    assert positions(store.read(Query(stream="workpackage/WP03"))) == [1, 2]
    own(store)
    report = verify(store)
    assert (report.problems, report.events, store.ends().clock) == ((), 3, 3)
    store.close()
    assert (path / "events" / "2026-01-27.jsonl").read_text() == text


# ---- through the log


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with Log(JsonlStore(path), BUILT_IN, actor="user:ada") as opened:
        yield opened


def test_a_cursor_from_before_a_rebuild_is_reset(log: Log) -> None:
    """G8."""
    log.append("note.added", stream="note/1", payload={"text": "one"})
    cursor = log.page_after(0).next_cursor
    assert log.page_after(cursor).reset is None
    store = log._store
    assert isinstance(store, JsonlStore)
    store.rebuild_index()
    reset = log.page_after(cursor).reset
    assert reset is not None
    assert reset.reason == "restored"


def test_headers_come_back_as_they_were_hashed(log: Log) -> None:
    for text in ("one", "zwei", "\u2028"):
        log.append(
            "note.added", stream="note/1", payload={"text": text}, tags={"b": "é", "a": "1"}, key=text.strip() or "k"
        )
    assert log.verify().problems == ()
    for recorded in log.read():
        assert header_bytes(recorded.event)


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_log_is_opened_while_somebody_writes_but_not_while_the_index_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    """SQLite would keep the journal of the old index under the name that belongs to the new one."""
    monkeypatch.setattr("everlog.stores.jsonl.index.update._LOCK_TIMEOUT_S", 0.05)
    store = JsonlStore(path)
    own(store)
    store.close()
    draft = path / "local" / "index.db.new"
    if made_anew:
        draft.touch()
    lock = DiskFiles().lock(path / "local" / "lock")
    lock.acquire(1)
    try:
        if made_anew:
            with pytest.raises(Busy):
                JsonlStore(path)
        else:
            other = JsonlStore(path)
            assert positions(other.read()) == [1]
            other.close()
    finally:
        lock.release()
        lock.close()
    store = JsonlStore(path)  # whoever has the lock knows that nobody makes it any more
    assert positions(store.read()) == [1]
    assert not draft.exists()
    store.close()


def test_closed_handles_hold_no_file_of_the_log(path: Path) -> None:
    """Nor the file of the views: a folder that is held cannot be removed or unmounted."""
    stores = [JsonlStore(path) for _ in range(2)]
    for number, store in enumerate(stores):
        own(store)
        with store.small_state.change() as change:
            change.put("seen", {str(number): b"1"})
    assert _held(path)
    stores[0].close()
    assert stores[1].small_state.rows("seen", ["0", "1"]).keys() == {"0", "1"}
    stores[1].close()
    assert _held(path) == []


def _held(folder: Path) -> list[Path]:
    """Return the files of a folder that this process has open."""
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of this list is closed by now
            found.append(handle.readlink())
    return [file for file in found if file.is_relative_to(folder)]


def test_a_new_log_has_the_folder_of_its_day_files(path: Path) -> None:
    with closing(JsonlStore(path)):
        assert (path / "events").is_dir()
