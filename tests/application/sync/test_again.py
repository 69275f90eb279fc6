"""Events that peers refuse for their time are recorded once more, under a new origin: see docs/sync.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.nodes import STORES, new_log_id, open_node, write

from everlog.application.sync.again import record_again
from everlog.sync.wire import Rejected
from everlog.testing.signing import key
from everlog.trust.signer import KeysInMemory


@pytest.mark.parametrize("store", STORES)
def test_refused_events_are_recorded_again_under_a_new_origin(store: str, tmp_path: Path) -> None:
    node = open_node(store, tmp_path, new_log_id(), "a", keys=[key(1)], kept=KeysInMemory([key(1)]))
    before = node.log.identity.origin
    _, refused, _ = (write(node, text) for text in ("before", "ahead", "after"))
    assert record_again(node.log, [Rejected(refused, "clock_too_far")]) == 2
    assert [(one.event.origin == before, one.event.payload["text"]) for one in node.log.read()] == [
        (True, "before"),
        (True, "ahead"),
        (True, "after"),
        (False, "ahead"),
        (False, "after"),
    ]
    assert node.log.verify().ok
    node.log.close()
