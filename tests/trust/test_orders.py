"""What counts is a function of what arrived: the same on every node and every store, in whatever order it came."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG
from tests.trust.signing import LOG_ID, Author

from everlog.core.event import Event
from everlog.log.admit.admission import Gate
from everlog.log.log import Log
from everlog.stores.contract import Identity, Store
from everlog.stores.memory import MemoryStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.trust.standing import Pinned
from everlog.views.registry import Views
from everlog.views.view import CAUSAL, View


class Told(View):
    """One row per stream: what was said there, by whom, in causal order."""

    name = "test.told"
    types = ("thing.said",)
    order = CAUSAL

    def initial(self) -> dict[str, Any]:
        return {"said": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"said": [*state["said"], [event.origin, event.payload["value"]]]}


def nodes(path: Path, pinned: list[str]) -> list[Log]:
    stores: list[Store] = [
        MemoryStore(identity=identity("1")),
        SqliteStore(path / "log.db", identity=identity("2")),
        SegmentsStore(path / "log", identity=identity("3")),
    ]
    found = [Log(store, CATALOG, make_views=Views) for store in stores]
    for log in found:
        log.writer._made_gate = Gate(Pinned(pinned))
    return found


def identity(number: str) -> Identity:
    return Identity(log_id=LOG_ID, origin=f"01TESTNODE000000000000000{number}", epoch=f"epoch{number}", created_us=1)


def history(chance: random.Random) -> tuple[list[Event], list[str]]:
    """Return events of members, of one who forks, of a stranger and of one with a hole, and the pinned keys."""
    authors = [Author(number) for number in range(1, 6)]
    honest, forking, stranger, holed, other = authors

    def say(author: Author, count: int, text: str = "") -> list[Event]:
        stream = f"thing/{chance.randrange(3)}"
        return author.write(count, type="thing.said", stream=stream, payload={"value": text or author.number})

    events = [one for _ in range(6) for one in say(honest, chance.randrange(1, 5))]
    events += [one for _ in range(3) for one in say(other, chance.randrange(1, 5))]
    events += say(forking, chance.randrange(1, 4))
    twin = forking.twin()
    events += [one for _ in range(2) for one in say(forking, chance.randrange(1, 4))]
    events += [one for _ in range(2) for one in say(twin, chance.randrange(1, 4), "twin")]
    events += say(stranger, 3)
    with_hole = [*say(holed, 3), *say(holed, 2)]
    del with_hole[chance.randrange(len(with_hole))]
    events += with_hole
    return events, [author.origin for author in authors if author is not stranger]


def deliver(log: Log, events: list[Event], chance: random.Random) -> None:
    left = list(events)
    chance.shuffle(left)
    while left:
        size = chance.choice((1, 2, 5, 20))
        log.admit_each(left[:size])
        del left[:size]
        if chance.random() < 0.3:
            log.view(Told).digest()  # so that it has applied what may lose its standing


def counting(log: Log) -> set[str]:
    return {recorded.event.id for recorded in log.counted(log.stored.read())} | {
        recorded.event.commitment.hex() for recorded in log.counted(log.stored.read())
    }


@pytest.mark.parametrize("seed", range(12))
def test_nodes_agree_in_whatever_order_events_arrive(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    events, pinned = history(chance)
    logs = nodes(tmp_path, pinned)
    for log in logs:
        deliver(log, events, chance)
    first = logs[0]
    forks = [(fork.origin, fork.origin_seq) for fork in first.forks()]
    assert len(forks) == 1
    for log in logs:
        assert [(fork.origin, fork.origin_seq) for fork in log.forks()] == forks
        assert counting(log) == counting(first)
        assert log.view(Told).digest() == first.view(Told).digest()
        assert log.verify().ok
        assert {one.kind for one in log.admit_each(events)} <= {"known", "held"}
    for log in logs:
        log.close()


def test_a_view_follows_the_loss_of_a_standing(tmp_path: Path) -> None:
    """The events stay at their positions; a second handle and a restart see the same."""
    author = Author(1)
    log = Log(SqliteStore(tmp_path / "log.db", identity=identity("1")), CATALOG, make_views=Views)
    shared = author.write(1, type="thing.said", stream="thing/1", payload={"value": 1})
    twin = author.twin()
    log.admit_each([*shared, *author.write(1, type="thing.said", stream="thing/1", payload={"value": 2})])
    other = Log(SqliteStore(tmp_path / "log.db"), CATALOG, make_views=Views)
    for one in (log, other):
        assert [value for _, value in one.view(Told).get("thing/1").state["said"]] == [1, 2]
    log.admit_each(twin.write(1, type="thing.said", stream="thing/1", payload={"value": 3}))
    for one in (log, other):
        assert [value for _, value in one.view(Told).get("thing/1").state["said"]] == [1]
        assert one.head() == 2
    log.close()
    other.close()
    again = Log(SqliteStore(tmp_path / "log.db"), CATALOG, make_views=Views)
    assert [value for _, value in again.view(Told).get("thing/1").state["said"]] == [1]
    again.close()
