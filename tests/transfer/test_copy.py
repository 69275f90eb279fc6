"""A copy is equal to its log or is not there; whatever stops it, the same command ends it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.faults import RecordingFiles
from tests.transfer.conftest import MemoryTarget, Open, target_in

from everlog.core.codec import Packed
from everlog.core.event import Position
from everlog.errors import Busy, Conflict, Damaged, NotALog
from everlog.log.verify.verify import verify
from everlog.stores.contract import Store
from everlog.stores.memory import MemoryStore
from everlog.stores.small_state import CLAIMS, claim_of, read_notes
from everlog.testing.builders import Chain, put_claim, put_note, stamped
from everlog.testing.copy_contract import OWN, a_full_log, put, slots_of
from everlog.transfer import copy as copying
from everlog.transfer.copy import UNFINISHED, copy_log
from everlog.transfer.survey import survey
from everlog.wiring import copy_target, open, open_store

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "BATCH", 17)


def everything(store: Store) -> Any:
    """All that a copy must keep."""
    return (
        list(store.slots()),
        store.purges(),
        store.head(),
        store.ends().clock,
        sorted(store.small_state.every_row(), key=repr),
    )


def a_log_with_state() -> MemoryStore:
    store = a_full_log()
    with store.open_write() as writer:
        writer.tick(seen=900)
        put_note(writer, "refusal/01", "no", expires_us=2**61)
        put_note(writer, "cursor/board", "17")
        put_claim(writer, b"a" * 16, Position(1), 2)
        put_claim(writer, b"b" * 16, Position(store.head()), 1)
    return store


def test_a_copy_keeps_everything(tmp_path: Path, url: str, opened: Open) -> None:
    source = a_log_with_state()
    copied = copy_log(source, target_in(tmp_path, url.format("copy")))
    store = opened(url.format("copy"))

    assert everything(store) == everything(source)
    assert copied.summary == survey(source)
    assert (copied.notes, copied.claims, copied.resumed_at) == (2, 2, 0)
    report, original = verify(store), verify(source)
    assert [(one.position, one.code) for one in report.problems] == [
        (one.position, one.code) for one in original.problems
    ]
    assert {problem.code for problem in report.problems} == {"signature_unexpected"}  # one is made up
    assert (report.digest, report.events, report.purged) == (original.digest, original.events, original.purged)


def test_a_chain_of_copies_through_every_store_has_one_digest(tmp_path: Path, opened: Open) -> None:
    from tests.transfer.conftest import URLS

    source: Store = a_log_with_state()
    first, digest = source, verify(source).digest
    for number, (name, url) in enumerate([*URLS.items(), *URLS.items()]):
        copy_log(source, target_in(tmp_path, url.format(f"{name}{number}")))
        source = opened(url.format(f"{name}{number}"))
        assert verify(source).digest == digest
    assert list(source.slots()) == list(first.slots())


def test_a_copy_is_the_same_log_under_an_origin_and_an_epoch_of_its_own(
    tmp_path: Path, url: str, opened: Open
) -> None:
    """F11: both may be written to afterwards, and neither makes links of the other's chain."""
    source = a_log_with_state()
    copied = copy_log(source, target_in(tmp_path, url.format("copy")))
    identity = opened(url.format("copy")).identity

    assert identity == copied.identity
    assert (identity.log_id, identity.created_us) == (source.identity.log_id, source.identity.created_us)
    assert identity.origin != source.identity.origin
    assert identity.epoch != source.identity.epoch


def test_both_logs_may_be_written_to_and_exchanged_afterwards(tmp_path: Path) -> None:
    """F11, from end to end: the events that each made since are taken by the other, without a fork."""
    with open(f"sqlite:{tmp_path}/one.db") as one:
        one.append("note.added", stream="note/1", payload={"text": "before"})
        copy_log(one._store, copy_target(f"sqlite:{tmp_path}/two.db", base=Path()))
        with open(f"sqlite:{tmp_path}/two.db", create=False) as two:
            for log in (one, two):
                log.append("note.added", stream="note/1", payload={"text": "after"})
            for log, other in ((one, two), (two, one)):
                assert len(log.admit([recorded.event for recorded in other.read()])) == 1
                assert log.verify().ok


