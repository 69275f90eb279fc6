"""Checkpoints, proofs and cosignatures of signed logs: what a stranger accepts, and what is noticed."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.trust import stranger

from everlog.application.trust.checkpoints import (
    check_checkpoint,
    compare_with_log,
    cosign_for,
    last_checkpoint,
    make_checkpoint,
    make_heads,
    parse_key,
    seen_size,
    take_cosigned,
)
from everlog.application.trust.proofs import check_proof, prove
from everlog.catalog.catalog import Catalog
from everlog.core.codec import HEADER_FIELDS, commitment, header_hash
from everlog.core.merkle import root
from everlog.errors import BadFile, Damaged, HistoryChanged, InvalidField, NoKey, NotFound
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.contract import Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.memory import MemoryStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.signing import key, signed_identity, signer
from everlog.trust.notes import Checkpoint, Note, parse_checkpoint, parse_note, sign, who_signed

OWN, OTHER, WITNESS = key(1), key(2), key(3)


def catalog() -> Catalog:
    found = Catalog()

    @found.event("note.added")
    class Added(msgspec.Struct):
        text: str

    return found


def a_log(store: Store) -> Log:
    return Log(store, catalog(), actor="user:ada", signer=signer(store, [OWN, WITNESS, OTHER]))


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    identity, place = signed_identity(OWN), tmp_path / "log"
    kinds: dict[str, Any] = {"sqlite": SqliteStore, "jsonl": JsonlStore, "segments": SegmentsStore}
    kind = kinds.get(request.param)
    opened = a_log(MemoryStore(identity=identity) if kind is None else kind(place, identity=identity))
    yield opened
    opened.close()


@pytest.fixture
def memory_log() -> Iterator[Log]:
    with a_log(MemoryStore(identity=signed_identity(OWN))) as opened:
        yield opened


def record(log: Log, count: int) -> None:
    head = log.head()
    log.append_batch([Draft("note.added", f"note/{n % 3}", {"text": f"note {n}"}) for n in range(head, head + count)])


def file_of(log: Log, name: str, *, payload: bool = False) -> bytes:
    return msgspec.json.encode(prove(log, name, log.signing_key(), payload=payload))


# ---- what holds


def test_every_event_is_proved(log: Log) -> None:
    record(log, 1)
    record(log, 140)
    for position in (1, 2, 70, 129, 130, 141):
        data = file_of(log, f"#{position}", payload=True)
        found = check_proof(data, OWN.public)
        assert found.author == OWN.public.origin
        assert found.facts["payload"] == {"text": f"note {position - 1}"}
        assert found.checked.signed.by == OWN.public.origin
    event = log.get(7)
    assert event is not None
    assert check_proof(file_of(log, event.event.id)).facts["id"] == event.event.id


def test_a_stranger_accepts_the_proof(log: Log, tmp_path: Path) -> None:
    record(log, 9)
    file = tmp_path / "proof"
    file.write_bytes(file_of(log, "#5", payload=True))
    command = [sys.executable, "-I", stranger.__file__, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(f"proof everlog/{log.identity.log_id}/{OWN.public.origin}/")
    file.write_bytes(file_of(log, "#5", payload=True).replace(b"note 4", b"note 5"))
    assert subprocess.run(command, capture_output=True, timeout=60).returncode != 0


def test_proofs_and_checkpoints_stay_valid_after_a_purge(log: Log) -> None:
    record(log, 30)
    before, old = file_of(log, "#4", payload=True), make_checkpoint(log, OWN)
    log.purge("note/0", reason="asked to")
    record(log, 5)

    assert check_proof(before).author == OWN.public.origin
    assert compare_with_log(log, parse_checkpoint(old.text)) is None
    gone = check_proof(file_of(log, "#4"), OWN.public)
    assert gone.facts["proves"] == "purged event #4"
    assert gone.author == OWN.public.origin
    assert gone.proof.leaf == check_proof(before).proof.leaf
    (purge,) = log.stored.purges()
    assert check_proof(file_of(log, f"#{purge.reserved}")).facts["proves"] == f"purge #{purge.reserved}"
    with pytest.raises(NotFound):
        prove(log, f"#{log.head() + 1}", OWN)


def test_an_unsigned_log_gives_unsigned_proofs() -> None:
    with Log(MemoryStore(), catalog(), actor="user:ada") as log:
        record(log, 3)
        assert log.signing_key() is None
        found = check_proof(file_of(log, "#2"))
        assert (found.author, found.checked.signed.by) == ("", "")
        with pytest.raises(BadFile, match="not signed by"):
            check_proof(file_of(log, "#2"), OWN.public)


def test_a_signed_log_without_its_key_signs_nothing() -> None:
    store = MemoryStore(identity=signed_identity(OWN))
    with Log(store, catalog(), actor="user:ada") as log, pytest.raises(NoKey):
        log.signing_key()


# ---- what is noticed


def changes(proof: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return proofs that claim something else."""
    other = base64.b64encode(bytes(32)).decode()
    group, inclusion = proof["group"], proof["inclusion"]
    return {
        "header": {**proof, "header": proof["header"].replace("user:ada", "user:eve")},
        "payload": {**proof, "payload": '{"text":"other"}'},
        "salt": {**proof, "salt": base64.b64encode(bytes(16)).decode()},
        "position": {**proof, "position": proof["position"] + 1},
        "no position": {**proof, "position": 0},
        "log": {**proof, "log": "01M7GNA1VYFX6R4DN7FYV6RCAF"},
        "path": {**proof, "inclusion": {"path": [other, *inclusion["path"][1:]]}},
        "short path": {**proof, "inclusion": {"path": inclusion["path"][1:]}},
        "no group": {name: value for name, value in proof.items() if name != "group"},
        "first": {**proof, "group": {**group, "first": group["first"] + 1}},
        "count": {**proof, "group": {**group, "count": group["count"] + 1}},
        "origin": {**proof, "group": {**group, "origin": OTHER.public.origin}},
        "no key": {**proof, "group": {**group, "origin": "z6Mkxyz"}},
        "signature": {**proof, "group": {**group, "signature": base64.b64encode(bytes(64)).decode()}},
        "size": {**proof, "checkpoint": proof["checkpoint"].replace("\n9\n", "\n10\n")},
        "hash too": {**proof, "hash": other},
        "not base64": {**proof, "inclusion": {"path": ["?"]}},
        "not a header": {**proof, "header": "{}"},
        "another form": {**proof, "format": "everlog proof 9"},
    }


