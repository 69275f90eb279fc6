"""An admin names a branch of a chain that forked: the same events count on every node, in any order of arrival."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.programs.community.test_standing import CATALOG, Person, World, counting, identity, node, outcomes
from tests.support.http_nodes import reachable, sync
from tests.support.nodes import STORES
from tests.support.postgres_schemas import Schemas
from tests.trust.signing import Author

from everlog import wiring
from everlog.application.checks.forks import forked_chains
from everlog.core.event import Event
from everlog.errors import Conflict, NotFound, RuleRefused
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.community.governing import Create, Invite, NameBranch
from everlog.programs.community.views import Chats
from everlog.programs.perform import perform
from everlog.settings import Settings
from everlog.stores.contract import encode_event
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal


class Forked(World):
    """Bob's key was used twice: from number 3 on there are two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.bob = self.member("bob", 2)
        self.common = self.chat(self.bob, "common")
        self.before = list(self.events)
        twin = self.bob.author.twin()
        twin.ms += 1
        self.one = [self.chat(self.bob, f"one {number}") for number in range(3)]
        self.other = [self.chat(self.bob, f"other {number}", author=twin) for number in range(4)]

    def name(self, branch: list[Event], *, by: Person | None = None, first: int = 3) -> Event:
        hashes = [b64encode(encode_event(event).hash).decode() for event in branch]
        who = by or self.ada
        return self.act(who, "community.branch.named", node=self.bob.origin, first=first, hashes=hashes, reason="")


def texts(log: Log) -> list[str]:
    return [act["payload"]["text"] for row in log.view(Chats).items() for act in row[1]["said"]]


def made(store: str, folder: Path, world: World, number: int) -> Log:
    url = "memory:" if store == "memory" else f"{store}:{folder / f'node{number}'}"
    return node(world, wiring.open_store(url, base=Path(), identity=identity(number)))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", range(12))
def test_the_same_events_count_in_any_order_of_arrival(store: str, seed: int, tmp_path: Path) -> None:
    world, chance = Forked(), random.Random(seed)
    branch, rest = (world.one, world.other) if seed % 2 else (world.other, world.one)
    upto = chance.randint(1, len(branch))
    named = world.name(branch[:upto])
    later = world.chat(world.ada, "later")
    log = made(store, tmp_path, world, 1)
    events = [*world.before, *branch, *rest, named, later]
    chance.shuffle(events)
    while events:
        size = chance.randint(1, 5)
        outcomes(log, events[:size])
        events = events[size:]
    for one in (*world.before, *branch, *rest, named, later):
        outcomes(log, [one])  # whatever had no room or no chain before
    wanted = [*world.before, *branch[:upto], named, later]
    assert counting(log) == sorted(one.commitment for one in wanted)
    assert sorted(texts(log)) == sorted(["common", "later", *(one.payload["text"] for one in branch[:upto])])
    assert log.verify().ok
    log.close()


def test_only_an_admin_names_a_branch_and_the_last_word_holds() -> None:
    world = Forked()
    eve = world.member("eve", 5)
    log = node(world)
    outcomes(log, [*world.before, *world.one])
    outcomes(log, [*world.events, *world.other])
    assert texts(log) == ["common"]
    world.name(world.other, by=eve)
    outcomes(log, world.events)
    assert texts(log) == ["common"]
    world.name(world.other)
    outcomes(log, world.events)
    assert sorted(texts(log)) == ["common", *(f"other {number}" for number in range(4))]
    world.name(world.one[:2])
    outcomes(log, world.events)
    assert sorted(texts(log)) == ["common", "one 0", "one 1"]
    assert log.verify().ok


def test_a_fork_before_the_named_branch_ends_the_chain_there() -> None:
    """The name says nothing of which event before it counts, until a branch from there on is named."""
    world = Forked()
    log = node(world)
    outcomes(log, [*world.before, *world.one])
    named = world.name(world.one[1:], first=4)
    outcomes(log, [named, *world.other])
    assert texts(log) == ["common"]
    outcomes(log, [world.name(world.one)])
    assert sorted(texts(log)) == ["common", "one 0", "one 1", "one 2"]


def test_a_revocation_before_the_named_branch_holds() -> None:
    world = Forked()
    log = node(world)
    outcomes(log, [*world.before, *world.one, *world.other, world.name(world.other)])
    outcomes(log, [world.revoke(world.ada, world.bob, {world.bob.origin: 4})])
    assert sorted(texts(log)) == ["common", "other 0", "other 1"]


