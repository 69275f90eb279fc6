"""Lines that cannot be read, and an index that is gone, behind or damaged."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from tests.stores.jsonl.own import Clock, codes, day_files, own, texts

from everlog.core.event import Position
from everlog.core.query import Query
from everlog.errors import Damaged
from everlog.log.verify.verify import verify
from everlog.stores.jsonl.index import changes
from everlog.stores.jsonl.lines import ended
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import seal_any, stamped
from everlog.testing.filling import append, positions

DAY_US = 86_400_000_000


# ---- damage


def test_a_line_that_cannot_be_read_is_set_aside_and_named(path: Path) -> None:
    """G10: with its file, its number and the reason; the rest is read, nothing is written over it."""
    store = JsonlStore(path)
    for text in ("one", "two", "three"):
        own(store, payload={"text": text})
    (file,) = day_files(path)
    good = file.read_bytes()
    first, second, third = good.splitlines(keepends=True)
    damaged = first + second.replace(b"two", b"TWO") + third
    file.write_bytes(damaged)

    with pytest.raises(Damaged) as stopped:
        texts(store)
    assert (stopped.value.details["position"], stopped.value.details["after"]) == (2, 2)
    assert positions(store.read(after=Position(2))) == [3]
    report = verify(store)
    reasons = [problem.reason for problem in report.problems if problem.code == "line_unreadable"]
    assert reasons == [f"events/{file.name} line 2: its checksum does not match: the disk or an editor changed it"]
    other = JsonlStore(path)
    assert [[problem.reason for problem in handle.bad_lines()] for handle in (store, other)] == [reasons, reasons]
    other.close()
    with pytest.raises(Damaged, match="takes no writes"):
        own(store)
    assert file.read_bytes() == damaged

    file.write_bytes(good)  # mended: everything is where it was
    assert texts(store) == ["one", "two", "three"]
    own(store)
    assert (positions(store.read()), list(store.check()), store.bad_lines()) == ([1, 2, 3, 4], [], [])
    store.close()


@pytest.mark.parametrize("change", ["the line", "the line and its checksum"])
def test_a_changed_line_is_found_although_its_file_looks_unchanged(path: Path, change: str) -> None:
    """As on a disk that fails: neither the size nor the time of the file shows it, so no reader looks again."""
    store = JsonlStore(path)
    for text in ("one", "two", "three"):
        own(store, payload={"text": text})
    assert list(store.check()) == []
    (file,) = day_files(path)
    before = file.stat()
    first, second, third = file.read_bytes().splitlines(keepends=True)
    changed = second.replace(b"two", b"TWO")
    if change != "the line":
        changed = ended(changed[: changed.rindex(b',"xsum"')] + b"}")
    with file.open("r+b") as same:  # in place: the inode stays
        same.write(first + changed + third)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    if change == "the line":
        assert [(problem.position, problem.code) for problem in store.check()] == [(2, "line_unreadable")]
    else:  # the next event has the hash of the line as it was
        assert (3, "chain_broken") in [(problem.position, problem.code) for problem in verify(store).problems]
    store.close()


def test_conflict_markers_are_refused_with_their_line(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    (file,) = day_files(path)
    file.write_bytes(b"<<<<<<< HEAD\n" + file.read_bytes() + b"=======\n>>>>>>> theirs\n")
    with pytest.raises(Damaged, match="conflict markers of git") as stopped:
        list(store.read())
    details = stopped.value.details
    assert (details["position"], details["after"], details["line"]) == (2, 4, 1)
    assert details["file"] == f"events/{file.name}"
    assert positions(store.read(upto=Position(1))) == [1]
    told = [problem.reason for problem in store.check() if problem.code == "conflict_marker"]
    assert [reason.partition(":")[0] for reason in told] == [f"events/{file.name} line {n}" for n in (1, 3, 4)]
    assert all("delete this line" in reason for reason in told)
    with pytest.raises(Damaged, match="conflict markers of git") as refused:
        own(store)
    assert refused.value.why.endswith("they are in lines 1, 3, 4")
    assert refused.value.details["lines"] == [1, 3, 4]
    assert "<<<<<<<, |||||||, ======= or >>>>>>>" in refused.value.hint
    kept = [line for n, line in enumerate(file.read_bytes().splitlines(keepends=True), 1) if n not in (1, 3, 4)]
    file.write_bytes(b"".join(kept))  # as the hint says
    own(store)
    assert (positions(store.read()), list(store.check())) == ([1, 2], [])
    store.close()


def test_a_line_that_cannot_be_read_is_told_before_conflict_markers(path: Path) -> None:
    """To delete the markers is not enough then."""
    store = JsonlStore(path)
    own(store, payload={"text": "one"})
    (file,) = day_files(path)
    file.write_bytes(b"<<<<<<< HEAD\n" + file.read_bytes().replace(b"one", b"ONE"))
    with pytest.raises(Damaged, match="is damaged") as refused:
        own(store)
    assert refused.value.why.startswith("line 2: its checksum does not match")
    store.close()


def test_a_torn_tail_is_cut_and_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = JsonlStore(path)
    own(store)
    store.close()
    (file,) = day_files(path)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:50])
    again = JsonlStore(path)
    with caplog.at_level(logging.WARNING, "everlog"):
        own(again)
    assert "cut 50 bytes" in caplog.text
    assert file.read_bytes().count(b"\n") == 2
    assert (positions(again.read()), list(again.check())) == ([1, 2], [])
    again.close()


def test_events_that_vanish_stop_the_writing_until_they_are_back(path: Path) -> None:
    """F04: a file that is gone or empty is never taken for an empty log."""
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    own(store)
    clock.us += DAY_US
    own(store)
    _, second = day_files(path)
    kept = second.read_bytes()
    second.unlink()

    assert (positions(store.read(upto=Position(1))), store.head()) == ([1], 2)
    with pytest.raises(Damaged):
        list(store.read())
    assert codes(store) == ["log_cut_off"]
    with pytest.raises(Damaged, match="in no file any more"):
        own(store)
    second.write_bytes(b"")
    with pytest.raises(Damaged, match="in no file any more"):
        own(store)
    second.write_bytes(kept)
    own(store)
    assert (positions(store.read()), list(store.check())) == ([1, 2, 3], [])
    store.close()


def test_going_on_without_what_is_lost_makes_a_new_origin(path: Path) -> None:
    """F11: the numbers of the lost events are never given out again."""
    store = JsonlStore(path)
    own(store)
    own(store)
    before = store.identity
    (file,) = day_files(path)
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    assert store.head() == 2
    with pytest.raises(Damaged):
        store.rebuild_index()
    assert store.rebuild_index(accept_missing=True) == 1
    assert store.identity.origin != before.origin
    assert store.identity.epoch != before.epoch
    own(store)
    assert (positions(store.read()), verify(store).problems) == ([1, 2], ())
    store.close()


def test_a_file_of_another_name_is_told(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    (path / "events" / "old.jsonl").write_text("{}\n")
    assert codes(store) == ["foreign_file"]
    store.close()


# ---- the index


@pytest.mark.parametrize(
    ("change", "place", "reason"),
    [
        ("UPDATE events SET at = at + 1 WHERE position = 2", 2, "event {} is not where the index has it"),
        ("UPDATE events SET at = at + 100000 WHERE position = 2", 2, "event {} is not where the index has it"),
        ("DELETE FROM events WHERE position = 2", 0, "events/{} line 2: event {} is not in the index"),
    ],
)
def test_a_row_of_the_index_without_its_line_and_a_line_without_its_row_are_reported_until_a_rebuild(
    path: Path, change: str, place: int, reason: str
) -> None:
    store, other = JsonlStore(path), JsonlStore(path)
    for text in ("one", "two", "three"):
        own(store, payload={"text": text})
    second = next(store.read(after=Position(1))).event.id
    store._updater.index.connection.execute(change)
    names = (second,) if place else (day_files(path)[0].name, second)
    for handle in (store, other):
        found = [
            (problem.position, problem.reason) for problem in handle.check() if problem.code == "index_disagrees"
        ]
        assert found == [(place, reason.format(*names))]
    store.rebuild_index()
    assert [list(handle.check()) for handle in (store, other)] == [[], []]
    assert texts(other) == ["one", "two", "three"]
    store.close()
    other.close()


def test_an_index_that_is_gone_or_damaged_is_made_anew(path: Path) -> None:
    store = JsonlStore(path)
    for number in range(3):
        own(store, stream=f"note/{number % 2}")
    epoch = store.identity.epoch
    store.close()
    index = path / "local" / "index.db"
    for spoil in (index.unlink, lambda: index.write_bytes(b"garbage" * 1000), lambda: index.write_bytes(b"")):
        spoil()
        again = JsonlStore(path)
        assert positions(again.read(Query(stream="note/0"))) == [1, 3]
        assert again.identity.epoch != epoch  # positions may have changed: cursors are told (G8)
        epoch = again.identity.epoch
        own(again, stream="note/9")
        assert list(again.check()) == []
        with again.open_write() as writer:
            writer.purge("note/9", actor="user:ada", reason="asked to")
        again.close()


def test_an_index_that_a_power_cut_took_back_catches_up_without_a_new_epoch(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    epoch = store.identity.epoch
    store.close()
    shutil.copy(path / "local" / "index.db", path / "old")
    store = JsonlStore(path)
    append(store, *[seal_any(payload={"text": str(number)}) for number in range(5)])
    before = list(store.read())
    store.close()
    shutil.copy(path / "old", path / "local" / "index.db")

    again = JsonlStore(path)
    assert list(again.read()) == before
    assert again.identity.epoch == epoch
    again.close()


@pytest.mark.parametrize("piece_bytes", [1, 700, 5_000])
def test_an_index_is_made_the_same_in_pieces_of_any_size(
    path: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece never ends within a write: half a batch at its end would be taken for torn."""
    store = JsonlStore(path)
    for size in (1, 3, 1, 5, 2):
        append(store, *[seal_any(payload={"text": "x" * 40 * number}) for number in range(size)])
    with store.open_write() as writer:
        writer.purge(next(store.read()).event.stream, actor="user:ada", reason="asked to")
    own(store)
    before = [list(store.read()), list(store.slots()), store.purges()]
    monkeypatch.setattr(changes, "PIECE_BYTES", piece_bytes)
    store.rebuild_index()
    assert [list(store.read()), list(store.slots()), store.purges()] == before
    assert list(store.check()) == []
    store.close()


def test_another_process_sees_an_index_that_was_made_anew(path: Path) -> None:
    one, other = JsonlStore(path), JsonlStore(path)
    own(one)
    assert other.head() == 1
    one.rebuild_index()
    own(one)
    assert positions(other.read()) == [1, 2]
    assert other.identity == one.identity
    own(other)
    assert positions(one.read()) == [1, 2, 3]
    one.close()
    other.close()


def test_an_index_that_cannot_be_told_does_not_fail_the_write(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin)], fresh=True)
        store._updater.index.connection.execute("DROP TABLE events")
    assert positions(store.read()) == [1, 2]
    store._updater.index.connection.execute("DROP TABLE events")
    assert positions(store.read()) == [1, 2]  # while reading it is noticed, too
    store._updater.index.connection.execute("DROP TABLE purges")
    store.close()
    again = JsonlStore(path)
    own(again)
    assert positions(again.read()) == [1, 2, 3]
    again.close()