def test_a_retry_after_the_move_finds_its_request(tmp_path: Path) -> None:
    """Idempotency keys move along."""
    with open(f"sqlite:{tmp_path}/one.db") as one:
        first = one.append("note.added", stream="note/1", payload={"text": "once"}, key="k")
        copy_log(one._store, copy_target(f"sqlite:{tmp_path}/two.db", base=Path()))
    with open(f"sqlite:{tmp_path}/two.db", create=False) as two:
        again = two.append("note.added", stream="note/1", payload={"text": "once"}, key="k")
        assert (again.event.id, two.head()) == (first.event.id, first.position)


def test_an_empty_log_can_be_copied(tmp_path: Path, url: str, opened: Open) -> None:
    assert copy_log(MemoryStore(), target_in(tmp_path, url.format("copy"))).summary.head == 0
    assert opened(url.format("copy")).head() == 0


@settings(max_examples=25)
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=6),
            st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=30) | st.floats(0, 1),
            max_size=4,
        ),
        max_size=12,
    )
)
def test_hostile_payloads_are_copied_byte_for_byte(payloads: list[dict[str, Any]]) -> None:
    source, chain, target = MemoryStore(), Chain(OWN), MemoryTarget()
    with source.open_write() as writer:
        writer.append([chain.next(payload=payload) for payload in payloads])
    copy_log(source, target.target)
    assert target.store is not None
    assert list(target.store.slots()) == list(source.slots())


# ---- stopped and continued


class Stop(Exception):
    """What a test stops a copy with."""


def stopped_after(places: int) -> Any:
    def progress(done: int) -> None:
        if done >= places:
            raise Stop

    return progress


@pytest.mark.parametrize("places", [1, 60, 200, 230, 300])
def test_a_copy_that_was_stopped_goes_on_where_it_was(tmp_path: Path, url: str, opened: Open, places: int) -> None:
    source = a_log_with_state()
    with pytest.raises(Stop):
        copy_log(source, target_in(tmp_path, url.format("copy")), progress=stopped_after(places))
    assert not any(path.name.startswith("copy") and "copying" not in path.name for path in tmp_path.iterdir())

    copied = copy_log(source, target_in(tmp_path, url.format("copy")))
    assert copied.resumed_at >= min(places, source.head())
    assert everything(opened(url.format("copy"))) == everything(source)


def test_a_stopped_copy_takes_what_was_written_since(tmp_path: Path, url: str, opened: Open) -> None:
    source = a_log_with_state()
    with pytest.raises(Stop):
        copy_log(source, target_in(tmp_path, url.format("copy")), progress=stopped_after(60))
    with source.open_write() as writer:
        writer.append([stamped(writer, OWN, stream="note/9")], fresh=True)

    copy_log(source, target_in(tmp_path, url.format("copy")))
    assert everything(opened(url.format("copy"))) == everything(source)


