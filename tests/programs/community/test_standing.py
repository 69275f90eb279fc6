"""A community decides whose chains count: the same on every node, in whatever order its signed events arrive."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.log.admit.test_removals import stub
from tests.trust.signing import LOG_ID, Author

import everlog
from everlog import wiring
from everlog.core.event import Event
from everlog.errors import Conflict, InvalidSettings, RuleRefused
from everlog.log.log import Log
from everlog.programs.community.rights import fingerprint
from everlog.programs.community.standing import Members
from everlog.programs.community.views import Chats, Manifest
from everlog.settings import Settings
from everlog.stores.contract import Identity, Store, encode_event
from everlog.stores.memory import MemoryStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.user_code import catalog_of
from everlog.views.registry import Views

MADE_AT = datetime(2026, 1, 1, tzinfo=UTC)


class Person:
    """An actor with keys, who speaks from one of them."""

    def __init__(self, name: str, seed: int) -> None:
        self.actor = f"user:{name}"
        self.author = Author(seed)

    @property
    def origin(self) -> str:
        return self.author.origin


class World:
    """A community and everything that was signed in it. Clocks are those of somebody who knows everything before."""

    def __init__(self) -> None:
        self.ada = Person("ada", 1)
        self.community = f"hearth~{fingerprint(self.ada.actor, self.ada.origin)}"
        self.events: list[Event] = []
        self.clock = 0
        self.act(self.ada, "community.created", name="Hearth", about="")

    def act(self, who: Person, type: str, *, lamport: int = 0, at: datetime = MADE_AT, **payload: Any) -> Event:
        return self.say(who.author, who.actor, type, f"community/{self.community}", payload, lamport=lamport, at=at)

    def chat(self, who: Person, text: str, *, author: Author | None = None) -> Event:
        payload = {"text": text, "reply_to": ""}
        return self.say(
            author or who.author, who.actor, "chat.message.sent", f"thread/{self.community}:general", payload
        )

    def say(
        self,
        author: Author,
        actor: str,
        type: str,
        stream: str,
        payload: dict[str, Any],
        *,
        lamport: int = 0,
        at: datetime = MADE_AT,
    ) -> Event:
        self.clock = max(self.clock + 1, lamport)
        (made,) = author.write(
            1,
            type=type,
            stream=stream,
            payload=payload,
            actor=actor,
            scope=self.community,
            lamport=lamport or self.clock,
            occurred_at=at,
        )
        self.events.append(made)
        return made

    def invite(self, by: Person, who: Person, **more: Any) -> Event:
        payload = {"member": who.actor, "role": "member", "node": who.origin, "note": "", **more}
        return self.act(by, "community.member.invited", **payload)

    def join(self, who: Person, **more: Any) -> Event:
        return self.act(who, "community.member.joined", name="", **more)

    def member(self, name: str, seed: int, *, role: str = "member") -> Person:
        who = Person(name, seed)
        self.invite(self.ada, who, role=role)
        self.join(who)
        return who

    def revoke(self, by: Person, who: Person, upto: dict[str, int] | None = None) -> Event:
        ends = {who.origin: who.author.number} if upto is None else upto
        return self.act(by, "community.member.revoked", member=who.actor, upto=ends, reason="")


CATALOG = catalog_of(Settings(), None)


def node(world: World, store: Store | None = None) -> Log:
    store = store or MemoryStore(identity=identity(1))
    return Log(store, CATALOG, make_views=Views, make_standing=lambda: Members(world.community))


def identity(number: int) -> Identity:
    return Identity(log_id=LOG_ID, origin=f"01TESTNODE000000000000000{number}", epoch=f"epoch{number}", created_us=1)


def outcomes(log: Log, events: Sequence[Event]) -> list[str]:
    return [f"{one.kind} {one.code}".strip() for one in log.admit_each(list(events))]


def counting(log: Log) -> list[bytes]:
    return sorted(recorded.event.commitment for recorded in log.counted(log.stored.read()))


def member_names(log: Log, world: World) -> dict[str, str]:
    state = log.view(Manifest).get(f"community/{world.community}").state
    return {name: member["status"] for name, member in state["members"].items()}


def test_members_are_recorded_and_strangers_wait(tmp_path: Path) -> None:
    world = World()
    bob, eve = world.member("bob", 2), Person("eve", 9)
    hello, spam = world.chat(bob, "hello"), world.chat(eve, "spam")
    log = node(world)
    assert outcomes(log, [spam, hello]) == ["held unknown_author"] * 2
    assert outcomes(log, world.events[:3]) == ["recorded"] * 3
    assert [recorded.event.id for recorded in log.read()] == [event.id for event in (*world.events[:3], hello)]
    assert outcomes(log, [spam]) == ["held unknown_author"]
    assert log.verify().ok


def test_an_invited_stranger_is_recorded_once_the_invitation_arrives() -> None:
    world = World()
    bob = Person("bob", 2)
    early = [world.chat(bob, "before"), *[world.chat(bob, str(number)) for number in range(3)]]
    log = node(world)
    outcomes(log, world.events[:1])
    assert outcomes(log, early) == ["held unknown_author"] * 4
    assert outcomes(log, [world.invite(world.ada, bob)]) == ["recorded"]
    assert log.head() == 6
    # They wait no longer; whether each counts is up to their author's role at that place.
    assert outcomes(log, [world.join(bob)]) == ["recorded"]


def test_a_revocation_names_the_end_of_each_chain_of_the_member(tmp_path: Path) -> None:
    """Through the command: two nodes of one member, one of them with an event beyond a hole."""
    path = tmp_path / "log.db"
    with everlog.open(f"sqlite:{path}", signed=True, actor="user:ada") as log:
        from everlog.programs.command import By
        from everlog.programs.community.governing import Create, DescribeNode, Invite, Revoke
        from everlog.programs.perform import perform

        made = perform(log, Create(community="hearth", sealed=True), By(actor="user:ada")).result.name
        phone, laptop = Author(5, log.identity.log_id), Author(6, log.identity.log_id)
        with pytest.raises(RuleRefused, match="anybody could join"):
            perform(log, Invite(community=made, member="user:bob"), By(actor="user:ada"))
        perform(log, Invite(community=made, member="user:bob", node=phone.origin), By(actor="user:ada"))
        fields = {"stream": f"community/{made}", "scope": made, "actor": "user:bob", "lamport": 50}
        described = {"name": "", "endpoints": [], "capabilities": [], "software": ""}
        sent = [
            *phone.write(1, type="community.member.joined", payload={"name": ""}, **fields),
            *phone.write(1, type="node.manifest.updated", payload={"node": laptop.origin, **described}, **fields),
            *laptop.write(3, payload={"body": "x"}),
        ]
        laptop.number = 1_000_000
        sent += laptop.write(1, payload={"body": "x"})
        assert [one.kind for one in log.admit_each(sent)] == ["recorded"] * 5 + ["held"]
        perform(log, Revoke(community=made, member="user:bob"), By(actor="user:ada"))
        last = [recorded.event for recorded in log.read()][-1]
        assert last.payload["upto"] == {phone.origin: 2, laptop.origin: 3}
        assert DescribeNode is not None
    with wiring.open(f"sqlite:{path}") as log:
        assert log.verify().ok


def test_what_a_revoked_member_writes_waits_and_what_was_recorded_is_marked() -> None:
    world = World()
    bob = world.member("bob", 2)
    kept, late = world.chat(bob, "kept"), world.chat(bob, "late")
    log = node(world)
    outcomes(log, world.events)
    assert log.head() == len(world.events)
    world.revoke(world.ada, bob, {bob.origin: kept.origin_seq})
    assert outcomes(log, world.events[-1:]) == ["recorded"]
    assert outcomes(log, [world.chat(bob, "later")]) == ["held revoked_author"]
    assert not log.verdicts().counts(late)
    assert log.verdicts().counts(kept)
    texts = [act["payload"]["text"] for row in log.view(Chats).items() for act in row[1]["said"]]
    assert texts == ["kept"]
    assert log.verify().ok


def test_what_this_log_records_itself_decides_too(tmp_path: Path) -> None:
    """A revocation that is recorded here marks what waits and what counts, in the same write."""
    url = f"sqlite:{tmp_path}/log.db"
    with wiring.open(url, signed=True, actor="user:ada") as log:
        from everlog.programs.command import By
        from everlog.programs.community.governing import Create, Invite, Revoke
        from everlog.programs.perform import perform

        made = perform(log, Create(community="hearth", sealed=True), By(actor="user:ada")).result.name
        log_id = log.identity.log_id
    settings = Settings(authors=f"community:{made}", actor="user:ada")
    store = wiring.open_store(url, base=Path(), create=False)
    log = wiring._log(store, CATALOG, (), settings, "", wiring._Beside(settings, url, Path()))
    bob = Author(7, log_id)
    fields = {"stream": f"community/{made}", "scope": made, "actor": "user:bob", "lamport": 50}
    sent = [
        *bob.write(1, type="community.member.joined", payload={"name": ""}, **fields),
        *bob.write(2, payload={"body": "x"}),
    ]
    assert [one.code for one in log.admit_each(sent)] == ["unknown_author"] * 3
    perform(log, Invite(community=made, member="user:bob", node=bob.origin), By(actor="user:ada"))
    assert log.head() == 5  # they came in with the invitation
    perform(log, Revoke(community=made, member="user:bob"), By(actor="user:ada"))
    assert [one.code for one in log.admit_each(bob.write(1, payload={"body": "x"}))] == ["revoked_author"]
    assert not log.verdicts()
    assert log.verify().ok
    log.close()


# ---- invitations


def test_an_invitation_is_for_one_key() -> None:
    world = World()
    bob, eve = Person("bob", 2), Person("eve", 9)
    world.invite(world.ada, bob)
    stolen = world.say(
        eve.author, bob.actor, "community.member.joined", f"community/{world.community}", {"name": "bob"}
    )
    log = node(world)
    outcomes(log, world.events)
    assert outcomes(log, [stolen]) == ["held unknown_author"]
    assert member_names(log, world)["user:bob"] == "invited"


def test_an_invitation_that_names_no_key_is_ignored() -> None:
    world = World()
    bob = Person("bob", 2)
    world.invite(world.ada, bob, node="")
    world.invite(world.ada, bob, node="z6MkNotAKey")
    log = node(world)
    assert outcomes(log, world.events) == ["recorded"] * 3
    assert outcomes(log, [world.join(bob)]) == ["held unknown_author"]


def test_an_invitation_works_once() -> None:
    world = World()
    bob = world.member("bob", 2)
    world.revoke(world.ada, bob)
    log = node(world)
    outcomes(log, world.events)
    assert outcomes(log, [world.join(bob)]) == ["held revoked_author"]
    world.revoke(world.ada, bob)
    assert member_names(log, world)["user:bob"] == "revoked"


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_a_withdrawn_invitation_binds_also_those_who_joined_before(order: tuple[int, ...]) -> None:
    """The withdrawal names no end of a chain, because none was known: nothing of it counts."""
    world = World()
    bob = Person("bob", 2)
    steps = [[world.invite(world.ada, bob)], [world.join(bob)], [world.revoke(world.ada, bob, {})]]
    log = node(world)
    outcomes(log, world.events[:1])
    for step in order:
        log.admit_each(steps[step])
    assert member_names(log, world)["user:bob"] == "revoked"
    assert outcomes(log, [world.chat(bob, "hello")]) == ["held revoked_author"]
    assert not log.verdicts().counts(steps[1][0]) or log.head() == 3


@pytest.mark.parametrize(("day", "status"), [(1, "member"), (3, "invited")])
def test_an_invitation_expires_by_the_time_that_the_join_claims(day: int, status: str) -> None:
    world = World()
    bob = Person("bob", 2)
    world.invite(world.ada, bob, expires_at="2026-01-02T00:00:00Z")
    world.join(bob, at=datetime(2026, 1, day, tzinfo=UTC))
    log = node(world)
    outcomes(log, world.events)
    assert member_names(log, world)["user:bob"] == status


# ---- the setting


def test_only_a_community_whose_id_names_its_founder_decides(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot decide") as refusal:
        Members("hearth")
    assert "--sealed" in refusal.value.hint


@pytest.mark.parametrize("pinned", ["did", "openssh", "origin"])
def test_pinned_keys_are_a_setting(tmp_path: Path, pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    member, stranger = Author(1), Author(2)
    text = getattr(member.key.public, pinned)
    monkeypatch.setenv("EVERLOG_AUTHORS", f"{text}, ")
    with wiring.open(f"sqlite:{tmp_path}/log.db", signed=True) as log:
        log.append("note.added", stream="note/1", payload={"text": "own"})
        for author in (member, stranger):
            author.log_id = log.identity.log_id
        assert outcomes(log, [*member.write(1), *stranger.write(1)]) == ["recorded", "held unknown_author"]
        assert not log.verdicts()  # its own events count


def test_a_setting_that_names_no_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_AUTHORS", "z6MkNobody")
    with wiring.open(f"sqlite:{tmp_path}/log.db") as log, pytest.raises(InvalidSettings, match="authors"):
        log.admit_each(Author(1).write(1))


# ---- removing


def purge_record(world: World, who: Person, gone: Event) -> Event:
    hash = b64encode(encode_event(gone).hash).decode()
    payload = {"stream": gone.stream, "reason": "x", "removed": {gone.origin: [[gone.origin_seq, hash]]}}
    return world.say(who.author, who.actor, "stream.purged", "log/purges", payload)


def test_only_the_purges_of_admins_are_followed() -> None:
    world = World()
    bob, cyd = world.member("bob", 2), world.member("cyd", 3)
    said = world.chat(bob, "hello")
    by_member, by_admin = purge_record(world, cyd, said), purge_record(world, world.ada, said)
    log = node(world)
    assert outcomes(log, world.events) == ["recorded"] * len(world.events)
    assert log.follow_purge(by_member) is None
    assert log.follow_purge(by_admin) is not None
    assert said.id not in {recorded.event.id for recorded in log.read()}
    assert log.verify().ok


def test_what_decides_is_not_purged() -> None:
    world = World()
    bob = world.member("bob", 2)
    record = purge_record(world, world.ada, world.events[1])
    log = node(world)
    outcomes(log, world.events)
    with pytest.raises(Conflict, match="decide whose events count"):
        log.purge(f"community/{world.community}", reason="x")
    assert log.follow_purge(record) is None
    assert member_names(log, world)[bob.actor] == "member"


def test_only_admins_state_that_a_payload_was_erased() -> None:
    """A member could otherwise hide an act from nodes that join later, and they would judge others differently."""
    world = World()
    bob = world.member("bob", 2)
    bare = replace(world.events[1], payload={}, salt=b"")
    hash = b64encode(encode_event(bare).hash).decode()
    payload = {"keys": [], "erased": {bare.origin: [[bare.origin_seq, hash]]}, "follows": ""}
    world.say(bob.author, bob.actor, "subject.forgotten", "log/forgets", payload)
    log = node(world)
    sent = [one for one in world.events if one.id != bare.id]
    found = dict(zip([one.id for one in (bare, *sent)], outcomes(log, [bare, *sent]), strict=True))
    assert found[bare.id] == "held out_of_order"  # for a record by somebody who may
    assert outcomes(log, world.events[1:2]) == ["recorded"]
    assert member_names(log, world)[bob.actor] == "member"


@pytest.mark.parametrize("kind", ["purged", "erased"])
def test_an_admin_who_was_invited_later_removes_what_the_founder_said_before(kind: str) -> None:
    """The right to it is in the founder's chain, behind what was removed; a new node has nothing else."""
    world = World()
    said = world.chat(world.ada, "hello")
    ben = world.member("ben", 2, role="admin")
    world.chat(world.ada, "later")
    others = [one for one in world.events if one.id != said.id]
    log = node(world)
    if kind == "purged":
        record = purge_record(world, ben, said)
        found = log.admit_each([*others, record], stubs=[stub(said)])
    else:
        hash = b64encode(encode_event(said).hash).decode()
        payload = {"keys": [], "erased": {said.origin: [[said.origin_seq, hash]]}, "follows": ""}
        record = world.say(ben.author, ben.actor, "subject.forgotten", "log/forgets", payload)
        found = log.admit_each([*others, record, replace(said, payload={}, salt=b"")])
    assert {one.kind for one in found} == {"recorded"}
    assert member_names(log, world)["user:ben"] == "member"
    assert log.verify().ok


