"""A node that never saw purged events takes the honest ones after them: the stubs have the clock values."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.nodes import STORES, close, signed_nodes
from tests.trust.signing import Author

from everlog.core.clock import JUMP_MAX


@pytest.mark.parametrize("kind", STORES)
def test_events_after_a_purge_are_not_too_far_ahead(kind: str, tmp_path: Path) -> None:
    one, other = nodes = signed_nodes(kind, tmp_path, 2)
    author = Author(5, one.log.identity.log_id)
    for step in (1, 2, 3):
        one.log.admit_each(author.write(1, stream="note/1", lamport=step * JUMP_MAX))
    after = author.write(1, stream="note/2", lamport=3 * JUMP_MAX + 5)
    one.log.admit_each(after)
    one.log.purge("note/1", reason="a test")
    (refused,) = other.log.admit_each(after)
    assert refused.code == "clock_too_far"
    assert other.sync_with(one.answer).equal
    assert after[0].id in {recorded.event.id for recorded in other.log.read()}
    assert all(node.log.verify().ok for node in nodes)
    close(nodes)