@pytest.mark.parametrize("name", list(changes(json.loads('{"header":"","position":1,"group":{"first":1,"count":1},'
    '"inclusion":{"path":[]},"checkpoint":""}'))))  # fmt: skip
def test_a_changed_proof_is_refused(memory_log: Log, name: str) -> None:
    record(memory_log, 9)
    proof = json.loads(file_of(memory_log, "#5", payload=True))
    check_proof(json.dumps(proof).encode())
    with pytest.raises(BadFile):
        check_proof(json.dumps(changes(proof)[name]).encode())


def test_bytes_that_are_no_proof_are_refused() -> None:
    for data in (b"", b"[]", b"\xff", b"{}", b"[" * 100_000, b'{"x":' + b"[" * 100_000):
        with pytest.raises(BadFile):
            check_proof(data)


def test_a_proof_whose_hashes_are_right_and_whose_content_no_log_writes_is_refused() -> None:
    """Anyone who makes up a log makes up its checkpoints as well."""
    sound = dict.fromkeys(HEADER_FIELDS, "x") | {"origin_seq": 1}
    check_proof(made_up(sound, '{"text":"hello"}'))
    for payload in ("nonsense", "[" * 10_000 + "]" * 10_000, "1" * 10_000, '"\\ud800"'):
        with pytest.raises(BadFile, match="payload"):
            check_proof(made_up(sound, payload))
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    wrong: list[dict[str, Any]] = [{"origin": one} for one in (5, [1], None)]
    for each in (*wrong, {"origin_seq": True}, {"stream": {}}, {"id": deep}):
        with pytest.raises(BadFile, match="header"):
            check_proof(made_up(sound | each))


def made_up(header: dict[str, Any], payload: str = "") -> bytes:
    log_id, salt = "01K9ZZZZZZZZZZZZZZZZZZZZZZ", b"s" * 16
    committed = base64.b64encode(commitment(salt, payload.encode())).decode()
    text = json.dumps([(header | {"commitment": committed})[name] for name in HEADER_FIELDS])
    tree = Checkpoint(f"everlog/{log_id}/origin/epoch", 1, root([header_hash(text.encode())]))
    found = {"format": "everlog proof 1", "log": log_id, "position": 1, "header": text}
    found |= {"payload": payload, "salt": base64.b64encode(salt).decode()} if payload else {}
    return json.dumps(found | {"inclusion": {"path": []}, "checkpoint": str(Note(tree.text))}).encode()


def test_a_checkpoint_of_another_key_is_refused(memory_log: Log) -> None:
    record(memory_log, 3)
    note = str(make_checkpoint(memory_log, OWN)).encode()
    for text in (OWN.public.origin, OWN.public.did, OWN.public.openssh, OWN.public.verifier("any/name")):
        assert check_checkpoint(note, parse_key(text)).signed.by == OWN.public.origin
    with pytest.raises(BadFile, match="not signed by"):
        check_checkpoint(note, OTHER.public)
    with pytest.raises(BadFile, match="not signed by"):
        check_checkpoint(parse_note(note).text.encode(), OWN.public)
    with pytest.raises(InvalidField):
        parse_key("nobody")


