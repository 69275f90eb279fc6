"""Named attacks on admission: nothing hostile is recorded, the honest events of the batch are, and `verify` is ok.

Each attack is a function that returns events as Eve sends them, and the code that each gets. Eve is a member whose
key is pinned, as are Ada and Bob. What a whole community is asked to believe is at the end.
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.conftest import CATALOG
from tests.programs.community.test_standing import Person, World, member_names
from tests.programs.community.test_standing import node as community_node
from tests.trust.signing import LOG_ID, Author, id_of, unproven

from everlog.core.clock import JUMP_MAX
from everlog.core.codec import proof
from everlog.core.event import Event
from everlog.core.ids import id_uuid
from everlog.core.merkle import root
from everlog.log.admit.admission import Gate
from everlog.log.admit.outcomes import CODES
from everlog.log.log import Log
from everlog.log.records import FORGETS, FORGOTTEN, PURGED, PURGES, listed
from everlog.stores.contract import Identity, encode_event
from everlog.stores.memory import MemoryStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import event
from everlog.trust.group_signature import GroupSignature, proof_of, signed_message
from everlog.trust.keys import _base58
from everlog.trust.standing import Pinned

ORDER = 2**252 + 27742317777372353535851937790883648493


class Scene:
    """Three members, and what each has sent before."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.ada, self.bob, self.eve = (Author(seed) for seed in (1, 2, 3))
        self.stranger = Author(9)
        log.writer._made_gate = Gate(Pinned([one.origin for one in (self.ada, self.bob, self.eve)]))
        self.before = [one for author in (self.ada, self.bob, self.eve) for one in author.write(3)]
        assert {one.kind for one in log.admit_each(self.before)} == {"recorded"}

    def signed_as(self, by: Author, **changes: Any) -> Event:
        """An event with these fields that a key has signed, as the next of its chain."""
        (made,) = by.write(1)
        changed = replace(made, **changes)
        hash = encode_event(changed).hash
        signature = by.key.sign(signed_message(LOG_ID, changed.origin, changed.origin_seq, 1, root([hash])))
        return replace(changed, signature=proof(signature, (changed.origin_seq, 1)), path=())


class Sent(NamedTuple):
    events: list[Event]
    codes: list[str]
    groups: Sequence[GroupSignature] = ()
    sent_for: str = ""


Attack = Callable[[Scene], Sent]
ATTACKS: dict[str, Attack] = {}


def attack(make: Callable[[Scene], Sent | tuple[Event, str]]) -> None:
    def sent(scene: Scene) -> Sent:
        found = make(scene)
        return found if isinstance(found, Sent) else Sent([found[0]], [found[1]])

    ATTACKS[make.__name__] = sent


# ---- signatures