def test_an_event_of_another_branch_that_waits_does_not_keep_the_named_one_away() -> None:
    world = Forked()
    third = world.bob.author.twin()
    third.number, third.previous, third.ms = 2, encode_event(world.common).hash, third.ms + 2
    waits = [world.chat(world.bob, f"third {number}", author=third) for number in range(4)]
    logs = [node(world, wiring.open_store("memory:", base=Path(), identity=identity(place))) for place in (1, 2)]
    one, other = (Node(log) for log in logs)
    outcomes(one.log, [*world.before, *world.one, *waits])
    outcomes(other.log, [*world.before, *world.other, world.name(world.other)])
    for _ in range(3):
        one.sync_with(other.answer)
    assert one.sync_with(other.answer).equal
    assert sorted(texts(one.log)) == ["common", *(f"other {number}" for number in range(4))]


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_branches_in_one_batch_the_named_one_is_recorded(turned: bool) -> None:
    world = Forked()
    log = node(world)
    outcomes(log, [*world.before, world.name(world.one)])
    both = [*world.one, *world.other] if turned else [*world.other, *world.one]
    outcomes(log, both)
    assert sorted(texts(log)) == ["common", "one 0", "one 1", "one 2"]
    recorded = [encode_event(one.event).hash for one in log.stored.read()]
    assert not set(recorded) & {encode_event(event).hash for event in world.other}


def test_an_id_that_another_branch_has_taken_ends_the_branch_on_that_node() -> None:
    """A key that gives one id to two events: a node that has one of them cannot record the other."""
    world = Forked()
    author = world.bob.author.twin()
    author.number, author.previous = 2, encode_event(world.common).hash
    other = [world.chat(world.bob, "same id", author=author)]
    assert other[0].id == world.one[0].id
    log = node(world)
    outcomes(log, [*world.before, *world.one])
    outcomes(log, [world.name(other), *other])
    assert texts(log) == ["common"]
    assert log.verify().ok


@pytest.fixture(params=[*STORES, "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Forked, list[Node]]]:
    world = Forked()
    if request.param == "postgresql":
        schemas: Schemas = request.getfixturevalue("postgres_schemas")
        urls = [schemas.new(), f"sqlite:{tmp_path / 'other'}"]
    else:
        urls = (
            ["memory:"] * 2 if request.param == "memory" else [f"{request.param}:{tmp_path / name}" for name in "ab"]
        )
    logs = [
        node(world, wiring.open_store(url, base=Path(), identity=identity(number)))
        for number, url in enumerate(urls, 1)
    ]
    yield world, [Node(log) for log in logs]
    for log in logs:
        log.close()


@pytest.mark.parametrize("first_has_it", [True, False])
def test_two_nodes_with_different_branches_become_equal_over_http(
    pair: tuple[Forked, list[Node]], first_has_it: bool
) -> None:
    world, (one, other) = pair
    outcomes(one.log, [*world.before, *world.one])
    outcomes(other.log, [*world.before, *world.other])
    with reachable(other) as (url,):
        sync(one, url)
        assert sync(one, url).equal
        assert texts(one.log) == texts(other.log) == ["common"]
        named = world.name(world.one if first_has_it else world.other)
        outcomes(one.log, [named])
        for _ in range(3):
            sync(one, url)
        assert sync(one, url).equal
    branch = "one" if first_has_it else "other"
    count = 3 if first_has_it else 4
    assert proven_equal(one.heads(), other.heads())
    for each in (one, other):
        assert sorted(texts(each.log)) == ["common", *(f"{branch} {number}" for number in range(count))]
        assert each.log.verify().ok


def test_the_command_names_the_branch_that_is_recorded_or_one_that_waits(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    with wiring.open(url, signed=True, actor="user:ada") as log:
        community = perform(log, Create(community="hearth", sealed=True), By(actor="user:ada")).result.name
        bob = Author(7, log.identity.log_id)
        perform(log, Invite(community=community, member="user:bob", node=bob.origin), By(actor="user:ada"))
    settings = Settings(authors=f"community:{community}", actor="user:ada")
    store = wiring.open_store(url, base=Path(), create=False)
    log = wiring._log(store, CATALOG, (), settings, "", wiring._Beside(settings, url, Path()))
    with pytest.raises(NotFound, match="did not fork"):
        perform(log, NameBranch(node=bob.origin), By(actor="user:ada"))
    twin = bob.twin()
    twin.ms += 1
    fields = {"stream": "note/1", "actor": "user:bob", "lamport": 50}
    one, other = bob.write(2, payload={"text": "one"}, **fields), twin.write(3, payload={"text": "other"}, **fields)
    log.admit_each(one)
    log.admit_each(other)

    def bodies() -> list[str]:
        return [one.event.payload["text"] for one in log.counted(log.stored.read()) if one.event.kind == "note"]

    assert bodies() == []
    assert forked_chains(log) == [f"{bob.origin} at 1: counts up to 0"]
    with pytest.raises(RuleRefused):
        perform(log, NameBranch(node=bob.origin), By(actor="user:bob"))
    perform(log, NameBranch(node=bob.origin), By(actor="user:ada"))
    assert bodies() == ["one", "one"]
    perform(log, NameBranch(node=bob.origin, upto=other[1].id), By(actor="user:ada"))
    assert bodies() == ["other", "other"]
    assert forked_chains(log) == [f"{bob.origin} at 1: counts up to 2, on the branch that was named"]
    with pytest.raises(Conflict, match="cannot be named"):
        perform(log, NameBranch(node=bob.origin, upto=log.identity.log_id), By(actor="user:ada"))
    assert log.verify().ok
    log.close()
