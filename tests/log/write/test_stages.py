"""Stages: what `seal` adds is in every receipt, read and store; a stage that raises leaves nothing behind."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import CATALOG

from everlog import aio
from everlog.core.codec import Packed, header_bytes, header_hash, split_proof
from everlog.core.event import Event, Recorded
from everlog.core.merkle import root, root_of_path
from everlog.errors import InvalidField
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.stages import STAGES, StageFailed
from everlog.stores.contract import Scanning, Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.memory import MemoryStore
from everlog.stores.open_write import OpenWrite
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.small_state import read_notes
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import Chain, put_note
from everlog.views.registry import Views

KINDS = ["memory", "sqlite", "jsonl", "segments", "postgres"]


@pytest.fixture(params=KINDS)
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Log]]:
    """Opens the same log again and again; one in memory is there once."""
    opened: list[Log] = []
    memory = MemoryStore()

    def store() -> Store:
        match request.param:
            case "sqlite":
                return SqliteStore(tmp_path / "log.db")
            case "jsonl":
                return JsonlStore(tmp_path / "log")
            case "segments":
                return SegmentsStore(tmp_path / "log")
            case "postgres":
                from everlog.stores.postgres.store import PostgresStore

                return PostgresStore(request.getfixturevalue("postgres_url"))
            case _:
                return memory

    def make() -> Log:
        opened.append(Log(store(), CATALOG, make_views=Views))
        return opened[-1]

    yield make
    for log in opened:
        log.close()


class SignTheRoot:
    """A made-up seal: the root over the hashes of each group of the write's own events is signed."""

    name = "seal"

    def __init__(self, log: Log) -> None:
        self._log = log
        self.groups: list[int] = []

    def run(self, write: OpenWrite) -> None:
        for group in write.groups():
            if group.facts.origin == self._log.identity.origin:
                self.groups.append(group.facts.count)
                write.sign(group, signed(root(group.hashes)))

    def committed(self) -> None: ...

    def undone(self) -> None: ...


def signed(root: bytes) -> bytes:
    return hashlib.sha512(b"signed" + root).digest()


def is_signed(event: Event) -> bool:
    """Whether the signature is that of the root that the path leads to, from the event's place in the group."""
    signature, first, count = split_proof(event.signature)
    found = root_of_path(header_hash(header_bytes(event)), event.origin_seq - first, count, event.path)
    return found is not None and signature == signed(found)


def one(log: Log) -> list[Recorded]:
    return [log.append("thing.said", stream="thing/1", payload={"value": 1})]


def a_hundred(log: Log) -> list[Recorded]:
    drafts = [Draft("thing.said", f"thing/{number % 7}", {"value": number}) for number in range(100)]
    return list(log.append_batch(drafts))


def tasks(log: Log) -> list[Recorded]:
    async def all_at_once() -> list[Recorded]:
        return list(
            await asyncio.gather(
                *(aio.append(log, "thing.said", stream=f"thing/{number}", payload={}) for number in range(64))
            )
        )

    return asyncio.run(all_at_once())


@pytest.mark.parametrize(("write", "count"), [(one, 1), (a_hundred, 100), (tasks, 64)])
def test_receipts_reads_and_every_store_carry_what_seal_adds(
    open_log: Callable[[], Log], write: Callable[[Log], list[Recorded]], count: int
) -> None:
    log = open_log()
    seal = SignTheRoot(log)
    log.writer.add_stage(seal)
    receipts = write(log)
    assert len(receipts) == count == sum(seal.groups)
    assert all(is_signed(recorded.event) for recorded in receipts)
    by_position = sorted(receipts, key=lambda recorded: recorded.position)
    for reader in (log, log if isinstance(log._store, SegmentsStore) else open_log()):
        assert list(reader.read()) == by_position
        assert [reader.get(recorded.event.id) for recorded in by_position] == by_position
        slots = [slot for slot in reader.stored.slots() if isinstance(slot, Packed)]
        proofs = [(recorded.event.signature, recorded.event.path) for recorded in by_position]
        assert [(slot.proof, slot.path) for slot in slots] == proofs
        if isinstance(reader.stored, Scanning):
            blocks = list(reader.stored.blocks())
            in_blocks = [pair for block in blocks for pair in zip(block.signatures, block.paths, strict=True)]
            assert in_blocks == [(signature, b"".join(path)) for signature, path in proofs]
        assert {problem.code for problem in reader.verify().problems} == {"signature_unexpected"}, "it is made up"


