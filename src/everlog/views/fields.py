"""The view that every stream has without anybody writing one: the last value of every field, along the stream.

Objects are merged, path by path; everything else, lists and null included, replaces what was there. So after

    {"lane": "doing", "owner": {"name": "ada"}}        and then        {"lane": "done", "owner": {"mail": "a@b"}}

the state is `{"lane": "done", "owner": {"name": "ada", "mail": "a@b"}}`. Events of every type count, each brought up
to the latest version of its type. Nothing is ever taken away: a field that is to be empty is set to null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everlog.core.event import Event
from everlog.views.view import View


class Fields(View):
    name = "fields"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return merged(state, event.payload)


def merged(state: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """A new object; neither of the two is changed."""
    found = dict(state)
    for name, value in said.items():
        there = found.get(name)
        found[name] = merged(there if isinstance(there, dict) else {}, value) if isinstance(value, dict) else value
    return found