# ---- any order


def history(chance: random.Random) -> World:
    """Members who chat, act, are revoked, revoke each other, claim old clocks, fork and come back."""
    world = World()
    people = [
        world.ada,
        *[world.member(f"m{seed}", seed, role="admin" if seed < 5 else "member") for seed in range(2, 8)],
    ]
    strangers = [Person("eve", 90), Person("mallory", 91)]
    twins: dict[str, Author] = {}
    for _ in range(40):
        who = chance.choice(people)
        match chance.randrange(10):
            case 0:
                other = chance.choice(people)
                point = chance.randrange(other.author.number + 1)
                world.revoke(who, other, {other.origin: point} if chance.random() < 0.8 else {})
            case 1:
                world.invite(who, chance.choice([*people, *strangers]))
            case 2:
                world.join(who)
            case 3:
                other = chance.choice(people)
                role = chance.choice(["moderator", "admin"])
                lamport = chance.choice([0, chance.randrange(1, world.clock + 1)])
                world.act(who, "community.member.promoted", member=other.actor, role=role, lamport=lamport)
            case 4:
                other = chance.choice(people)
                ends = {other.origin: chance.randrange(other.author.number + 1)}
                world.act(who, "community.member.demoted", member=other.actor, role="member", upto=ends, reason="")
            case 5:
                world.chat(chance.choice(strangers), "spam")
            case 6 if len(twins) < 2 and who is not world.ada and who.origin not in twins:
                twins[who.origin] = who.author.twin()
                world.chat(who, "one branch")
                world.chat(who, "the other", author=twins[who.origin])
            case _:
                world.chat(who, "hello")
    return world


