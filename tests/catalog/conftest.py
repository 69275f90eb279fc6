"""An event for the tests of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from everlog.core.event import Event
from everlog.core.ids import EventId


@pytest.fixture(scope="session")
def an_event() -> Callable[..., Event]:
    """Makes an event of which only the type, the version and the payload matter."""
    return _an_event


def _an_event(event_type: str, version: int, payload: dict[str, Any], *, salt: bytes = b"salt") -> Event:
    return Event(
        id=EventId("01J00000000000000000000000"),
        type=event_type,
        version=version,
        stream="workpackage/WP03",
        lamport=1,
        origin="node",
        origin_seq=1,
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        actor="user:ada",
        scope="",
        request_id="",
        causation_id="",
        correlation_id="",
        idempotency_key="",
        tags={},
        commitment=b"",
        previous=b"",
        payload=payload,
        salt=salt,
    )
