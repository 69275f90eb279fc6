"""Folds for types that declare how concurrent changes merge: `union`, `counter` and `keep-both`.

    class Cart(View):
        name = "cart"
        types = ("cart.item_added",)  # declares merge="union"
        order = CAUSAL

        def apply(self, state, event):
            return {**state, "items": union(state.get("items", ()), event.payload["item"])}

Each gives the same result on every node. `union` and `counter` do so in any order; `keep_both` in a causal view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everlog.core.canonical import canonical
from everlog.core.event import Event


def union(values: Iterable[Any], value: Any) -> list[Any]:
    """Return a set with one more value, as a sorted list."""
    found = {canonical(one): one for one in (*values, value)}
    return [found[key] for key in sorted(found)]


def counter(total: int, amount: int) -> int:
    """Return a sum with one more amount, which may be negative."""
    return total + amount


def keep_both(values: Iterable[Any], event: Event, value: Any) -> list[Any]:
    """Return every value with the id of the event that gave it, in the order of the view."""
    return [*values, {"id": event.id, "value": value}]
