"""The entries of a message are counted before it is parsed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everlog.sync.wire import _has_more_things

TEXT = st.text(alphabet='a,[]{}"\\é', max_size=12) | st.just('",[' * 30_000)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_the_entries_of_all_lists_are_counted_and_nothing_else(message: dict[str, Any]) -> None:
    commas = sum(max(0, len(value) - 1) for value in message.values() if isinstance(value, list | dict))
    data = json.dumps(message).encode()
    assert not _has_more_things(data, commas)
    assert commas == 0 or _has_more_things(data, commas - 1)