@attack
def a_signature_with_a_greater_s(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    signature, first, count = proof_of(made)
    other = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    return replace(made, signature=proof(other, (first, count))), "invalid_signature"


@attack
def a_signature_by_another_key(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    hash = encode_event(made).hash
    signature = scene.eve.key.sign(signed_message(LOG_ID, made.origin, made.origin_seq, 1, root([hash])))
    return replace(made, signature=proof(signature, (made.origin_seq, 1))), "invalid_signature"


@attack
def a_signature_that_was_removed(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(1)[0], signature=b"", path=()), "invalid_signature"


@attack
def a_signature_that_was_cut(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    return replace(made, signature=made.signature[:-1]), "invalid_signature"


@attack
def a_signature_of_a_megabyte(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(1)[0], signature=b"x" * 1_000_000), "invalid_signature"


@attack
def a_path_that_was_removed(scene: Scene) -> Sent:
    sent = [replace(one, path=()) for one in scene.bob.write(3)[1:]]
    return Sent(sent, ["invalid_signature"] * 2)


@attack
def a_path_of_another_event(scene: Scene) -> Sent:
    sent = scene.bob.write(4)
    return Sent([replace(sent[1], path=sent[2].path), replace(sent[2], path=sent[1].path)], ["invalid_signature"] * 2)


@attack
def a_path_with_a_thousand_hashes(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(3)[0], path=(b"x" * 32,) * 1000), "invalid_signature"


@attack
def a_group_with_a_wrong_count(scene: Scene) -> Sent:
    sent = scene.bob.write(3)
    (group,) = scene.bob.groups[-1:]
    return Sent(unproven(sent[:2]), ["invalid_signature"] * 2, [replace(group, count=2)])


@attack
def a_group_with_a_wrong_first_number(scene: Scene) -> Sent:
    sent = scene.bob.write(3)
    (group,) = scene.bob.groups[-1:]
    return Sent(unproven(sent), ["invalid_signature"] * 3, [replace(group, first_seq=group.first_seq - 1)])


@attack
def a_group_of_another_origin(scene: Scene) -> Sent:
    sent = scene.bob.write(2)
    (group,) = scene.bob.groups[-1:]
    return Sent(unproven(sent), ["invalid_signature"] * 2, [replace(group, origin=scene.eve.origin)])


@attack
def groups_without_events_or_with_a_billion(scene: Scene) -> Sent:
    sent = scene.bob.write(2)
    (group,) = scene.bob.groups[-1:]
    counts = (0, -1, 2**53, 10**9)
    return Sent(unproven(sent), ["invalid_signature"] * 2, [replace(group, count=count) for count in counts])


@attack
def a_proof_with_a_count_of_a_billion(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    signature, first, _ = proof_of(made)
    return replace(made, signature=proof(signature, (first, 10**9))), "invalid_signature"


@attack
def a_key_of_small_order(scene: Scene) -> tuple[Event, str]:
    """Its signature would be valid for every message."""
    raw = bytes([1]) + bytes(31)
    origin = "z" + _base58(b"\xed\x01" + raw)
    made = replace(scene.eve.write(1)[0], origin=origin, id=id_of(origin, 1, _now_ms()), origin_seq=1, previous=b"")
    return replace(made, signature=proof(raw + bytes(32), (1, 1)), path=()), "invalid_signature"


@attack
def an_origin_that_only_looks_like_a_key(scene: Scene) -> tuple[Event, str]:
    origin = "z6Mk" + "1" * 44
    made = replace(scene.eve.write(1)[0], origin=origin, id=id_of(origin, 4, _now_ms()))
    return made, "invalid_signature"


@attack
def a_key_in_another_spelling(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    return replace(made, origin=f"did:key:{made.origin}"), "invalid_signature"


@attack
def a_signature_under_the_name_of_an_unsigned_origin(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.eve.write(1)
    return replace(made, origin="01TESTNODE0000000000000009", id=event().id), "invalid_signature"


@attack
def a_signature_of_zeros(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    return replace(made, signature=proof(bytes(64), (made.origin_seq, 1))), "invalid_signature"


@attack
def a_signature_with_another_point(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    signature, first, count = proof_of(made)
    other = bytes([signature[0] ^ 1]) + signature[1:]
    return replace(made, signature=proof(other, (first, count))), "invalid_signature"


@attack
def a_signature_of_an_older_group(scene: Scene) -> Sent:
    """What Bob signed for events 1 to 3 is sent with events 4 to 6."""
    (group,) = scene.bob.groups[-1:]
    sent = scene.bob.write(3)
    return Sent(unproven(sent), ["invalid_signature"] * 3, [group, replace(group, first_seq=4)])


@attack
def a_key_in_a_second_encoding(scene: Scene) -> tuple[Event, str]:
    """The same point, with a coordinate that is not reduced: 2^255 - 19 + 1."""
    return _under_key(scene, (2**255 - 18).to_bytes(32, "little")), "invalid_signature"


@attack
def a_key_that_is_no_point(scene: Scene) -> tuple[Event, str]:
    return _under_key(scene, (2).to_bytes(32, "little")), "invalid_signature"


def _under_key(scene: Scene, raw: bytes) -> Event:
    origin = "z" + _base58(b"\xed\x01" + raw)
    made = replace(scene.eve.write(1)[0], origin=origin, id=id_of(origin, 1, _now_ms()), origin_seq=1, previous=b"")
    return replace(made, signature=proof(bytes(64), (1, 1)), path=())


# ---- content


@attack
def a_payload_that_looks_the_same(scene: Scene) -> Sent:
    """One character in two forms, a number and a text, true and 1: each is another payload."""
    twins: list[tuple[Any, Any]] = [("\u00e9", "e\u0301"), (1, "1"), (1, True)]
    made = [scene.bob.write(1, payload={"text": one})[0] for one, _ in twins]
    sent = [replace(one, payload={"text": twin}) for one, (_, twin) in zip(made, twins, strict=True)]
    return Sent(sent, ["invalid_signature"] * 3)


@attack
def a_payload_with_one_member_more(scene: Scene) -> tuple[Event, str]:
    (made,) = scene.bob.write(1)
    return replace(made, payload={**made.payload, "": None}), "invalid_signature"


@attack
def a_changed_payload(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(1)[0], payload={"text": "forged"}), "invalid_signature"


@attack
def a_removed_payload(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(1)[0], payload={}, salt=b""), "invalid_signature"


@attack
def a_changed_salt(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(1)[0], salt=b"0" * 16), "invalid_signature"


@attack
def a_changed_author(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(1)[0], actor="user:eve"), "invalid_signature"


@attack
def a_changed_stream(scene: Scene) -> tuple[Event, str]:
    return replace(scene.bob.write(1)[0], stream="note/elsewhere"), "invalid_signature"


@attack
def a_forged_erasure(scene: Scene) -> tuple[Event, str]:
    """The payload is withheld, and an erasure is named that nobody recorded."""
    (made,) = scene.bob.write(1)
    return replace(made, payload={}, salt=b"", erased_by=scene.before[0].id), "invalid_signature"


@attack
def a_payload_of_a_thousand_levels(scene: Scene) -> tuple[Event, str]:
    deep: Any = 1
    for _ in range(1000):
        deep = [deep]
    return replace(scene.bob.write(1)[0], payload={"text": deep}), "schema_unknown"


@attack
def numbers_that_json_does_not_have(scene: Scene) -> Sent:
    made = scene.bob.write(3)
    values = (float("nan"), float("inf"), 10**400)
    sent = [replace(one, payload={"text": value}) for one, value in zip(made, values, strict=True)]
    return Sent(sent, ["schema_unknown"] * 3)


@attack
def half_a_character(scene: Scene) -> Sent:
    made = scene.bob.write(2)
    sent = [replace(made[0], payload={"text": "\ud800"}), replace(made[1], actor="user:\ud800")]
    return Sent(sent, ["schema_unknown"] * 2)


@attack
def names_that_no_log_makes(scene: Scene) -> Sent:
    made = scene.bob.write(6)
    wrong: list[dict[str, Any]] = [
        {"stream": "nostream"},
        {"type": "No Type"},
        {"actor": "x" * 10_000},
        {"scope": "a b\n"},
        {"tags": {"": "x"}},
        {"request_id": "\x1b[2J"},
    ]
    return Sent([replace(one, **fields) for one, fields in zip(made, wrong, strict=True)], ["schema_unknown"] * 6)


@attack
def hashes_of_another_length(scene: Scene) -> Sent:
    made = scene.bob.write(2)
    sent = [replace(made[0], commitment=b"x" * 31), replace(made[1], previous=b"x" * 33)]
    return Sent(sent, ["schema_unknown"] * 2)


# ---- ids


@attack
def the_id_of_another_author_afterwards(scene: Scene) -> tuple[Event, str]:
    return scene.signed_as(scene.eve, id=scene.before[0].id), "id_conflict"


@attack
def the_id_of_another_author_beforehand(scene: Scene) -> tuple[Event, str]:
    """Ada's next event still gets its id: see `test_an_attack_changes_nothing`."""
    following = scene.ada.number + 1
    return scene.signed_as(scene.eve, id=id_of(scene.ada.origin, following, 1_763_000_000_000)), "id_conflict"


@attack
def another_spelling_of_a_known_id(scene: Scene) -> Sent:
    known = scene.before[3]
    spelt = [
        replace(known, id=text) for text in (known.id.lower(), str(id_uuid(known.id)), known.id.replace("0", "O"))
    ]
    return Sent(spelt, ["schema_unknown"] * 3)


@attack
def an_id_from_the_future(scene: Scene) -> tuple[Event, str]:
    ahead = _now_ms() + 25 * 3600 * 1000
    return scene.signed_as(scene.eve, id=id_of(scene.eve.origin, 4, ahead)), "clock_too_far"


@attack
def the_id_of_another_number_of_the_same_key(scene: Scene) -> tuple[Event, str]:
    return scene.signed_as(scene.eve, id=id_of(scene.eve.origin, 9, 1_763_000_000_000)), "id_conflict"


@attack
def the_ids_of_members_under_a_name_of_nobody(scene: Scene) -> Sent:
    """Ids that Ada has, that she makes next, and that Bob may make much later."""
    taken = [
        scene.before[0].id,
        id_of(scene.ada.origin, 4, 1_763_000_000_000),
        id_of(scene.bob.origin, 900, _now_ms()),
    ]
    sent = [event(id=one, origin="01TESTNODE0000000000000009", origin_seq=1 + at) for at, one in enumerate(taken)]
    return Sent(sent, ["id_conflict"] * 3)


# ---- clocks and numbers


@attack
def a_clock_at_its_end(scene: Scene) -> tuple[Event, str]:
    return scene.signed_as(scene.eve, lamport=2**53 - 1), "clock_too_far"


@attack
def a_chain_with_a_hole(scene: Scene) -> Sent:
    sent = scene.eve.write(4)
    return Sent(sent[1:], ["out_of_order"] * 3)


@attack
def a_clock_far_ahead(scene: Scene) -> tuple[Event, str]:
    return scene.signed_as(scene.eve, lamport=JUMP_MAX + 1000), "clock_too_far"


@attack
def clocks_that_do_not_exist(scene: Scene) -> Sent:
    sent = [scene.signed_as(scene.eve, lamport=number) for number in (0, -1, 2**53)]
    return Sent(sent, ["schema_unknown"] * 3)


@attack
def numbers_that_do_not_exist(scene: Scene) -> Sent:
    made = scene.eve.write(3)
    sent = [replace(one, origin_seq=number) for one, number in zip(made, (0, -1, 2**60), strict=True)]
    return Sent(sent, ["schema_unknown"] * 3)


@attack
def a_number_a_billion_ahead(scene: Scene) -> tuple[Event, str]:
    scene.eve.number = 10**9
    return scene.eve.write(1)[0], "out_of_order"


@attack
def a_version_that_does_not_exist(scene: Scene) -> tuple[Event, str]:
    return replace(scene.eve.write(1)[0], version=0), "schema_unknown"


@attack
def a_time_in_another_zone_or_in_none(scene: Scene) -> Sent:
    made = scene.eve.write(2)
    times = (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 1, 1))
    return Sent([replace(one, occurred_at=at) for one, at in zip(made, times, strict=True)], ["schema_unknown"] * 2)


@attack
def an_event_that_does_not_follow_its_chain(scene: Scene) -> tuple[Event, str]:
    return scene.signed_as(scene.eve, previous=b"x" * 32), "fork"


@attack
def a_second_first_event(scene: Scene) -> tuple[Event, str]:
    """The chain begins again: both proofs are kept, and Eve's chain ends before them."""
    again = Author(3)
    return again.write(1, payload={"text": "other"})[0], "fork"


@attack
def an_event_of_a_stranger(scene: Scene) -> tuple[Event, str]:
    return scene.stranger.write(1)[0], "unknown_author"


@attack
def an_event_of_this_log_that_it_never_made(scene: Scene) -> Sent:
    own = scene.log.identity.origin
    return Sent([event(origin=own, origin_seq=1), event(origin=own, origin_seq=7)], ["fork"] * 2)


@attack
def records_of_removals_by_a_stranger(scene: Scene) -> Sent:
    """They list what Ada has written, and what she writes next."""
    of_ada = (*scene.before[:3], *scene.ada.twin().write(4))
    (places,) = listed((one.origin, one.origin_seq, encode_event(one).hash) for one in of_ada)
    purged = {"stream": "note/1", "reason": "hostile", "removed": places}
    erased = {"keys": [], "erased": places, "follows": ""}
    sent = scene.stranger.write(1, type=PURGED, stream=PURGES, payload=purged)
    sent += scene.stranger.write(1, type=FORGOTTEN, stream=FORGETS, payload=erased)
    return Sent(sent, ["unknown_author"] * 2)


@attack
def records_of_removals_behind_a_hole(scene: Scene) -> Sent:
    """Eve is a member, and leaves out the event before them."""
    of_ada = (*scene.before[:3], *scene.ada.twin().write(4))
    (places,) = listed((one.origin, one.origin_seq, encode_event(one).hash) for one in of_ada)
    scene.eve.write(1)
    payload = {"stream": "note/1", "reason": "hostile", "removed": places}
    sent = scene.eve.write(1, type=PURGED, stream=PURGES, payload=payload)
    sent += scene.eve.write(1, type=FORGOTTEN, stream=FORGETS, payload={"keys": [], "erased": places, "follows": ""})
    return Sent(sent, ["out_of_order"] * 2)


# ---- other logs


@attack
def an_event_that_was_signed_for_another_log(scene: Scene) -> Sent:
    elsewhere = Author(2, "01K9ZZZZZZZZZZZZZZZZZZZZZ0")
    return Sent(elsewhere.write(2), ["invalid_signature"] * 2)


@attack
def a_succession_without_the_successor(scene: Scene) -> Sent:
    """It is recorded as what it is: an event that states nothing. Ada's key goes to nobody."""
    from everlog.trust.succession import SUCCEEDED, succeeded_by

    payload = succeeded_by(LOG_ID, scene.ada.origin, scene.eve.key)
    forged = scene.signed_as(scene.eve, type=SUCCEEDED, origin=scene.ada.origin)
    stated = {"successor": payload.successor, "proof": payload.proof}
    return Sent([replace(forged, payload=stated), *scene.stranger.write(1)], ["invalid_signature", "unknown_author"])


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    identity = Identity(log_id=LOG_ID, origin="01TESTNODE0000000000000001", epoch="epoch1", created_us=1)
    store = MemoryStore(identity=identity) if request.param == "memory" else None
    return Scene(Log(store or SqliteStore(tmp_path / "log.db", identity=identity), CATALOG))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_changes_nothing(scene: Scene, name: str) -> None:
    log, before = scene.log, scene.log.head()
    sent = ATTACKS[name](scene)
    ada = scene.ada.write(4)
    mixed = [(one, code) for one, code in zip(sent.events, sent.codes, strict=True)] + [(one, "") for one in ada]
    random.Random(name).shuffle(mixed)
    outcomes = log.admit_each([one for one, _ in mixed], sent.groups, sender="peer:eve")
    for (_, code), outcome in zip(mixed, outcomes, strict=True):
        if code:
            assert outcome.kind in ("refused", "held"), (name, outcome)
            assert outcome.code == code, (name, outcome)
            assert code in CODES
        else:
            assert outcome.kind == "recorded", (name, outcome)
    recorded = [record.event for record in log.stored.read(after=before)]
    assert [one.id for one in recorded] == [one.id for one in ada]
    for refusal in log.refusals():
        assert (refusal.actor, refusal.operation) == ("peer:eve", "admit")
    # A second time, and one by one, it is the same; and Ada is still heard.
    again = [log.admit_each([one], sent.groups)[0] for one in sent.events]
    assert {outcome.kind for outcome in again} <= {"refused", "held"}
    more = scene.ada.write(1)
    assert [outcome.kind for outcome in log.admit_each(more)] == ["recorded"]
    assert log.writer.write(lambda write: write.link(scene.eve.origin).origin_seq) <= 3
    own = log.append("thing.said", stream="thing/1").event
    assert own.lamport < 10_000
    report = log.verify()
    assert report.ok
    assert report.faults == ()
    assert not [one for one in recorded if not log.verdicts().counts(one)]
    log.close()


def test_an_event_that_was_sent_for_another_log_is_named(scene: Scene) -> None:
    sent = scene.bob.write(2)
    assert {one.code for one in scene.log.admit_each(sent, sent_for="01K9ZZZZZZZZZZZZZZZZZZZZZ0")} == {
        "replayed_elsewhere"
    }


def test_groups_that_overlap_are_stored_once(scene: Scene) -> None:
    """A member signs the same events in two groups. It gains nothing, and both proofs stay valid."""
    sent = scene.eve.write(4)
    hashes = [encode_event(one).hash for one in sent]
    first = sent[0].origin_seq
    groups = []
    for start, count in ((0, 3), (1, 3), (0, 4), (3, 1)):
        message = signed_message(LOG_ID, scene.eve.origin, first + start, count, root(hashes[start : start + count]))
        groups.append(GroupSignature(scene.eve.origin, first + start, count, scene.eve.key.sign(message)))
    assert {one.kind for one in scene.log.admit_each(unproven(sent), groups)} == {"recorded"}
    assert [one.kind for one in scene.log.admit_each(unproven(sent), groups[::-1])] == ["known"] * 4
    assert scene.log.head() == len(scene.before) + 4
    assert scene.log.verify().ok


def test_a_twin_in_another_form_of_a_number_is_the_same_event(scene: Scene) -> None:
    (made,) = scene.bob.write(1, payload={"text": 1})
    assert [one.kind for one in scene.log.admit_each([made, replace(made, payload={"text": 1.0})])] == [
        "recorded",
        "recorded",
    ]
    assert scene.log.head() == len(scene.before) + 1


def test_a_purged_event_never_comes_back(scene: Scene) -> None:
    log = scene.log
    log.purge("note/1", reason="asked to")
    gone = [one for one in scene.before if one.stream == "note/1"]
    forged = [replace(one, payload={"text": "again"}) for one in gone]
    assert {one.code for one in log.admit_each([*gone, *forged])} == {"purged", "invalid_signature"}
    assert log.verify().ok


def test_an_erased_event_is_taken_with_the_record_that_lists_it(scene: Scene) -> None:
    """In one batch, before the record, or after it."""
    sent = scene.bob.write(2)
    bare = replace(sent[0], payload={}, salt=b"")
    hash = b64encode(encode_event(bare).hash).decode()
    payload = {"keys": [], "erased": {bare.origin: [[bare.origin_seq, hash]]}, "follows": ""}
    record = scene.bob.write(1, type="subject.forgotten", stream="log/forgets", payload=payload)
    assert [one.kind for one in scene.log.admit_each([bare, *sent[1:]])] == ["refused", "held"]
    assert [one.kind for one in scene.log.admit_each([*record])] == ["held"]
    assert [one.kind for one in scene.log.admit_each([bare])] == ["recorded"]
    assert scene.log.head() == len(scene.before) + 3
    (found,) = [one.event for one in scene.log.stored.read() if one.event.id == bare.id]
    assert (found.payload, found.erased_by) == ({}, record[0].id)
    assert scene.log.verify().ok


def test_a_clock_is_not_carried_away_in_steps(scene: Scene) -> None:
    """A member raises the clock by at most the jump with each of its events, and one batch ticks it once."""
    sent = [scene.signed_as(scene.eve, lamport=1000 + number) for number in range(3)]
    scene.log.admit_each(sent)
    assert scene.log.append("thing.said", stream="thing/1").event.lamport <= 1004


# ---- a community


def test_two_admins_who_revoke_each_other_end_the_same_way_everywhere() -> None:
    world = World()
    ann, ben = world.member("ann", 2, role="admin"), world.member("ben", 3, role="admin")
    one, other = world.revoke(ann, ben, {ben.origin: 1}), world.revoke(ben, ann, {ann.origin: 1})
    found = []
    for order in ([one, other], [other, one]):
        log = community_node(world)
        log.admit_each(world.events[:-2])
        for each in order:
            log.admit_each([each])
        found.append((member_names(log, world), str(log.verdicts()) != ""))
        assert log.verify().ok
    assert found[0][0] == found[1][0]
    assert found[0][0]["user:ann"] == "member"  # an admin for longer
    assert found[0][0]["user:ben"] == "revoked"


def test_an_old_clock_helps_no_revoked_member() -> None:
    world = World()
    bob = world.member("bob", 2, role="admin")
    world.revoke(world.ada, bob)
    log = community_node(world)
    log.admit_each(world.events)
    late = [
        world.act(bob, "community.member.promoted", member=bob.actor, role="admin", lamport=2),
        world.revoke(bob, world.ada, {world.ada.origin: 0}),
    ]
    assert {one.code for one in log.admit_each(late)} == {"revoked_author"}
    assert member_names(log, world) == {"user:ada": "member", "user:bob": "revoked"}


def test_nobody_else_creates_the_community_with_an_older_clock() -> None:
    world = World()
    eve = Person("eve", 9)
    earlier = world.say(
        eve.author,
        "user:ada",
        "community.created",
        f"community/{world.community}",
        {"name": "x", "about": ""},
        lamport=1,
    )
    log = community_node(world)
    assert [one.code for one in log.admit_each([earlier])] == ["unknown_author"]
    assert [one.kind for one in log.admit_each(world.events[:1])] == ["recorded"]
    assert [one.code for one in log.admit_each([earlier])] == ["unknown_author"]
    assert member_names(log, world) == {"user:ada": "member"}


def test_a_member_who_speaks_as_another_is_not_heard() -> None:
    world = World()
    bob, cyd = world.member("bob", 2), world.member("cyd", 3)
    log = community_node(world)
    log.admit_each(world.events)
    as_cyd = world.say(
        bob.author,
        cyd.actor,
        "community.member.revoked",
        f"community/{world.community}",
        {"member": cyd.actor, "upto": {}, "reason": ""},
    )
    log.admit_each([as_cyd])
    assert member_names(log, world)["user:cyd"] == "member"
