"""Which states may follow which: one rule per stream kind and event type, which explains its refusals."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from everlog.catalog.schema import resolve
from everlog.errors import SchemaBroken, TransitionRefused


class Transitions(msgspec.Struct, frozen=True, kw_only=True):
    """The allowed moves of one kind of stream; the payload field `field` of `type` has the next state."""

    kind: str
    type: str
    field: str
    initial: str
    allowed: Mapping[str, tuple[str, ...]]
    causal: bool = False  # the event with the greatest (lamport, id) counts, not the last to arrive
    also: Mapping[str, str] = {}  # types of imported events that define the state where nothing else does

    def check(self, stream: str, current: str, requested: str) -> None:
        """Refuse a move that is not allowed, and list those that are."""
        valid = self.after(current)
        if requested in valid:
            return
        raise TransitionRefused(
            f"{stream} cannot go from {current} to {requested}",
            why=f"from {current} it may go to {_or(valid)}" if valid else f"nothing follows {current}",
            hint=self._hint(current, requested),
            stream=stream,
            type=self.type,
            field=self.field,
            current=current,
            requested=requested,
            valid_transitions=list(valid),
        )

    def after(self, current: str) -> tuple[str, ...]:
        """Return the states that may follow. After an unknown state, as of another program, it is the initial one."""
        if current in self.allowed:
            return self.allowed[current]
        return () if current in self.states() else (self.initial,)

    def states(self) -> frozenset[str]:
        """Return every state that the rule names."""
        return frozenset((self.initial, *self.allowed, *(to for targets in self.allowed.values() for to in targets)))

    def way(self, current: str, requested: str) -> tuple[str, ...]:
        """Return the shortest allowed path, both ends included; empty if there is none."""
        ways: deque[tuple[str, ...]] = deque([(current,)])
        seen = {current}
        while ways:
            way = ways.popleft()
            for state in self.after(way[-1]):
                if state == requested:
                    return (*way, state)
                if state not in seen:
                    seen.add(state)
                    ways.append((*way, state))
        return ()

    def _hint(self, current: str, requested: str) -> str:
        between = self.way(current, requested)[1:-1]
        if between:
            return f"go through {' and '.join(between)} first"
        if requested not in self.states():
            return f"the states are {', '.join(sorted(self.states()))}"
        return f"no allowed way leads from {current} to {requested}; read the stream again"


def refuse_other_rule(rule: Transitions, known: Transitions | None) -> None:
    """Refuse a rule that allows no move, or a second rule for the same streams and events."""
    if rule.initial not in rule.allowed and rule.allowed:
        raise SchemaBroken(
            f"the transitions of {rule.kind} start at {rule.initial}, from where nothing is allowed",
            why=f"the states with a way out are {', '.join(rule.allowed)}",
            hint=f"add {rule.initial!r} to allowed, or name another initial state",
            type=rule.type,
        )
    if known is not None and known != rule:
        raise SchemaBroken(
            f"the transitions of {rule.kind} by {rule.type} are given twice",
            why="a stream kind has one rule per event type",
            hint="keep one of them",
            type=rule.type,
        )


def rule_problems(rule: Transitions, schema: Mapping[str, Any] | None) -> list[str]:
    """Return the mismatches between a rule and its payload; `schema` is None when no model is registered."""
    named = f"the transitions of {rule.kind} by {rule.type}"
    if schema is None:
        return [f"{named}: no model is registered for the type"]
    field = schema.get("properties", {}).get(rule.field)
    if field is None:
        return [f"{named}: the model has no field {rule.field}"]
    choices = resolve(field, schema.get("$defs", {})).get("enum")
    unknown = sorted(rule.states().difference(choices)) if choices else []
    return [f"{named}: the field {rule.field} never says {', '.join(unknown)}"] if unknown else []


def _or(states: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(states[:-1]), states[-1])))
