"""Changes of small state: one that is made over another and added to it."""

from __future__ import annotations

from everlog.stores.small_state import MemoryState, StateChanges
from everlog.stores.texts import Text


def test_a_change_over_another_is_the_same_as_one_change_for_both() -> None:
    state = MemoryState()
    with state.change() as before:
        before.put("rows#1", {"a": b"1", "b": b"2"})
        before.put("rows#2", {"c": b"3"})
    with state.change() as first:
        first.put("rows#1", {"a": b"4"})
        first.put("rows#2", {"d": b"5"})
        over = StateChanges(first)
        assert over.rows("rows#1", ["a", "b"]) == {"a": b"4", "b": b"2"}
        over.put("rows#1", {"b": None, "e": b"6"})
        over.clear("rows#2")
        over.put("rows#2", {"f": b"7"})
        over.put_texts("rows#1", {"e": Text("", ("hello",), ())})
        over.scrub = True
        assert first.rows("rows#1", ["b", "e"]) == {"b": b"2"}  # not before it is taken
        first.take(over)
        assert first.scrub
    assert list(state.scan("rows#1")) == [("a", b"4"), ("e", b"6")]
    assert list(state.scan("rows#2")) == [("f", b"7")]
    assert state.holding("rows#1", ["hello"], within="", limit=5) == ["e"]
