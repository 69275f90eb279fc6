"""A damaged log does not take part in a sync as if it had less: peers would send it what it has already, and a peer
that lacks the lost events would never get them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.nodes import close, nodes, write

from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purged
from everlog.errors import Damaged
from everlog.sync import holdings
from everlog.sync.exchange import Node

LOST = 7

Patch = Callable[[], None]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Node]]:
    """Two nodes. The first has twelve events, a purge, and what the purge left."""
    made = nodes("memory", tmp_path, 2)
    for number in range(12):
        write(made[0], number, f"note/{number % 3}")
    made[0].log.purge("note/2", reason="test")
    yield made
    close(made)


@pytest.fixture
def lose(pair: list[Node], monkeypatch: pytest.MonkeyPatch) -> Patch:
    """Returns what makes one position of the first node unreadable."""
    stored = pair[0].log.stored
    slots = stored.slots

    def without(*, after: Position = START) -> Iterator[Packed | Purged]:
        return (slot for slot in slots(after=after) if slot.position != LOST)

    return lambda: monkeypatch.setattr(stored, "slots", without)


def test_a_purge_is_no_damage(pair: list[Node]) -> None:
    assert pair[0].heads().count == 12
    assert pair[1].sync_with(pair[0].answer).received_count == 8


def test_heads_stop_at_a_lost_position(pair: list[Node], lose: Patch) -> None:
    lose()
    with pytest.raises(Damaged) as raised:
        pair[0].heads()
    assert (raised.value.details["position"], raised.value.details["after"]) == (LOST, LOST)


def test_neither_side_of_a_sync_passes_a_lost_position(pair: list[Node], lose: Patch) -> None:
    damaged, other = pair
    write(other, "new")
    lose()
    with pytest.raises(Damaged):
        other.sync_with(damaged.answer)
    with pytest.raises(Damaged):
        damaged.sync_with(other.answer)
    assert (damaged.log.head(), other.log.head()) == (13, 1)


def test_events_that_are_lost_later_are_not_left_out_of_a_batch(pair: list[Node], lose: Patch) -> None:
    node = pair[0]
    spans = node.all_spans()
    lose()
    with pytest.raises(Damaged) as raised:
        list(node.batches(spans))
    assert raised.value.details["position"] == LOST


def test_after_a_repair_the_heads_are_whole(pair: list[Node], lose: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before the damage is joined with what is read after it."""
    monkeypatch.setattr(holdings, "_PIECE", 3)
    node = pair[0]
    lose()
    with pytest.raises(Damaged):
        node.heads()
    with pytest.raises(Damaged):
        node._items()
    monkeypatch.undo()
    assert replace(node.heads(), time_ms=0) == replace(Node(node.log).heads(), time_ms=0)
    assert node._items().keys == Node(node.log)._items().keys
