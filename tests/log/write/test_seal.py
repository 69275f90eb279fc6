"""The stage `seal`: every event of a signed log is signed, with every store, or nothing is recorded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import CATALOG

from everlog import aio
from everlog.core.event import Recorded
from everlog.core.ids import id_matches
from everlog.errors import InvalidField, NoKey
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.seal import Seal
from everlog.log.write.stages import StageFailed
from everlog.stores.contract import Identity, Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.memory import MemoryStore
from everlog.stores.open_write import OpenWrite
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.signing import key, signed_identity, signer, unsigned_events
from everlog.trust.keys import PrivateKey
from everlog.views.registry import Views

KEY = key(1)
KINDS = ["memory", "sqlite", "jsonl", "segments", "postgres"]
OpenLog = Callable[..., Log]


class StaysOpen(MemoryStore):
    def close(self) -> None:
        """A log in memory that is opened again."""


@pytest.fixture(params=KINDS)
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenLog]:
    """Opens the same signed log again and again; one in memory is there once."""
    opened: list[Log] = []
    identity = signed_identity(KEY)
    memory = StaysOpen(identity=identity)

    def store() -> Store:
        match request.param:
            case "sqlite":
                return SqliteStore(tmp_path / "log.db", identity=identity)
            case "jsonl":
                return JsonlStore(tmp_path / "log", identity=identity)
            case "segments":
                return SegmentsStore(tmp_path / "log", identity=identity)
            case "postgres":
                from everlog.stores.postgres.store import PostgresStore

                return PostgresStore(request.getfixturevalue("postgres_url"), identity=identity)
            case _:
                return memory

    def make(keys: tuple[PrivateKey, ...] = (KEY,), *, signs: bool = True) -> Log:
        made = store()
        opened.append(Log(made, CATALOG, make_views=Views, signer=signer(made, keys) if signs else None))
        return opened[-1]

    yield make
    for log in opened:
        log.close()


def one(log: Log) -> list[Recorded]:
    return [log.append("thing.said", stream="thing/1", payload={"value": 1})]


def many(log: Log) -> list[Recorded]:
    drafts = [Draft("thing.said", f"thing/{number % 7}", {"value": number}) for number in range(300)]
    return list(log.append_batch(drafts))


def with_expectations(log: Log) -> list[Recorded]:
    """Several parts in one write."""

    async def all_at_once() -> list[Recorded]:
        made = (aio.append(log, "thing.said", stream=f"thing/{number}", payload={}, expect=0) for number in range(20))
        return list(await asyncio.gather(*made))

    return asyncio.run(all_at_once())


@pytest.mark.parametrize("write", [one, many, with_expectations])
def test_every_event_is_signed_and_its_id_encodes_the_origin(
    open_log: OpenLog, write: Callable[[Log], list[Recorded]]
) -> None:
    log = open_log()
    receipts = sorted(write(log), key=lambda recorded: recorded.position)
    assert unsigned_events(log.stored) == []
    assert list(log.read()) == receipts
    assert {recorded.event.origin for recorded in receipts} == {KEY.public.origin}
    assert all(id_matches(recorded.event.id, KEY.public.origin, recorded.event.origin_seq) for recorded in receipts)
    log.close()
    again = open_log()
    assert list(again.read()) == receipts
    assert unsigned_events(again.stored) == []
    assert again.verify().ok


def test_events_stay_signed_after_a_purge_and_a_second_handle_continues(open_log: OpenLog) -> None:
    log = open_log()
    many(log)
    log.purge("thing/3", reason="asked to", record=[Draft("thing.said", "thing/4", {"value": 9})])
    other = log if isinstance(log._store, SegmentsStore) else open_log()
    one(other)
    one(log)
    assert unsigned_events(other.stored) == []
    assert (
        log.stored.ends(origins=[KEY.public.origin]).chains[KEY.public.origin].end.origin_seq == 304
    )  # with the record of the purge
    assert log.verify().ok


@pytest.mark.parametrize("signs", [True, False])
def test_without_its_key_a_log_is_read_and_refuses_writes(open_log: OpenLog, signs: bool) -> None:
    log = open_log()
    one(log)
    log.close()
    log = open_log((key(2),), signs=signs)
    before = list(log.read())
    for write in (one, many, with_expectations):
        with pytest.raises(NoKey) as refusal:
            write(log)
        assert refusal.value.code == "no_key"
        assert refusal.value.exit_code == 7
    with pytest.raises(NoKey):
        log.purge("thing/1", reason="asked to", record=[Draft("thing.said", "thing/2", {})])
    assert list(log.read()) == before
    assert log.verify().ok


def test_a_key_that_fails_leaves_nothing_behind(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    one(log)

    def broken(self: PrivateKey, message: bytes) -> bytes:
        raise RuntimeError("no more entropy")

    with monkeypatch.context() as patch:
        patch.setattr(PrivateKey, "sign", broken)
        with pytest.raises(StageFailed, match="seal"):
            many(log)
    assert log.head() == 1
    one(log)
    assert unsigned_events(log.stored) == []


def test_a_signed_log_accepts_no_ids_from_callers(open_log: OpenLog) -> None:
    log = open_log()
    with pytest.raises(InvalidField, match="signed log") as refusal:
        log.append("thing.said", stream="thing/1", payload={}, id="01K9ZZZZZZZZZZZZZZZZZZZZZZ")
    assert "key" in refusal.value.hint
    again = [log.append("thing.said", stream="thing/1", payload={"value": 1}, key="k") for _ in range(2)]
    assert again[0] == again[1]
    assert log.head() == 1


def test_a_write_has_one_signature_per_stored_group(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    signed: list[int] = []
    real = Seal.run

    def noticed(self: Seal, write: OpenWrite) -> None:
        real(self, write)
        signed.extend(group.facts.count for group in write.groups() if group.facts.signature)

    monkeypatch.setattr(Seal, "run", noticed)
    many(log)
    assert signed == [128, 128, 44]


def test_threads_share_signatures(open_log: OpenLog) -> None:
    log = open_log()

    def some() -> None:
        for number in range(10):
            log.append("thing.said", stream=f"thing/{number}", payload={})

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.head() == 40
    assert unsigned_events(log.stored) == []
    assert len({recorded.event.id for recorded in log.read()}) == 40


def test_a_log_that_must_be_signed_takes_its_first_key_as_its_origin(tmp_path: Path) -> None:
    """As one that was unsigned until somebody required signatures."""
    with Log(SqliteStore(tmp_path / "log.db"), CATALOG) as log:
        one(log)
        unsigned = log.identity.origin
    store: Store = SqliteStore(tmp_path / "log.db")
    with Log(store, CATALOG, signer=signer(store, ())) as log:
        one(log)
        assert log.identity.former == (unsigned,)
        assert unsigned_events(log.stored) == [1]
        assert log.verify().ok
    store = SqliteStore(tmp_path / "log.db")
    assert store.identity.origin.startswith("z6Mk")
    assert isinstance(store.identity, Identity)
    with Log(store, CATALOG) as log, pytest.raises(NoKey):  # it never falls back to unsigned writes
        one(log)


def test_a_log_that_is_shorter_than_what_its_key_signed_takes_a_new_key(open_log: OpenLog) -> None:
    """Nothing else shows that it was restored: only the number beside the key."""
    log = open_log()
    one(log)
    assert log._signer is not None
    log._signer.has_signed(KEY.public.origin, 2)  # in the copy that was replaced by this one
    (made,) = one(log)
    assert made.event.origin != KEY.public.origin
    assert made.event.origin_seq == 1
    assert log.identity.former == (KEY.public.origin,)
    one(log)
    assert unsigned_events(log.stored) == []
    assert log.verify().ok
