"""Events that are larger than a batch: each travels alone, and one for which no message has room is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.http_nodes import reachable, sync
from tests.support.nodes import close, signed_nodes, write

from everlog.log.write.draft import Limits
from everlog.sync.exchange import Node
from everlog.sync.wire import BATCH_BYTES, MESSAGE_BYTES_MAX

ALONE = "x" * (BATCH_BYTES + 1_000_000)
TOO_LARGE = "x" * (MESSAGE_BYTES_MAX + 1)


@pytest.fixture(params=["sqlite", "jsonl", "segments"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Node]]:
    """Nodes that were set to accept large payloads: the usual limit is 1 MiB."""
    made = signed_nodes(request.param, tmp_path, 2, limits=Limits(payload_bytes_max=64 * 1024 * 1024))
    yield made
    close(made)


def test_an_event_that_is_larger_than_a_batch_travels_alone(pair: list[Node]) -> None:
    one, other = pair
    write(one, "before")
    write(one, ALONE)
    write(one, "after")
    with reachable(other) as (url,):
        done = sync(one, url)
        assert (done.sent_count, done.rejected, done.equal) == (3, [], True)
    with reachable(one) as (url,):
        write(one, ALONE)
        assert sync(other, url).equal
    assert [len(message.events) for message in one.batches(one.all_spans())] == [1, 1, 1, 1]


@pytest.mark.parametrize("fetched", [False, True])
def test_an_event_for_which_no_message_has_room_is_named_on_both_sides(pair: list[Node], fetched: bool) -> None:
    one, other = pair
    write(one, "before")
    named = write(one, TOO_LARGE)
    write(one, "after")
    with reachable(one, other) as (to_one, to_other):
        done = sync(other, to_one) if fetched else sync(one, to_other)
    assert not done.equal
    assert next((each.event_id, each.reason) for each in done.rejected) == (named, "event_too_large")
    (refusal,) = other.log.refusals(code="event_too_large")
    assert (refusal.context["id"], "8,38" in refusal.reason) == (named, True)
    assert other.log.head() == 1  # what follows waits for it