def test_groups_of_tasks_are_signed_together(open_log: Callable[[], Log]) -> None:
    log = open_log()
    seal = SignTheRoot(log)
    log.writer.add_stage(seal)
    tasks(log)
    assert len(seal.groups) < 64, "each task had a write of its own"


def test_events_from_elsewhere_keep_their_own_signature(open_log: Callable[[], Log]) -> None:
    log = open_log()
    log.writer.add_stage(SignTheRoot(log))
    sent = Chain().next(type="thing.said", stream="thing/1").event
    (admitted,) = log.admit([sent])
    assert admitted.event == sent
    assert next(log.read()).event == sent


class Note:
    """A stage that notes what happens to it, and raises if it is told to."""

    def __init__(self, name: str, notes: list[str], *, error: Exception | None = None) -> None:
        self.name = name
        self._notes = notes
        self.error = error

    def run(self, write: OpenWrite) -> None:
        self._notes.append(self.name)
        put_note(write, f"stage/{self.name}", "was here")
        if self.error is not None:
            raise self.error

    def committed(self) -> None:
        self._notes.append(f"{self.name} committed")

    def undone(self) -> None:
        self._notes.append(f"{self.name} undone")


@pytest.mark.parametrize("failing", STAGES)
@pytest.mark.parametrize("write", [one, a_hundred, tasks])
def test_a_stage_that_raises_leaves_nothing_behind(
    open_log: Callable[[], Log], failing: str, write: Callable[[Log], list[Recorded]]
) -> None:
    log, notes = open_log(), list[str]()
    one(log)
    before = (list(log.read()), read_notes(log._store.small_state, ""), log.stored.ends().clock)
    stages = {name: Note(name, notes) for name in STAGES}
    for stage in reversed(stages.values()):  # whatever the order in which they are added
        log.writer.add_stage(stage)
    stages[failing].error = InvalidField("a made-up reason", hint="a made-up hint")
    with pytest.raises(StageFailed, match=f"stage {failing} ") as failure:
        write(log)
    assert failure.value.details["stage"] == failing
    assert "a made-up reason" in failure.value.why
    ran = STAGES[: STAGES.index(failing) + 1]
    assert notes[: 2 * len(ran)] == [*ran, *(f"{name} undone" for name in reversed(ran))]
    assert (list(log.read()), read_notes(log._store.small_state, ""), log.stored.ends().clock) == before
    stages[failing].error = None
    notes.clear()
    one(log)
    assert notes == [*STAGES, *(f"{name} committed" for name in STAGES)]
    assert [recorded.position for recorded in log.read()] == [1, 2]
    assert log.verify().ok


def test_nothing_changes_a_write_after_seal(open_log: Callable[[], Log], monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[str] = []
    for name in ("append", "append_own", "claim", "put", "purge", "copy_in", "tick", "sign", "erase"):
        real = getattr(OpenWrite, name)

        def noticed(
            self: OpenWrite, *given: object, _real: object = real, _name: str = name, **more: object
        ) -> object:
            changes.append(_name)
            return _real(self, *given, **more)  # type: ignore[operator]

        monkeypatch.setattr(OpenWrite, name, noticed)
    log = open_log()
    with pytest.raises(InvalidField):  # a refusal waits for the next write
        log.append("thing.said", stream="no stream", payload={"value": 1})

    class Last(Note):
        def run(self, write: OpenWrite) -> None:
            changes.append("seal")

    log.writer.add_stage(Last("seal", []))
    log.append("thing.said", stream="thing/1", payload={"value": 1}, key="k")
    assert {"append_own", "claim"} <= set(changes), "the test sees nothing"
    assert changes.count("put") == 2, "the test sees nothing"
    assert changes[-1] == "seal"


def test_a_name_that_is_no_stage_is_refused(open_log: Callable[[], Log]) -> None:
    with pytest.raises(ValueError, match="refusals, standing, derive, seal"):
        open_log().writer.add_stage(Note("afterwards", []))


def test_a_stage_that_fails_after_the_commit_does_not_affect_it(
    open_log: Callable[[], Log], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Note):
        def committed(self) -> None:
            raise RuntimeError("too late")

    log = open_log()
    log.writer.add_stage(Broken("derive", []))
    one(log)
    assert log.head() == 1
    assert "the commit is not affected" in caplog.text
