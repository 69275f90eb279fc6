"""Snapshots: what they hold, which are used, and that a snapshot and its tail are always a full replay."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import CATALOG
from tests.views.conftest import ALL, ByActor, Said, Total
from tests.views.snapshots.logs import (
    files_below,
    fill,
    forget_states,
    from_nothing,
    reopened,
    say,
    with_snapshots,
)

from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.errors import Damaged, NotFound
from everlog.files import TEMP_SUFFIX
from everlog.log.log import Log
from everlog.views.builtin import Fields
from everlog.views.registry import live_view
from everlog.views.snapshots.check import check_all
from everlog.views.snapshots.policy import Due
from everlog.views.snapshots.snapshots import Snapshots
from everlog.views.view import View

# ---- making and using


@pytest.mark.parametrize("view", ALL)
def test_a_view_without_states_begins_at_the_newest_snapshot(slog: Log, folder: Path, view: type[View]) -> None:
    fill(slog, 20)
    slog.view(view).snapshot()
    fill(slog, 5, start=20)
    forget_states(slog)
    again = reopened(slog._store, folder)
    handle = again.view(view)
    assert handle.position() == 20, "it began somewhere else"
    assert handle.digest() == from_nothing(slog, view)
    assert handle.audit().ok


def test_a_snapshot_of_the_same_place_is_made_once(slog: Log) -> None:
    fill(slog, 3)
    first = slog.view(Said).snapshot()
    assert slog.view(Said).snapshot().id == first.id
    say(slog, "more")
    assert slog.view(Said).snapshot().id != first.id


def test_what_a_snapshot_says_of_itself(slog: Log) -> None:
    fill(slog, 7)
    entry = slog.view(Said).snapshot()
    first, second, third = gzip.decompress(entry.path.read_bytes()).splitlines()
    header = json.loads(first)
    identity = slog.identity
    assert (header["log_id"], header["epoch"]) == (identity.log_id, identity.epoch)
    assert (header["view"], header["version"], header["keys"], header["applied"]) == ("said", 1, 5, 7)
    assert header["lamport"] == slog._store.ends().clock
    assert header["last"][0] == 7
    assert header["digest"] == slog.view(Said).digest()
    assert json.loads(second)["rows"]["thing/1"][4] == {"count": 2, "values": [1, 6]}
    assert set(json.loads(third)) == {"sha256", "key", "signature"}
    assert entry.path.name == f"said@000000000007-{header['id']}.json.gz"


# ---- incremental


def test_a_small_change_makes_a_patch_and_a_large_one_a_full_snapshot(slog: Log, folder: Path) -> None:
    for number in range(200):
        say(slog, number, stream=f"thing/{number}")
    full = slog.view(Said).snapshot()
    assert full.header is not None
    assert full.header.base == ""
    say(slog, "new", stream="thing/3")
    patch = slog.view(Said).snapshot()
    assert patch.header is not None
    assert patch.header.base == full.id
    assert patch.file_bytes < full.file_bytes / 2
    for number in range(120):
        say(slog, "again", stream=f"thing/{number}")
    third = slog.view(Said).snapshot()
    assert third.header is not None
    assert third.header.base == ""
    say(slog, "and once more")
    by_hand = slog.view(Said).snapshot(full=True)
    assert by_hand.header is not None
    assert by_hand.header.base == ""
    for entry in slog.views.snapshots.folder.entries("said"):
        loaded = slog.views.snapshots.folder.load(entry)
        assert loaded.header.digest == entry.header.digest
    assert [verdict.ok for verdict in check_all(slog.views.snapshots, slog.view(Said), sample=None)] == [True] * 4


# ---- damaged and stale ones


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "gone"])
def test_a_damaged_snapshot_falls_back_to_the_one_before_and_is_reported(
    slog: Log, folder: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(slog, 10)
    slog.view(Said).snapshot(full=True)
    fill(slog, 5, start=10)
    newest = slog.view(Said).snapshot(full=True)
    fill(slog, 5, start=15)
    data = newest.path.read_bytes()
    middle = len(data) // 2
    match how:
        case "flip":
            newest.path.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
        case "cut":
            newest.path.write_bytes(data[:middle])
        case "empty":
            newest.path.write_bytes(b"")
        case _:
            newest.path.unlink()
    forget_states(slog)
    again = reopened(slog._store, folder)
    with caplog.at_level(logging.WARNING, "everlog"):
        assert again.view(Said).position() == 10
    assert again.view(Said).digest() == from_nothing(slog, Said)
    if how != "gone":
        assert newest.id in caplog.text
        verdicts = check_all(again.views.snapshots, again.view(Said))
        assert [verdict.problem != "" for verdict in verdicts] == [True, False]
        with pytest.raises(Damaged):
            again.view(Said).restore(again.views.snapshots.folder.find(newest.id))


def test_a_snapshot_of_other_code_is_stale(slog: Log, folder: Path) -> None:
    fill(slog, 5)
    entry = slog.view(Said).snapshot()
    snapshots = slog.views.snapshots
    assert entry.header is not None
    assert snapshots.stale(entry.header, Said()) == ""

    class Newer(Said):
        version = 2

    class Changed(Said):
        def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
            return {"values": [], "count": 0}

    assert "version" in snapshots.stale(entry.header, Newer())
    assert "code" in snapshots.stale(entry.header, Changed())
    assert snapshots.newest(Changed()) is None
    with pytest.raises(NotFound):
        snapshots.to_restore(Changed(), entry)
    with pytest.raises(NotFound):
        snapshots.to_restore(ByActor(), entry)


def test_a_snapshot_from_before_a_new_upcaster_is_stale(slog: Log, folder: Path) -> None:
    fill(slog, 5)
    entry = slog.view(Said).snapshot()
    assert entry.header is not None
    newer = Catalog()
    newer.include(CATALOG)

    @newer.event("thing.said", version=2)
    class SaidNow(msgspec.Struct):
        value: Any = None

    @newer.upcaster("thing.said", from_version=1)
    def shout(old: dict[str, Any]) -> dict[str, Any]:
        return {"value": f"{old['value']}!"}

    again = reopened(slog._store, folder, catalog=newer)
    assert "upcaster" in again.views.snapshots.stale(entry.header, Said())
    forget_states(slog)
    assert again.view(Said).get("thing/1").state["values"] == ["1!"]
    # A view that takes nothing of that type does not care.
    assert slog.views.snapshots.stale(entry.header, Said()) == ""


def test_a_snapshot_of_another_copy_or_of_a_log_that_went_back_is_stale(
    make_log: Callable[..., Log], folder: Path, tmp_path: Path
) -> None:
    log = make_log("sqlite", tmp_path / "log.db", **with_snapshots(folder))
    fill(log, 3)
    short = (tmp_path / "log.db").read_bytes(), (tmp_path / "log.db-wal").read_bytes()
    fill(log, 3, start=3)
    entry = log.view(Said).snapshot()
    assert entry.header is not None
    elsewhere = make_log("memory", **with_snapshots(folder))
    assert "another copy" in elsewhere.views.snapshots.stale(entry.header, Said())
    # An older copy of the file is put back, and then it takes another way.
    (tmp_path / "old.db").write_bytes(short[0])
    (tmp_path / "old.db-wal").write_bytes(short[1])
    old = make_log("sqlite", tmp_path / "old.db", **with_snapshots(folder))
    assert old.head() == 3
    assert "the log ends at #3" in old.views.snapshots.stale(entry.header, Said())
    for number in range(5):
        say(old, f"other {number}")
    assert "is not in the log" in old.views.snapshots.stale(entry.header, Said())
    assert old.view(Said).digest() == from_nothing(old, Said)


def test_a_snapshot_is_used_though_its_last_event_was_purged_and_not_if_another_one_was_there(
    slog: Log, folder: Path
) -> None:
    """The view does not take the event, so the snapshot holds nothing of the purged stream."""
    fill(slog, 20)
    slog.append("workpackage.moved", stream="workpackage/1", payload={"went_to": "doing"})
    entry = slog.view(Said).snapshot()
    assert entry.header is not None
    fill(slog, 5, start=20)
    slog.purge("workpackage/1", reason="a test")
    forget_states(slog)
    again = reopened(slog._store, folder)
    assert again.view(Said).position() == entry.position, "it began somewhere else"
    assert again.view(Said).digest() == from_nothing(slog, Said)
    other = msgspec.structs.replace(entry.header, last=(entry.header.last[0], "01K00000000000000000000000"))
    assert "is not in the log" in again.views.snapshots.stale(other, Said())


# ---- purges


SECRET = "the-sentinel-value"


@pytest.mark.parametrize("view", [Said, ByActor, Total, Fields])
def test_a_purge_leaves_no_byte_in_any_snapshot(slog: Log, folder: Path, view: type[View]) -> None:
    for number in range(40):
        say(slog, number, stream=f"thing/{number}", actor=f"user:u{number}")
    clean = slog.view(view).snapshot(full=True)
    say(slog, SECRET, stream="thing/secret", actor="user:u3")
    slog.view(view).snapshot(full=True)
    say(slog, "later", stream="thing/29", actor="user:u29")
    patch = slog.view(view).snapshot()
    slog.views.snapshots.folder.protect(patch, "for ever")
    (folder / f".said.{TEMP_SUFFIX}").write_bytes(SECRET.encode())
    assert _holding(folder)

    slog.purge("thing/secret", reason="a test")

    assert _holding(folder) == []
    left = [entry.id for entry in slog.views.snapshots.folder.entries()]
    # Only what holds it goes. Of a view that does not remember its sources, that is all.
    assert left == ([] if view is Total else [clean.id])
    assert slog.view(view).digest() == from_nothing(slog, view)


def test_a_purge_that_was_killed_before_the_snapshots_is_finished_at_the_next_opening(
    slog: Log, folder: Path
) -> None:
    say(slog, SECRET, stream="thing/secret")
    slog.view(Said).snapshot()
    with slog._store.open_write() as writer:
        writer.purge("thing/secret", actor="user:ada", reason="killed right after the commit")
    assert _holding(folder)
    assert reopened(slog._store, folder).views.names()
    assert _holding(folder) == []


def test_a_purge_while_a_snapshot_is_written_wins(make_log: Callable[..., Log], folder: Path) -> None:
    log = make_log("memory", **with_snapshots(folder))
    say(log, SECRET, stream="thing/secret")
    say(log, "other")
    purged: list[int] = []

    class Late(Snapshots):
        def _header(self, *given: Any) -> Any:
            made = super()._header(*given)
            if not purged:
                purged.append(1)
                with log._store.open_write() as writer:  # as another process would: its sweep comes too early
                    writer.purge("thing/secret", actor="user:ada", reason="meanwhile")
            return made

    late = Late(log, log.views.small_state, folder, files=log.views.snapshots.folder.files)
    entry = late.create(live_view(log, Said))
    assert _holding(folder) == []
    assert [found.id for found in late.folder.entries()] == [entry.id]


def _holding(folder: Path) -> list[str]:
    found = []
    for path in files_below(folder):
        data = path.read_bytes()
        if path.name.endswith(".gz"):
            data += gzip.decompress(data)
        if SECRET.encode() in data:
            found.append(path.name)
    return found


# ---- verify


def _forge(path: Path, log: Log) -> None:
    """Rewrite a snapshot with a wrong state and every hash right, as only its owner could."""
    from everlog.views.snapshots.body import body_digest
    from everlog.views.snapshots.file import body_bytes, body_of, pack, unpack

    header, content, _ = unpack(path.read_bytes())
    body = body_of(content)
    body["rows"]["thing/2"] = body["rows"]["thing/2"].replace(b'"count":', b'"count":1')
    forged = msgspec.structs.replace(header, digest=body_digest(body))
    path.write_bytes(pack(forged, body_bytes(body)))


# ---- by itself


def test_a_thread_makes_snapshots_when_they_are_due(make_log: Callable[..., Log], folder: Path) -> None:
    log = make_log("memory", **with_snapshots(folder, due=Due(events=10, hours=0, log_mb=0)))
    log.views.register(Said, mode="async")
    fill(log, 9)
    log.wait_for(Said, 9)
    fill(log, 5, start=9)
    log.wait_for(Said, 14)
    deadline = time.monotonic() + 10
    while not log.views.snapshots.folder.entries() and time.monotonic() < deadline:
        time.sleep(0.02)
    (entry,) = log.views.snapshots.folder.entries()
    assert entry.header is not None
    assert (entry.header.reason, entry.position >= 9) == ("events", True)


# ---- as of


def test_why_no_snapshot_can_be_restored_is_said(slog: Log, folder: Path) -> None:
    fill(slog, 3)

    def reason() -> tuple[str, str]:
        with pytest.raises(NotFound, match="no snapshot of said can be used") as caught:
            slog.views.snapshots.to_restore(Said())
        return caught.value.why, caught.value.hint

    why, hint = reason()
    assert why == "there is none"
    assert "snapshot verify" not in hint
    made, other = slog.view(Said).snapshot(), slog.view(Total).snapshot()
    assert slog.views.snapshots.to_restore(Said()).header.id == made.id
    with pytest.raises(NotFound, match=f"{other.id} cannot be used") as caught:
        slog.views.snapshots.to_restore(Said(), other)
    assert caught.value.why == "it is a snapshot of total"
    made.path.write_bytes(b"damaged")
    why, hint = reason()
    assert why == "those that exist are damaged or stale"
    assert hint.startswith("everlog snapshot verify said")


def test_the_next_snapshot_is_due_from_the_last_one_on(make_log: Callable[..., Log], folder: Path) -> None:
    log = make_log("memory", **with_snapshots(folder, due=Due(events=10, hours=0, log_mb=0)))
    fill(log, 10)
    handle, snapshots = live_view(log, Said), log.views.snapshots
    assert [bool(snapshots.due_reason(Said(), position)) for position in (9, 10)] == [False, True]
    assert snapshots.create_if_due(handle, 9) is None
    assert snapshots.create_if_due(handle, 10) is not None
    assert snapshots.create_if_due(handle, 10) is None
    assert [bool(snapshots.due_reason(Said(), position)) for position in (19, 20)] == [False, True]
    again = reopened(log._store, folder, due=Due(events=10, hours=0, log_mb=0)).views.snapshots
    assert [bool(again.due_reason(Said(), position)) for position in (19, 20)] == [False, True]
