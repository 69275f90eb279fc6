"""Keys of persons travel to the nodes of members, sealed to each, and what one node forgets others forget, too."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from nacl.bindings import crypto_box_seal, crypto_sign_ed25519_pk_to_curve25519
from tests.application.trust.forgetting import BEFORE, CATALOG, OPEN, SEALED, STAYS, Emails, files_with, register
from tests.support.http_nodes import reachable, sync
from tests.support.nodes import STORES, close, new_log_id, open_node

import everlog
from everlog.application.sync.forgets import follow_pending
from everlog.application.sync.peers import add_peer, may_have_keys
from everlog.application.trust.forget import finish, follow, forget, pending, status
from everlog.application.trust.owned_bytes import Owned
from everlog.catalog.personal import Personal
from everlog.errors import InvalidSettings
from everlog.log.log import Log
from everlog.log.write import prepare
from everlog.sync import subject_keys
from everlog.sync.exchange import KEYS, Node
from everlog.sync.wire import Keys, decode, encode
from everlog.testing.signing import key
from everlog.trust.ring import KeyRing, Travelling
from everlog.trust.sealing import Sealing, key_id_of, seal
from everlog.trust.signer import KeysInMemory
from everlog.trust.standing import Pinned
from everlog.views.registry import Views


class Shops:
    """Nodes of one log, each with its own key and ring, that know each other."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store, self.folder, self.log_id = store, folder, new_log_id()
        self.nodes: list[Node] = []

    def open(
        self, number: int, *, knows: tuple[int, ...] = (1, 2, 3), types: everlog.Catalog = CATALOG, **more: Any
    ) -> Node:
        catalog, own = everlog.Catalog(), key(number)
        catalog.include(types)
        sealing = Sealing(partial(KeyRing, self.folder / f"ring{number}", node_keys=[own]))
        made = open_node(
            self.store,
            self.folder,
            self.log_id,
            f"s{number}",
            keys=[own],
            catalog=catalog,
            sealing=sealing,
            make_views=Views,
            **more,
        )
        for other in knows:
            add_peer(made.log, key(other).public.origin)
        node = with_rules(made.log)
        self.nodes.append(node)
        return node


def with_rules(log: Log, *, follow: bool = True) -> Node:
    def on_forgotten() -> None:
        if follow:
            follow_pending(log, Owned)

    return Node(log, on_forgotten=on_forgotten, may_have_keys=partial(may_have_keys, log))


@pytest.fixture(params=STORES)
def shops(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shops]:
    made = Shops(request.param, tmp_path / "shops")  # a test puts a backup beside it
    made.folder.mkdir()
    yield made
    close(made.nodes)


def emails(node: Node) -> list[str]:
    return [str(one.event.payload.get("email", "erased")) for one in node.log.read() if one.event.kind == "customer"]


def ring(node: Node) -> KeyRing:
    assert node.log.sealing is not None
    return node.log.sealing.ring


def test_the_keys_of_persons_reach_a_member_and_views_are_derived_again(shops: Shops) -> None:
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    assert other.sync_with(lambda name, body: one.answer(name, body) if name != KEYS else _nothing(one)).equal
    assert other.log.view(Emails).get("customer/1").state == {"email": "[sealed]"}
    with reachable(one) as (url,):
        done = sync(other, url)
        assert (done.equal, done.received_count) == (True, 0)
        assert emails(other) == [SEALED]
        assert other.log.view(Emails).get("customer/1").state == {"email": SEALED}
        register(other.log, "c/2", STAYS)
        assert sync(other, url).equal  # the node that asks gives its keys, too
        assert emails(one) == emails(other) == [SEALED, STAYS]
        assert sync(other, url).round_trips == 1
    assert all(SEALED.encode() not in slot.payload for node in shops.nodes for slot in node.log.stored.slots())  # type: ignore[union-attr]


def _nothing(node: Node) -> bytes:
    return encode(Keys(community_id=node.log_id))


def test_a_node_that_takes_a_new_key_gets_the_keys_of_persons_under_it(shops: Shops) -> None:
    one, other = shops.open(1, knows=()), shops.open(2)
    register(other.log, "c/2", STAYS)  # its ring is open by now
    new = key(7)
    other.log._signer._keys._keys[new.public.origin] = new  # type: ignore[union-attr]
    other.log.rotate_key(to=new.public.origin)
    add_peer(one.log, new.public.origin)
    register(one.log, "c/1", SEALED)
    assert other.sync_with(one.answer).equal
    assert emails(other) == [STAYS, SEALED]


