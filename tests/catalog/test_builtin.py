from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.catalog.builtin import BUILT_IN
from everlog.core.event import Event
from everlog.errors import InvalidPayload

MakeEvent = Callable[..., Event]


@given(body=st.text(max_size=50))
def test_an_upcast_note_equals_one_that_was_written_today(an_event: MakeEvent, body: str) -> None:
    found = BUILT_IN.upcast(an_event("note.added", 1, {"body": body}))
    assert found.payload == {"text": body, "topic": ""}
    if body:
        assert BUILT_IN.validate("note.added", found.payload) == (2, found.payload)


def test_the_built_in_catalog_is_sound_and_keeps_its_limits() -> None:
    assert BUILT_IN.check() == []
    assert BUILT_IN.validate("note.added", {"text": "x" * 10_000})[0] == 2
    for text in ("", "x" * 10_001):
        with pytest.raises(InvalidPayload):
            BUILT_IN.validate("note.added", {"text": text})
