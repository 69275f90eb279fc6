"""Slabs of segments: payloads that are plain and others, and times of every kind, come out as they are stored."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from everlog.core.canonical import NUMBER_MAX
from everlog.core.codec import Packed
from everlog.stores.contract import Encoded, encode_event
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import event
from everlog.testing.scan_contract import packed

PLAIN: list[dict[str, Any]] = [
    {},
    {
        "b": "text",
        "a": None,
        "c": [True, -1, "x", []],
        "d": {"e": [NUMBER_MAX, -NUMBER_MAX], "a": {"z": 1, "b": False}},
    },
    {"quotes": '" \\ / \n \x00 \x7f'},
]
OTHERS: list[dict[str, Any]] = [
    {"b": 1.0, "a": 1e-7},
    {"ü": 1, "€": 2, "𝄞": 3, "\ue000": 4},
    {"deep": {"er": {"still": {"and": [{"more": [1.5]}]}}}},
    {"deep": {"er": {"still": {"and": [{"more": [1]}]}}}},
]
WHOLE = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TIMES = [WHOLE, WHOLE + timedelta(microseconds=1), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]


@pytest.mark.parametrize(
    "payloads", [PLAIN, [*PLAIN, *OTHERS], [*OTHERS, *PLAIN]], ids=["plain", "plain first", "others first"]
)
@pytest.mark.parametrize("times", [TIMES[:1], TIMES[1:2], TIMES], ids=["whole seconds", "microseconds", "all"])
@pytest.mark.parametrize("together", [True, False], ids=["one frame", "many frames"])
def test_slabs_hold_the_stored_bytes(
    tmp_path: Path, payloads: list[dict[str, Any]], times: list[datetime], together: bool
) -> None:
    events = [
        replace(event(payload=payload), occurred_at=times[number % len(times)])
        for number, payload in enumerate([*payloads, *payloads])
    ]
    events[2] = replace(events[2], payload={}, salt=b"")  # erased
    with closing(SegmentsStore(tmp_path / "log")) as store:
        _write(store, [encode_event(one) for one in events], together)
        expected = [place for place in store.slots() if isinstance(place, Packed)]
        found = [each for block in store.blocks() for each in packed(block)]
        assert found == expected
        assert len(found) == len(events)


def _write(store: SegmentsStore, events: list[Encoded], together: bool) -> None:
    for some in [events] if together else [[one] for one in events]:
        with store.open_write() as writer:
            writer.append(some)