def test_a_stranger_gets_no_keys(shops: Shops) -> None:
    one, stranger = shops.open(1, knows=(2, 3)), shops.open(9, knows=(1,))
    register(one.log, "c/1", SEALED)
    with reachable(one) as (url,):
        assert sync(stranger, url).equal  # it listens to everybody
    assert emails(stranger) == ["[sealed]"]


def test_a_member_that_was_revoked_gets_no_keys(shops: Shops) -> None:
    one = shops.open(1, make_standing=lambda: Pinned([key(1).public.origin, key(2).public.origin]))
    register(one.log, "c/1", SEALED)
    (key_id,) = ring(one).ids_of("c/1")
    assert one.keys.box_for(key(2).public.origin, [key_id])
    assert not one.keys.box_for(key(3).public.origin, [key_id])  # a peer, and its chain does not count


def test_a_wrong_key_is_not_taken_whoever_sends_it(shops: Shops) -> None:
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    (key_id,) = ring(one).ids_of("c/1")
    forger = KeyRing(None, node_keys=[key(3)])
    forger._add([Travelling(key_id, "c/1", bytes(32))])
    box = forger.sealed_for(key(2).public, [key_id])
    assert other.sync_with(lambda name, body: one.answer(name, body) if name != KEYS else _nothing(one)).equal
    other.answer(KEYS, encode(Keys(community_id=other.log_id, box=box)))
    assert ring(other).key(key_id) is None
    assert other.sync_with(one.answer).equal
    assert emails(other) == [SEALED]


def test_a_box_with_something_else_in_it_is_dropped(shops: Shops) -> None:
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    assert other.sync_with(lambda name, body: one.answer(name, body) if name != KEYS else _nothing(one)).equal
    deep = b"\x91" + b"\x94\xa1x\xa1x\xc4\x00" + b"\x91" * 100_000 + b"\xc0"
    for content in (b"", b"\x91", b"\xc1", b"\x91\x90", deep):
        box = crypto_box_seal(content, crypto_sign_ed25519_pk_to_curve25519(key(2).public.raw))
        other.answer(KEYS, encode(Keys(community_id=other.log_id, box=box)))
    assert other.sync_with(one.answer).equal
    assert emails(other) == [SEALED]


def test_what_a_member_seals_stops_no_reader_and_no_forget(shops: Shops) -> None:
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    assert other.sync_with(one.answer).equal
    ((key_id, secret),) = ring(one).keys_of(["c/1"]).values()
    deep = b"[" * 10_000 + b"]" * 10_000
    envelope = seal(deep, key=secret, key_id=key_id, event_type="customer.registered", field="email", nonce=bytes(24))
    hostile = shops.open(3, types=BEFORE)
    register(hostile.log, "c/1", envelope)
    other.sync_with(hostile.answer)
    assert emails(other) == [SEALED, "[sealed]"]
    assert other.log.view(Emails).get("customer/1").state == {"email": "[sealed]"}
    forget(other.log, "c/1", owned=Owned())
    assert emails(other)[0] == "[sealed]"


def send_as(shops: Shops, one: Node, other: Node, person: str) -> None:
    """Send the key of c/1 to the other node as the one of another person: every member has it."""
    ((key_id, secret),) = ring(one).keys_of(["c/1"]).values()
    forger = KeyRing(None, node_keys=[key(3)])
    forger._add([Travelling(key_id, person, secret)])
    box = forger.sealed_for(key(2).public, [key_id])
    other.answer(KEYS, encode(Keys(community_id=other.log_id, box=box)))


def record_again(shops: Shops, one: Node, *persons: str) -> Node:
    """Have a member record an envelope of c/1 for others: its program does not know that the field is personal."""
    envelope = next(found.event.payload["email"] for found in one.log.stored.read())
    replaying = shops.open(3, types=BEFORE)
    for person in persons:
        register(replaying.log, person, envelope)
    return replaying


def test_a_key_is_not_taken_for_a_person_whom_no_envelope_is_about(shops: Shops) -> None:
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    assert other.sync_with(lambda name, body: one.answer(name, body) if name != KEYS else _nothing(one)).equal
    send_as(shops, one, other, "c/2")
    assert ring(other).ids_of("c/2") == []
    assert other.sync_with(one.answer).equal
    assert emails(other) == [SEALED]


