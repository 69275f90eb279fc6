"""A log of which only a part is shown answers for that part; what it does not limit is as in the whole log."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from everlog.core.event import START, Purged
from everlog.core.query import Query
from everlog.errors import Damaged, ReadOnly
from everlog.log.log import Log
from everlog.log.read.own_events import OwnEvents
from everlog.log.verify.verify import upgraded_head
from everlog.stores.contract import Stored
from everlog.stores.past_damage import PastDamage, StorePastDamage

STREAMS = ("thing/1", "thing/2", "thing/3")


@pytest.fixture
def filled(kind: str, make_log: Callable[..., Log]) -> Iterator[Log]:
    """Events of two tenants in turn: 1 and 4 of acme, 2 and 5 of a part of it, 3 and 6 of another."""
    with make_log(kind) as log:
        for turn in range(2):
            for stream, scope in zip(STREAMS, ("acme", "acme/shop", "other"), strict=True):
                log.append("thing.said", stream=stream, payload={"value": turn}, scope=scope)
        yield log


def _as_whole(part: OwnEvents | PastDamage, whole: Stored) -> None:
    ids = [recorded.event.id for recorded in whole.read()]
    origins = [whole.identity.origin]
    assert part.ends(streams=STREAMS) == whole.ends(streams=STREAMS)
    assert part.ends(origins=origins, ids=ids) == whole.ends(origins=origins, ids=ids)
    assert part.ends(purging="thing/1").removable == whole.ends(purging="thing/1").removable
    assert part.chains() == whole.chains() != {}
    assert list(part.check()) == list(whole.check()) == []
    assert part.identity == whole.identity
    assert part.hides_events


def test_a_tenant_sees_its_own_events_and_the_rest_is_as_in_the_whole_log(filled: Log) -> None:
    acme, third = OwnEvents(filled.stored, "acme"), OwnEvents(filled.stored, "third")
    assert [recorded.position for recorded in acme.read()] == [1, 2, 4, 5]
    assert [recorded.position for recorded in acme.read(Query(scope="acme/shop"))] == [2, 5]
    assert list(acme.read(Query(scope="other"))) == list(third.read()) == []
    assert [recorded.position for recorded in acme.read(upto=acme.head(), limit=1, newest_first=True)] == [5]
    assert (acme.head(), OwnEvents(filled.stored, "other").head(), third.head()) == (5, 6, START)
    assert acme.whole is filled.stored
    for recorded in filled.stored.read():
        seen = recorded if recorded.event.scope.startswith("acme") else None
        assert acme.get(recorded.event.id) == seen
        assert third.get(recorded.event.id) is None
    _as_whole(acme, filled.stored)


def test_a_tenant_sees_the_purges_of_its_own_streams(filled: Log) -> None:
    acme, other = OwnEvents(filled.stored, "acme"), OwnEvents(filled.stored, "other")
    first = filled.purge("thing/1", reason="asked to").reserved
    assert ([one.reserved for one in acme.purges()], other.purges()) == ([first], [])
    assert acme.head() == first
    assert acme.purges(after=first) == []
    last = filled.purge("thing/3", reason="asked to").reserved
    assert ([one.reserved for one in acme.purges()], [one.reserved for one in other.purges()]) == ([first], [last])
    assert (acme.head(), other.head()) == (first, last)
    # What a purge left is shown to those it concerns, as far as nothing else is between.
    (place,) = acme.slots()
    assert (type(place), place.position) == (Purged, 1)
    assert list(other.slots()) == []
    assert [place.position for place in other.slots(after=filled.stored.head())] == []


def test_a_whole_log_that_is_read_past_damage_is_the_same_log(filled: Log) -> None:
    reports: list[Damaged] = []
    past, stored = PastDamage(filled.stored, reports.append), filled.stored
    assert list(past.read()) == list(stored.read())
    assert list(past.read(limit=2, newest_first=True)) == list(stored.read(limit=2, newest_first=True))
    assert list(past.read(limit=0)) == []
    assert list(past.slots(after=stored.head())) == []
    assert [place.position for place in past.slots()] == [1, 2, 3, 4, 5, 6]
    event = next(stored.read()).event
    found = past.get(event.id)
    assert found is not None
    assert found.event == event
    filled.purge("thing/3", reason="asked to")
    assert past.purges() == stored.purges() != []
    assert past.purges(after=stored.head()) == []
    assert past.head() == stored.head()
    _as_whole(past, stored)
    with pytest.raises(ReadOnly, match="takes no writes"):
        StorePastDamage(filled._store, reports.append).open_write()
    assert reports == []


def test_where_lines_come_from_clones_it_is_not_known_when_a_log_was_upgraded(filled: Log, kind: str) -> None:
    assert upgraded_head(filled._store) == (None if kind == "jsonl" else 0)
    assert upgraded_head(StorePastDamage(filled._store, lambda error: None)) is None