def stores(path: Path) -> list[Store]:
    return [
        MemoryStore(identity=identity(1)),
        SqliteStore(path / "log.db", identity=identity(2)),
        SegmentsStore(path / "log", identity=identity(3)),
    ]


def deliver(log: Log, events: Sequence[Event], chance: random.Random) -> None:
    left = list(events)
    chance.shuffle(left)
    while left:
        size = chance.choice((1, 2, 5, 20))
        log.admit_each(left[:size])
        del left[:size]
        if chance.random() < 0.2:
            log.view(Manifest).digest()


def agree(logs: Sequence[Log]) -> None:
    first = logs[0]
    for log in logs:
        assert [(fork.origin, fork.origin_seq) for fork in log.forks()] == [
            (fork.origin, fork.origin_seq) for fork in first.forks()
        ]
        assert counting(log) == counting(first)
        for view in (Manifest, Chats):
            assert log.view(view).digest() == first.view(view).digest()
        assert log.verify().ok


@pytest.mark.parametrize("seed", range(10))
def test_three_nodes_agree_in_whatever_order_events_arrive(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = history(chance)
    logs = [node(world, store) for store in stores(tmp_path)]
    for log in logs:
        deliver(log, world.events, chance)
        # Nothing that could be recorded was left: the order did not matter.
        assert all(one.kind != "recorded" for one in log.admit_each(world.events))
    agree(logs)
    for log in logs:
        log.close()