def test_an_envelope_that_is_recorded_again_does_not_keep_a_key_away(shops: Shops) -> None:
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    other.sync_with(record_again(shops, one, *(f"c/{number}" for number in range(9, 15))).answer)
    assert SEALED not in emails(other)
    other.sync_with(one.answer)
    assert emails(other) == [SEALED] * 7


def test_nothing_is_sealed_with_a_key_that_came(shops: Shops) -> None:
    """Whose it is cannot be proved: an envelope can be recorded again for another person, and the key be sent so."""
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    other.sync_with(record_again(shops, one, "c/2").answer)
    send_as(shops, one, other, "c/2")
    assert ring(other).ids_of("c/2") == ring(one).ids_of("c/1")  # it was taken
    register(other.log, "c/2", STAYS)
    assert emails(other) == [SEALED, STAYS]
    for _ in range(2):
        other.sync_with(one.answer)
    forget(one.log, "c/1", owned=Owned())
    for _ in range(2):
        other.sync_with(one.answer)
    for node in (one, other):
        assert sorted(emails(node)) == ["[sealed]", "[sealed]", STAYS]


def test_who_made_a_key_does_not_destroy_it_for_a_person_whose_name_was_put_on_it(shops: Shops) -> None:
    one = shops.open(1)
    register(one.log, "c/1", SEALED)
    one.sync_with(record_again(shops, one, "c/2").answer)
    register(one.log, "c/2", STAYS)
    forget(one.log, "c/2", owned=Owned())
    assert emails(one) == [SEALED, SEALED, "[sealed]"]
    forget(one.log, "c/1", owned=Owned())
    assert emails(one) == ["[sealed]"] * 3


@pytest.mark.parametrize("forgets", [0, 1, 2])
def test_a_forget_destroys_the_keys_that_each_node_made_and_got(shops: Shops, forgets: int) -> None:
    nodes = [shops.open(1), shops.open(2), shops.open(3)]
    for node in nodes:
        nodes[0].sync_with(node.answer)
        register(node.log, "c/1", SEALED)
        register(node.log, "c/2", STAYS)

    def sync_all() -> None:
        for _ in range(3):
            for node in nodes[1:]:
                node.sync_with(nodes[0].answer)

    sync_all()
    assert len({key_id for node in nodes for key_id in ring(node).ids_of("c/1")}) == 3
    for node in nodes:
        assert len(ring(node).ids_of("c/1")) == 3
        assert emails(node) == [SEALED, STAYS] * 3
        node.log.view(Emails).catch_up()
        assert node.log.view(Emails).get("customer/1").state == {"email": SEALED}
    (receipt,) = forget(nodes[forgets].log, "c/1", owned=Owned())
    assert len(receipt.forget.keys) == 3
    sync_all()
    for node in nodes:
        assert ring(node).held(receipt.forget.keys) == ring(node).ids_of("c/1") == []
        assert emails(node) == ["[sealed]", STAYS] * 3
        node.log.view(Emails).catch_up()
        assert node.log.view(Emails).get("customer/1").state == {"email": "[sealed]"}
        assert node.log.view(Emails).get("customer/2").state == {"email": STAYS}
        assert (node.log.verify().ok, pending(node.log)) == (True, [])
    if shops.store != "memory":
        assert files_with(shops.folder, SEALED) == []


class Older(msgspec.Struct):
    customer: str
    email: Annotated[str, Personal(of="customer")]


class Newer(msgspec.Struct):
    person: str
    email: Annotated[str, Personal(of="person")]


def versions(*, newer: bool, declares_older: bool = True) -> everlog.Catalog:
    found = everlog.Catalog()
    if declares_older:
        found.event("customer.registered")(Older)
    if newer:
        found.event("customer.registered", version=2)(Newer)
        found.upcaster("customer.registered", from_version=1)(
            lambda old: {"person": "user:" + old["customer"], "email": old["email"]}
        )
    return found


@pytest.mark.parametrize("declares_older", [True, False])
@pytest.mark.parametrize("name", ["c/1", "user:c/1"])
def test_the_keys_of_older_versions_reach_a_newer_program(shops: Shops, declares_older: bool, name: str) -> None:
    """A key is that of the person as the event named them when it was recorded, whatever an upcaster makes of it."""
    one = shops.open(1, types=versions(newer=False))
    other = shops.open(2, types=versions(newer=True, declares_older=declares_older))
    register(one.log, "c/1", SEALED)
    register(one.log, "c/2", STAYS)
    other.sync_with(one.answer)
    assert emails(other) == [SEALED, STAYS]
    forget(other.log, name, owned=Owned())
    for _ in range(2):
        other.sync_with(one.answer)
    assert emails(one) == emails(other) == ["[sealed]", STAYS]


