"""`verify` checks signatures: of own and of other origins, of whole groups, parts of them, and what purges left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.conftest import CATALOG

from everlog.core.codec import Packed
from everlog.core.event import Purged, whole
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.log.write.draft import Draft
from everlog.stores.contract import Identity, Store, encode_event
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.memory import MemoryStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import Chain, seal_any
from everlog.testing.copy_contract import put, slots_of
from everlog.testing.signing import key, signed_identity, signer

KEY = key(1)
IDENTITY = signed_identity(KEY)
Make = Callable[[Identity], Store]


class StaysOpen(MemoryStore):
    def close(self) -> None:
        """It is read after its log was closed."""


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def made(identity: Identity) -> Store:
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
                return StaysOpen(identity=identity)

    return made


def a_signed_log() -> Store:
    """Groups of one, of some and of many events; one has lost a part to a purge, and one everything."""
    store = StaysOpen(identity=IDENTITY)
    with Log(store, CATALOG, signer=signer(store, [KEY])) as log:
        log.append("thing.said", stream="thing/1", payload={"value": 1})
        log.append_batch([Draft("thing.said", f"thing/{number % 3}", {"value": number}) for number in range(200)])
        log.append_batch([Draft("thing.said", "thing/gone", {"value": number}) for number in range(3)])
        log.purge("thing/2", reason="asked to")
        log.purge("thing/gone", reason="asked to")
        log.append("thing.said", stream="thing/1", payload={"value": 1})
    return store


def codes(store: Store) -> set[str]:
    report = verify(store)
    store.close()
    return {problem.code for problem in report.problems}


def test_a_signed_log_is_sound_in_every_store_after_a_copy_a_purge_and_a_restart(make: Make) -> None:
    store = make(IDENTITY)
    put(store, slots_of(a_signed_log()), at_once=1_000)
    assert codes(store) == set()
    if not isinstance(store, MemoryStore):
        assert codes(make(IDENTITY)) == set()


def test_events_of_another_log_are_not_signed_in_this_one(make: Make) -> None:
    store = make(replace(IDENTITY, log_id="01K9ZZZZZZZZZZZZZZZZZZZZZZ"))
    put(store, slots_of(a_signed_log()), at_once=1_000)
    assert codes(store) == {"signature_invalid"}


@pytest.mark.parametrize("bit", [0, 511])
def test_a_changed_signature_is_found(make: Make, bit: int) -> None:
    places = slots_of(a_signed_log())
    for index, place in enumerate(places):
        if isinstance(place, Packed | Purged) and place.signed_with == (130, 72):
            changed = int.from_bytes(place.signature, "big") ^ (1 << bit)
            places[index] = replace(place, signature=changed.to_bytes(64, "big"))
    store = make(IDENTITY)
    put(store, places, at_once=1_000)
    report = verify(store)
    store.close()
    assert {problem.code for problem in report.problems} == {"signature_invalid"}
    assert {problem.position for problem in report.problems} <= set(range(130, 202))


def test_a_group_of_which_only_stubs_are_left_is_checked(make: Make) -> None:
    places = slots_of(a_signed_log())
    for index, place in enumerate(places):
        if isinstance(place, Purged) and place.signed_with == (202, 3):
            places[index] = replace(place, signature=bytes(64))
    store = make(IDENTITY)
    put(store, places, at_once=1_000)
    assert codes(store) == {"signature_invalid"}


def test_an_event_of_a_key_that_is_not_signed_is_found(make: Make) -> None:
    store = make(IDENTITY)
    with store.open_write() as write:
        write.append([Chain(key(2).public.origin).next()])
    assert codes(store) == {"signature_missing"}


def test_a_signature_of_an_origin_that_is_no_key_is_found(make: Make) -> None:
    store = make(IDENTITY)
    signed = replace(seal_any().event, signature=b"s" * 76)
    with store.open_write() as write:
        write.append([encode_event(signed)])
    assert codes(store) == {"signature_unexpected"}


def test_an_event_that_travelled_alone_proves_itself(make: Make) -> None:
    """It was in a group of 72, and only it came here."""
    source = a_signed_log()
    alone = [whole(recorded.event) for recorded in source.read() if recorded.position in (1, 150, 201)]
    other = replace(IDENTITY, origin=key(3).public.origin)
    store = make(other)
    with store.open_write() as write:
        write.append([encode_event(event) for event in alone])
    assert codes(store) == set()


def test_a_path_that_is_not_its_own_is_found(make: Make) -> None:
    source = a_signed_log()
    one, another = (whole(recorded.event) for recorded in source.read() if recorded.position in (150, 201))
    store = make(replace(IDENTITY, origin=key(3).public.origin))
    with store.open_write() as write:
        write.append([encode_event(replace(one, path=another.path))])
    assert codes(store) == {"signature_invalid"}