def test_truncation_rewriting_and_reordering_are_found(memory_log: Log) -> None:
    sizes = (1, 7, 12)
    notes = []
    for size in sizes:
        record(memory_log, size - memory_log.head())
        notes.append(parse_checkpoint(make_checkpoint(memory_log, OWN).text))
    slots = vars(memory_log._store)["_slots"]
    sound = list(slots)

    def found(changed: list[Any]) -> list[str]:
        slots[:] = [replace(slot, position=number) for number, slot in enumerate(changed, 1)]
        vars(memory_log._store)["_head"] = len(changed)
        problems = [compare_with_log(memory_log, note) for note in notes]
        return ["" if problem is None else problem.code for problem in problems]

    changed = replace(sound[3], header=sound[3].header.replace(b"user:ada", b"user:eve"))
    assert found(sound) == ["", "", ""]
    assert found(sound[:9]) == ["", "", "log_cut_off"]
    assert found([*sound[:3], changed, *sound[4:]]) == ["", "checkpoint_differs", "checkpoint_differs"]
    assert found([*sound[:8], sound[9], sound[8], *sound[10:]]) == ["", "", "checkpoint_differs"]
    assert found([sound[1], sound[0], *sound[2:]]) == ["checkpoint_differs"] * 3


def test_a_log_that_was_changed_signs_no_checkpoint(memory_log: Log) -> None:
    record(memory_log, 9)
    make_checkpoint(memory_log, OWN)
    slots = vars(memory_log._store)["_slots"]
    slots[8] = replace(slots[8], header=slots[8].header.replace(b"user:ada", b"user:eve"))
    record(memory_log, 1)
    with pytest.raises(Damaged):
        make_checkpoint(memory_log, OWN)


def test_a_checkpoint_of_another_log_is_not_compared(memory_log: Log) -> None:
    with a_log(MemoryStore(identity=signed_identity(OWN))) as other:
        record(other, 2)
        with pytest.raises(InvalidField, match="another log"):
            compare_with_log(memory_log, parse_checkpoint(make_checkpoint(other, OWN).text))


# ---- cosigning


def test_a_peer_cosigns_and_the_log_keeps_it(log: Log) -> None:
    with a_log(MemoryStore(identity=signed_identity(WITNESS))) as peer:
        for more in (5, 300):
            record(log, more)
            note = make_checkpoint(log, OWN)
            made = parse_checkpoint(note.text)
            proof = log.tree.consistency(seen_size(peer, made.origin), made.size)
            done = cosign_for(peer, WITNESS, note, proof, now_s=1_700_000_000 + more)
            assert take_cosigned(log, done).cosigned == ((WITNESS.public.origin, 1_700_000_000 + more),)
        kept = last_checkpoint(log)
        assert kept is not None
        assert who_signed(kept).cosigned == ((WITNESS.public.origin, 1_700_000_300),)
        assert make_checkpoint(log, OWN) == kept  # nothing was recorded since
        assert seen_size(peer, made.origin) == 305


def test_a_peer_does_not_cosign_another_history(memory_log: Log) -> None:
    record(memory_log, 20)
    note = make_checkpoint(memory_log, OWN)
    with a_log(MemoryStore(identity=signed_identity(WITNESS))) as peer:
        cosign_for(peer, WITNESS, note, [])
        name = parse_checkpoint(note.text).origin
        forged = replace(parse_checkpoint(note.text), size=21, root=bytes(32))
        with pytest.raises(HistoryChanged):
            cosign_for(peer, WITNESS, sign(Note(forged.text), name, OWN), [bytes(32)])
        assert seen_size(peer, name) == 20


def test_cosignatures_of_another_checkpoint_are_not_kept(memory_log: Log) -> None:
    record(memory_log, 2)
    old = make_checkpoint(memory_log, OWN)
    record(memory_log, 2)
    make_checkpoint(memory_log, OWN)
    with pytest.raises(NotFound):
        take_cosigned(memory_log, old)


# ---- heads


def test_copies_have_equal_heads(log: Log) -> None:
    record(log, 12)
    peer = a_log(MemoryStore(identity=replace(signed_identity(OTHER), log_id=log.identity.log_id)))
    with peer:
        events = [recorded.event for recorded in log.read()]
        peer.admit(events[6:])
        peer.admit(events[:6])
        assert make_heads(peer, OTHER).text == make_heads(log, OWN).text
        assert who_signed(make_heads(peer, OTHER)).by == OTHER.public.origin
        record(peer, 1)
        assert make_heads(peer, OTHER).text != make_heads(log, OWN).text