def test_a_copy_stopped_just_before_it_got_its_name_is_finished(
    tmp_path: Path, url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = a_log_with_state()
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr("everlog.wiring.put_into_place", lambda *_: (_ for _ in ()).throw(Stop))
        copy_log(source, target_in(tmp_path, url.format("copy")))

    copied = copy_log(source, target_in(tmp_path, url.format("copy")))
    assert copied.resumed_at == source.head()
    assert everything(opened(url.format("copy"))) == everything(source)


def test_what_was_purged_meanwhile_is_not_kept_by_the_copy(tmp_path: Path, url: str) -> None:
    """A purge between the two halves of a copy: what the draft holds would bring it back."""
    source = a_log_with_state()
    with pytest.raises(Stop):
        copy_log(source, target_in(tmp_path, url.format("copy")), progress=stopped_after(60))
    with source.open_write() as writer:
        writer.purge("note/3", actor="user:ada", reason="asked to")

    with pytest.raises(Conflict, match="cannot be continued") as caught:
        copy_log(source, target_in(tmp_path, url.format("copy")))
    assert "remove" in caught.value.hint


def test_a_purge_in_the_middle_of_a_copy_is_noticed(tmp_path: Path, url: str) -> None:
    source = a_log_with_state()

    def progress(done: int) -> None:
        if done == 34:
            with source.open_write() as writer:
                writer.purge("note/3", actor="user:ada", reason="asked to")

    with pytest.raises(Conflict, match="cannot be continued"):
        copy_log(source, target_in(tmp_path, url.format("copy")), progress=progress)


def test_a_log_that_is_written_to_meanwhile_is_copied_as_of_one_moment(
    tmp_path: Path, url: str, opened: Open
) -> None:
    source = opened(url.format("source"))
    put(source, slots_of(a_full_log()))
    before = list(source.slots())

    def progress(done: int) -> None:
        with source.open_write() as writer:
            writer.append([stamped(writer, OWN)], fresh=True)

    copied = copy_log(source, target_in(tmp_path, url.format("copy")), progress=progress)
    assert list(opened(url.format("copy")).slots()) == before
    assert copied.summary.head < source.head()


def test_a_claim_of_an_event_that_was_not_copied_is_not_copied() -> None:
    source, target = a_log_with_state(), MemoryTarget()

    def progress(done: int) -> None:
        with source.open_write() as writer:
            writer.append([stamped(writer, OWN)], fresh=True)
            put_claim(writer, os.urandom(16), writer.head(), 1)

    copied = copy_log(source, target.target, progress=progress)
    assert target.store is not None
    claims = [row for row in target.store.small_state.every_row() if row.space == CLAIMS]
    assert all(claim_of(item.value).first <= copied.summary.head for item in claims)
    assert len(claims) == copied.claims == 2


@pytest.mark.parametrize("round_", range(4))
def test_a_killed_copy_is_finished_by_the_same_command(tmp_path: Path, round_: int) -> None:
    """kill -9 at any moment, several times: the same digest in the end, and no half log under its name."""
    with open(f"sqlite:{tmp_path}/one.db") as log:
        for _ in range(30):
            log.append_batch([draft() for _ in range(200)])
        digest = log.verify().digest
    command = [
        sys.executable,
        "-P",
        "-m",
        "everlog",
        "copy",
        f"sqlite:{tmp_path}/one.db",
        f"sqlite:{tmp_path}/two.db",
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    for _ in range(3):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = time.monotonic()
        while not (tmp_path / "two.db.copying").exists() and time.monotonic() < began + 10:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (tmp_path / "two.db").exists():
            break
    else:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    with open(f"sqlite:{tmp_path}/two.db", create=False) as copy:
        assert (copy.verify().digest, copy.verify().ok) == (digest, True)


def draft() -> Any:
    from everlog.log.write.draft import Draft

    return Draft(type="note.added", stream="note/1", payload={"text": "x" * 200})


# ---- refused


def test_a_copy_is_not_written_over_a_log(tmp_path: Path, url: str, opened: Open) -> None:
    opened(url.format("copy"))
    with pytest.raises(Conflict, match="there already"):
        target_in(tmp_path, url.format("copy"))


def test_a_log_that_came_to_be_there_meanwhile_is_not_written_over(tmp_path: Path, url: str, opened: Open) -> None:
    made: list[Store] = []

    def begin_a_log(places: int) -> None:
        if not made:
            made.append(opened(url.format("copy")))
            with made[0].open_write() as writer:
                writer.append([stamped(writer, made[0].identity.origin, stream="note/precious")], fresh=True)

    with pytest.raises(Conflict, match="come to be there"):
        copy_log(a_log_with_state(), target_in(tmp_path, url.format("copy")), progress=begin_a_log)
    assert [recorded.event.stream for recorded in made[0].read()] == ["note/precious"]


def test_a_note_that_the_log_forgot_since_is_not_in_the_resumed_copy(tmp_path: Path, url: str, opened: Open) -> None:
    source = a_log_with_state()
    with pytest.raises(Stop):  # while the copy is compared: its notes are there
        copy_log(source, target_in(tmp_path, url.format("copy")), progress=stopped_after(source.head() + 1))
    with source.open_write() as writer:
        put_note(writer, "refusal/01", None)

    copy_log(source, target_in(tmp_path, url.format("copy")))
    assert read_notes(opened(url.format("copy")).small_state, "refusal/") == {}


def test_a_draft_of_another_log_is_not_continued(tmp_path: Path, url: str) -> None:
    with pytest.raises(Stop):
        copy_log(a_log_with_state(), target_in(tmp_path, url.format("copy")), progress=stopped_after(1))
    with pytest.raises(Conflict, match="of another log"):
        copy_log(a_log_with_state(), target_in(tmp_path, url.format("copy")))


def test_a_store_that_has_events_takes_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    target = MemoryTarget()
    target.store = MemoryStore()
    monkeypatch.setattr(target.store, "close", lambda: None)  # so that the test can look into it afterwards
    with target.store.open_write() as writer:
        writer.append([Chain().next()])
    with pytest.raises(Conflict, match="is a log already"):
        copy_log(a_full_log(), target.target)
    assert (target.store._notes.get(UNFINISHED), target.swapped) == (None, 0)


def test_an_unfinished_copy_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        copy_log(a_full_log(), copy_target(f"sqlite:{tmp_path}/two.db", base=Path()), progress=stopped_after(1))
    with pytest.raises(NotALog, match="unfinished"):
        open(f"sqlite:{tmp_path}/two.db.copying", create=False)


def test_a_damaged_log_is_not_copied(tmp_path: Path, url: str) -> None:
    source = a_full_log()
    place = source._slots[7]
    assert isinstance(place, Packed)
    source._slots[7] = replace(place, payload=b'{"text":"changed"}')
    with pytest.raises(Damaged, match="position 8"):
        copy_log(source, target_in(tmp_path, url.format("copy")))
    assert not (tmp_path / url.format("copy").partition(":")[2]).exists()


def test_a_copy_that_is_not_equal_does_not_get_its_name() -> None:
    """The comparison is of what can be read back, not of what was handed over."""

    class Forgetful(MemoryStore):
        def _persist(self, staged: Any) -> None:
            super()._persist(staged)
            for index, place in enumerate(self._slots):
                if place.position == 30 and isinstance(place, Packed):
                    self._slots[index] = replace(place, received_us=1)

    target = MemoryTarget()
    target.store = Forgetful()
    with pytest.raises(Damaged, match="not equal"):
        copy_log(a_full_log(), target.target)
    assert target.swapped == 0


def test_a_finished_copy_that_somebody_reads_waits_for_its_name(tmp_path: Path) -> None:
    """SQLite's side files carry the name of the file: renamed under them, the log would be damaged."""
    source = a_log_with_state()
    target = copy_target(f"sqlite:{tmp_path}/two.db", base=Path())
    with pytest.raises(Stop):
        copy_log(source, target, progress=stopped_after(1))
    reader = open_store(f"sqlite:{tmp_path}/two.db.copying", base=Path())
    reading = reader.slots()
    next(reading)
    with pytest.raises(Busy, match="has it open"):
        copy_log(source, target)
    reading.close()  # type: ignore[attr-defined]
    reader.close()
    copy_log(source, target)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["two.db"]


def test_the_name_of_a_copy_is_flushed() -> None:
    """A power cut after the command ended must not take the name back."""
    folder = Path("/logs")
    files = RecordingFiles({folder / "two.db.copying": b"whole", folder / "two.db.copying-lock": b""})
    copying.put_into_place(files, folder / "two.db.copying", folder / "two.db")

    assert files.read_all(folder / "two.db") == b"whole"
    assert files.names(folder) == ["two.db"]
    steps = [type(step).__name__ for step in files.trace]
    assert steps[:2] == ["Rename", "SyncDir"]
