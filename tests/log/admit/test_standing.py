"""What counts is decided by events of the history, in whatever order they arrive."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.log.admit.test_admission import author_of, kinds, stored
from tests.trust.signing import Author

from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Chain, event
from everlog.trust.standing import Limit, Pinned, Rights

STRANGER = Limit(0, "unknown_author")


class Voted:
    """The first key says of every other one how far its chain counts; the latest word holds."""

    deciding: Collection[str] = ("thing.said",)
    begun = True
    named: Collection[str] = ()

    def __init__(self, founder: str) -> None:
        self.founder = founder
        self.asked = 0
        self.limits: dict[str, Limit | None] = {}

    def rights(self, history: Iterable[Event]) -> Rights:
        self.asked += 1
        found = Voted(self.founder)
        for one in sorted(history, key=lambda one: one.lamport):
            origin, upto = one.payload["value"]
            found.limits[origin] = None if upto is None else Limit(upto, "revoked_author")
        return found

    def begins(self, event: Event) -> bool:
        return False

    def may_remove(self, record: Event) -> bool:
        return True

    def limit(self, origin: str) -> Limit | None:
        return None if origin == self.founder else self.limits.get(origin, STRANGER)


def says(author: Author, about: Author, upto: int | None) -> list[Event]:
    return author.write(1, type="thing.said", stream="thing/vote", payload={"value": [about.origin, upto]})


class World:
    """A node, its standing, the founder and a member."""

    def __init__(self, make_log: Callable[..., Log], path: Path | None = None, kind: str = "memory") -> None:
        self.standing = Voted("")
        self.log: Log = make_log(kind, path, make_standing=lambda: self.standing)
        self.founder, self.member = author_of(self.log, 1), author_of(self.log, 2)
        self.standing.founder = self.founder.origin

    def send(self, *events: Event) -> list[str]:
        return kinds(self.log.admit_each(events))

    def counted(self) -> set[str]:
        return {recorded.event.id for recorded in self.log.counted(self.log.stored.read())}


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments"])
def world(request: pytest.FixtureRequest, make_log: Callable[..., Log], tmp_path: Path) -> World:
    return World(make_log, tmp_path / "node", request.param)


def test_events_wait_for_the_word_that_gives_their_author_a_right(world: World) -> None:
    sent = world.member.write(3)
    assert world.send(*sent) == ["held unknown_author"] * 3
    word = says(world.founder, world.member, None)
    assert world.send(*word) == ["recorded"]
    assert stored(world.log) == [*word, *sent]
    assert not world.log.verdicts()
    assert world.log.verify().ok


def test_the_word_may_come_after_the_events_in_one_batch(world: World) -> None:
    sent, word = world.member.write(2), says(world.founder, world.member, None)
    assert world.send(*sent, *word) == ["recorded"] * 3
    assert world.counted() == {one.id for one in (*sent, *word)}


def test_what_was_recorded_beyond_a_later_word_stays_and_does_not_count(world: World) -> None:
    sent = world.member.write(3)
    world.send(*says(world.founder, world.member, None), *sent)
    word = says(world.founder, world.member, 1)
    assert world.send(*word) == ["recorded"]
    assert world.log.verdicts().limits == {world.member.origin: Limit(1, "revoked_author")}
    assert {one.id for one in sent} - world.counted() == {one.id for one in sent[1:]}
    assert world.send(*world.member.write(1)) == ["held revoked_author"]
    world.send(*says(world.founder, world.member, None))
    assert not world.log.verdicts()
    assert stored(world.log)[-1].origin_seq == 4  # what waited for the word


def test_a_word_of_somebody_without_a_key_decides_nothing(world: World) -> None:
    chain = Chain()
    word = chain.next(type="thing.said", stream="thing/vote", payload={"value": [world.member.origin, None]}).event
    assert world.send(word) == ["recorded"]
    assert world.send(*world.member.write(1)) == ["held unknown_author"]


def test_a_word_at_or_after_a_fork_decides_nothing(world: World) -> None:
    twin = world.founder.twin()
    world.send(*says(world.founder, world.member, None), *world.member.write(1))
    assert not world.log.verdicts()
    assert world.send(*says(twin, world.member, 5)) == ["held fork"]
    assert world.log.verdicts().limits == {
        world.founder.origin: Limit(0, "fork"),
        world.member.origin: STRANGER,
    }
    assert world.counted() == set()


def test_the_history_is_read_again_only_when_it_changed(world: World) -> None:
    word = says(world.founder, world.member, None)
    world.send(*word)
    asked = world.standing.asked
    world.send(*world.member.write(2))
    world.send(*world.member.write(2))
    assert world.standing.asked == asked
    world.send(*says(world.founder, world.member, None))
    assert world.standing.asked > asked
    asked = world.standing.asked
    world.log.purge("note/1", reason="asked to")
    world.send(*world.member.write(1))
    assert world.standing.asked == asked + 1
    assert len(world.counted()) == len(stored(world.log))


@pytest.mark.parametrize("settled", ["by a batch", "by this log"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_another_standing_is_applied_after_the_log_is_opened_again(
    make_log: Callable[..., Log], tmp_path: Path, kind: str, settled: str
) -> None:
    """What waited and has a right now is recorded, and what has none any more does not count."""
    world = World(make_log, tmp_path / "node", kind)
    strangers, known = world.member.write(2), world.founder.write(2)
    assert world.send(*strangers, *known) == ["held unknown_author"] * 2 + ["recorded"] * 2
    world.log.close()
    log = make_log(kind, tmp_path / "node", make_standing=lambda: Pinned([world.member.origin]))
    if settled == "by a batch":
        log.admit_each([])
    else:
        log.writer.write(log.writer.settle)
    assert log.verdicts().limits == {world.founder.origin: STRANGER}
    assert stored(log) == [*known, *strangers]
    assert kinds(log.admit_each(strangers)) == ["known"] * 2
    assert log.verify().ok
    log.close()


def test_whatever_arrives_first_the_same_events_count(make_log: Callable[..., Log]) -> None:
    made = World(make_log)
    third = author_of(made.log, 3)
    parts = [
        says(made.founder, made.member, None),
        [*made.member.write(2), *made.member.write(1)],
        says(made.founder, third, 1),
        third.write(2),
    ]
    found = set()
    for order in itertools.permutations(parts):
        store = MemoryStore(identity=made.log.identity)
        log = Log(store, made.log.catalog, make_standing=lambda: Voted(made.founder.origin))
        for part in order:
            log.admit_each(part)
        found.add(frozenset(one.event.id for one in log.counted(log.stored.read())))
        log.close()
    assert found == {frozenset(one.id for part in parts for one in part) - {parts[3][1].id}}


# ---- forks


def test_a_fork_of_a_stranger_concerns_nobody(world: World) -> None:
    twin = world.member.twin()
    both = [*world.member.write(1), *twin.write(1, payload={"text": "other"})]
    assert world.send(*both) == ["held unknown_author"] * 2
    assert world.log.forks() == []
    node = World(lambda *given, **options: Log(MemoryStore(identity=world.log.identity), world.log.catalog))
    node.send(*both)
    (fork,) = node.log.forks()
    world.log.admit_each([], forks=[fork])
    assert world.log.forks() == []


@pytest.mark.parametrize("forked", [1, 2, 3])
def test_a_fork_is_proved_although_the_recorded_event_was_purged(
    make_log: Callable[..., Log], tmp_path: Path, forked: int
) -> None:
    """The path to it follows from the hashes of its group, which its purge left."""
    for kind in ("memory", "sqlite", "jsonl", "segments"):
        log = make_log(kind, tmp_path / kind)
        author = author_of(log)
        sent = author.write(4)
        twin = author_of(log)
        twin.number, twin.previous, twin.lamport = forked - 1, sent[forked - 1].previous, 9
        assert kinds(log.admit_each(sent)) == ["recorded"] * 4
        log.purge(sent[forked - 1].stream, reason="asked to")
        assert kinds(log.admit_each(twin.write(1, payload={"text": "other"}, stream="note/9"))) == ["held fork"]
        (fork,) = log.forks()
        assert (fork.origin_seq, fork.holds(log.identity.log_id)) == (forked, True)
        assert log.verdicts().limits == {author.origin: Limit(forked - 1, "fork")}


def test_lost_events_of_a_former_origin_come_back_and_others_do_not(catalog: Catalog) -> None:
    chain = Chain()
    log = Log(MemoryStore(identity=replace(MemoryStore().identity, former=(chain.origin,))), catalog)
    first, second = chain.next().event, chain.next().event
    assert kinds(log.admit_each([first])) == ["recorded"]
    other = event(origin=chain.origin, origin_seq=1)
    broken = event(origin=chain.origin, origin_seq=2, lamport=2, previous=b"x" * 32)
    assert kinds(log.admit_each([other, broken])) == ["fork", "fork"]
    assert kinds(log.admit_each([second])) == ["recorded"]
    log.close()