def test_keys_that_nobody_has_do_not_keep_others_away(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_keys, "KEYS_MAX", 3)
    one, other, member = shops.open(1), shops.open(2), shops.open(3, types=BEFORE)
    for number in range(4):
        register(member.log, "c/9", f"sealed:1:{number:-<22}:AAAA")
    register(one.log, "c/1", SEALED)
    other.sync_with(member.answer)
    for _ in range(200):
        other.sync_with(one.answer)
        if SEALED in emails(other):
            return
    pytest.fail("the key was never asked for")


def test_a_node_follows_a_forget_and_the_status_lists_it(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = shops.open(1), shops.open(2)
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_seal", lambda *given: None)  # as before the field was declared personal
        register(one.log, "c/1", OPEN)
    register(one.log, "c/1", SEALED)
    register(one.log, "c/2", STAYS)
    with reachable(one) as (url,):
        sync(other, url)
        assert emails(other) == [OPEN, SEALED, STAYS]
        other.log.view(Emails).catch_up()
        (receipt,) = forget(one.log, "c/1", owned=Owned())
        sync(other, url)
        assert emails(other) == ["erased", "[sealed]", STAYS]
        assert other.log.view(Emails).get("customer/1").state != {"email": SEALED}
        assert sync(other, url).equal
    for node in (one, other):
        (asked,) = status(node.log)
        assert (asked.record, asked.nodes) == (
            receipt.forget.records[0],
            [key(1).public.origin, key(2).public.origin],
        )
        assert (node.log.verify().ok, pending(node.log)) == (True, [])
    (key_id,) = receipt.forget.keys
    assert ring(other).is_destroyed(key_id)
    if shops.store != "memory":
        assert files_with(shops.folder, OPEN, SEALED) == []


def test_a_destroyed_key_does_not_come_back_from_a_node_that_has_not_followed(shops: Shops) -> None:
    one, other = shops.open(1), shops.open(2)
    register(one.log, "c/1", SEALED)
    keeps = with_rules(other.log, follow=False)
    assert keeps.sync_with(one.answer).equal
    (receipt,) = forget(one.log, "c/1", owned=Owned())
    (key_id,) = receipt.forget.keys
    assert keeps.sync_with(one.answer).equal
    assert ring(other).key(key_id) is not None  # by its own choice
    third = shops.open(3)
    third.sync_with(keeps.answer)  # it follows, and records that
    assert emails(third) == ["[sealed]"]
    assert emails(one) == ["[sealed]"]
    assert ring(one).key(key_id) is ring(third).key(key_id) is None
    asked = Keys(community_id=one.log_id, node=key(3).public.origin, wants=[key_id])
    assert decode(keeps.answer(KEYS, encode(asked)), Keys).box == b""


def test_a_node_that_joins_follows_only_what_it_has_something_of(
    shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, keeps = shops.open(1), shops.open(2)
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_seal", lambda *given: None)
        register(one.log, "c/1", OPEN)
    register(one.log, "c/2", STAYS)
    keeps.sync_with(one.answer)
    for person in ("c/1", "c/2"):
        forget(one.log, person, owned=Owned())
    has_all, has_nothing = shops.open(3), shops.open(4)
    stale = with_rules(keeps.log, follow=False)
    for node, peer in ((has_all, stale), (has_nothing, one)):
        joining = Node(node.log, may_have_keys=lambda key: True)
        joining.sync_with(peer.answer)
        joining.sync_with(one.answer)
        followed = follow_pending(node.log, Owned, joined=True)
        assert len(followed) == (2 if node is has_all else 0)  # it got a payload, and a key
        assert follow_pending(node.log, Owned) == []  # each record was looked at
        assert emails(node) == ["erased", "[sealed]"]
    register(one.log, "c/3", SEALED)
    has_nothing.sync_with(one.answer)
    forget(one.log, "c/3", owned=Owned())
    has_nothing.sync_with(one.answer)
    assert key(4).public.origin not in status(has_nothing.log)[0].nodes
    assert status(has_nothing.log)[-1].nodes == [key(1).public.origin, key(4).public.origin]


@pytest.mark.parametrize("with_ring", [False, True])
def test_a_log_that_was_put_back_forgets_again(
    shops: Shops, with_ring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it forgot came back with the older copy, and its own record comes back from a peer."""
    if shops.store == "memory":
        pytest.skip("a log in memory is not put back")
    kept = KeysInMemory([key(1)])
    one, other = shops.open(1, kept=kept), shops.open(2)
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_seal", lambda *given: None)
        register(one.log, "c/1", OPEN)
    register(one.log, "c/1", SEALED)
    assert one.sync_with(other.answer).equal
    one.log.close()
    shutil.copytree(shops.folder, shops.folder.with_name("backup"))
    one = shops.open(1, kept=kept)
    forget(one.log, "c/1", owned=Owned())
    one.sync_with(other.answer)
    one.sync_with(other.answer)
    one.log.close()
    for name in ("s1", "ring1") if with_ring else ("s1",):
        for path in shops.folder.glob(f"{name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in shops.folder.with_name("backup").glob(f"{name}*"):
            copy = shops.folder / path.name
            shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    shutil.rmtree(shops.folder.with_name("backup"))
    one = shops.open(1, kept=kept)
    assert emails(one)[0] == OPEN
    for _ in range(3):
        one.sync_with(other.answer)
    assert emails(one) == emails(other) == ["erased", "[sealed]"]
    assert one.log.verify().ok
    assert files_with(shops.folder, OPEN, SEALED) == []


def test_a_log_that_was_put_back_and_lost_its_record_records_the_forget_again(shops: Shops) -> None:
    """Nobody had synced the record. The ring is not part of the copy, so it knows which keys were destroyed."""
    if shops.store == "memory":
        pytest.skip("a log in memory is not put back")
    kept = KeysInMemory([key(1)])
    one, other = shops.open(1, kept=kept), shops.open(2)
    register(one.log, "c/1", SEALED)
    assert one.sync_with(other.answer).equal
    one.log.close()
    backup = shops.folder.with_name("backup")
    shutil.copytree(shops.folder, backup)
    one = shops.open(1, kept=kept)
    forget(one.log, "c/1", owned=Owned())
    one.log.close()
    for path in shops.folder.glob("s1*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in backup.glob("s1*"):
        copy = shops.folder / path.name
        shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    shutil.rmtree(backup)
    kept._last.clear()
    one = shops.open(1, kept=kept)
    assert emails(other) == [SEALED]
    for _ in range(2):
        one.sync_with(other.answer)
    assert emails(one) == emails(other) == ["[sealed]"]
    assert len(status(one.log)) == 1
    assert one.log.verify().ok


def test_the_record_of_a_stranger_makes_nobody_forget(shops: Shops) -> None:
    pinned: Callable[[], Pinned] = lambda: Pinned([key(1).public.origin])  # noqa: E731
    one, stranger = shops.open(1, make_standing=pinned), shops.open(9, knows=(1,))
    register(one.log, "c/1", SEALED)
    stranger.sync_with(one.answer)
    (event,) = (found.event for found in one.log.stored.read())
    payload = {"keys": [key_id_of(event.payload["email"])], "erased": {}, "follows": ""}
    stranger.log.append("subject.forgotten", stream="log/forgets", payload=payload)
    stranger.sync_with(one.answer)
    assert emails(one) == [SEALED]


def test_a_node_without_one_of_its_programs_follows_when_it_has_it(
    shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = shops.open(1), shops.open(2)
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_seal", lambda *given: None)
        register(one.log, "c/1", OPEN)
    other.sync_with(one.answer)
    other.log.catalog.left_out["shed"] = InvalidSettings("the program 'shed' cannot be loaded", hint="install it")
    forget(one.log, "c/1", owned=Owned())
    assert other.sync_with(one.answer).equal
    (asked,) = pending(other.log)
    assert emails(other) == [OPEN]
    with pytest.raises(InvalidSettings, match="'shed' cannot be loaded"):
        follow(other.log, asked.record, owned=Owned())
    with pytest.raises(InvalidSettings, match="'shed' cannot be loaded"):
        forget(other.log, "c/1", owned=Owned())
    with pytest.raises(InvalidSettings, match="'shed' cannot be loaded"):
        finish(other.log, owned=Owned())
    other.log.catalog.left_out.clear()
    follow_pending(other.log, Owned)
    assert not pending(other.log)
    assert emails(other) == ["erased"]
