"""A delivery: what it shows of its event, and that its attempts are counted."""

from __future__ import annotations

import pytest
from tests.consumers.world import fill

from everlog.consumers import Group
from everlog.errors import EverlogError
from everlog.log.log import Log


def test_a_delivery_shows_the_event_and_counts_its_attempts(memory_log: Log) -> None:
    fill(memory_log, 1, keys=1)
    with Group(memory_log, "mailer", partitions=1).member("a") as member:
        first = member.take()
        assert first is not None
        recorded = memory_log.get(1)
        assert (first.recorded, first.position, first.attempt, first.partition) == (recorded, 1, 1, 0)
        assert first.event is first.recorded.event
        assert repr(first) == f"Delivery(1, key={first.key!r}, attempt=1)"
        first.nack("the server is away", retry_in_s=0)
        again = member.take()
        assert again is not None
        assert (again.position, again.attempt, again.token) == (1, 2, first.token)
        again.ack()
        assert member.take() is None


def test_a_delivery_is_settled_once(memory_log: Log) -> None:
    fill(memory_log, 1, keys=1)
    with Group(memory_log, "mailer", partitions=1).member("a") as member:
        delivery = member.take()
        assert delivery is not None
        delivery.ack()
        assert delivery.settled
        with pytest.raises(EverlogError):
            delivery.nack("too late")


def test_the_token_grows_with_every_owner_of_the_partition(memory_log: Log) -> None:
    fill(memory_log, 2, keys=1)
    tokens = []
    for name in ("a", "b"):
        with Group(memory_log, "mailer", partitions=1).member(name) as member:
            delivery = member.take()
            assert delivery is not None
            tokens.append(delivery.token)
            delivery.ack()
    assert tokens[0] < tokens[1]
