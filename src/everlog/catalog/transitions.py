"""Which states may follow which: a rule per stream kind and event type, that explains its no."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from everlog.errors import TransitionRefused


class Transitions(msgspec.Struct, frozen=True, kw_only=True):
    """The allowed moves of one kind of stream, as the payload field `field` of `type` names them."""

    kind: str
    type: str
    field: str
    initial: str
    allowed: Mapping[str, tuple[str, ...]]
    causal: bool = False  # the state is that of the greatest (lamport, id), not of the last event to arrive
    also: Mapping[str, str] = {}  # types of imported events that name the state too, where nothing else does

    def check(self, stream: str, current: str, requested: str) -> None:
        """Refuse a move that is not allowed, and say which ones are."""
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
        """The states that may follow; after one that the rule does not know, as of another program, the first one."""
        if current in self.allowed:
            return self.allowed[current]
        return () if current in self.states() else (self.initial,)

    def states(self) -> frozenset[str]:
        """Every state that the rule names."""
        return frozenset((self.initial, *self.allowed, *(to for targets in self.allowed.values() for to in targets)))

    def way(self, current: str, requested: str) -> tuple[str, ...]:
        """The shortest allowed way, both ends included; empty when there is none."""
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


def _or(states: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(states[:-1]), states[-1])))
