"""What a write takes over from another log: slots as records, and the runs of their chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everlog.core.chain import Chain, Run
from everlog.core.codec import Packed, header_hash, unpack_all
from everlog.core.event import Position
from everlog.stores.contract import Encoded
from everlog.stores.staged_group import Record


def decoded_slots(slots: Sequence[Packed]) -> list[Record]:
    """Return the records of stored bytes, with these bytes and the hash of each event."""
    return [
        (recorded, Encoded(recorded.event, slot.header, slot.payload, header_hash(slot.header)))
        for slot, recorded in zip(slots, unpack_all(slots), strict=True)
    ]


class Runs:
    """Joins events with their chains in runs: one by one they would cost a copy more than decoding them."""

    def __init__(self, chain: Callable[[str], Chain], join: Callable[[str, Run], None]) -> None:
        self._chain = chain
        self._join = join
        self._origin = ""
        self._steps: list[tuple[int, bytes, bytes, Position]] = []
        self._following, self._hash = 0, b""

    def add(self, origin: str, number: int, previous: bytes, digest: bytes, position: Position) -> None:
        if origin != self._origin or number != self._following or previous != self._hash:
            self.end()
            self._origin = origin
        self._steps.append((number, previous, digest, position))
        self._following, self._hash = number + 1, digest

    def end(self) -> None:
        """Join what was added last."""
        if not self._steps:
            return
        first, previous, _, _ = self._steps[0]
        last, _, digest, position = self._steps[-1]
        if any(run.first <= last and run.last >= first for run in self._chain(self._origin).runs):
            for number, before, hash, place in self._steps:  # a fork has each event by itself
                self._join(self._origin, Run(number, before, number, hash, place))
        else:
            self._join(self._origin, Run(first, previous, last, digest, position))
        self._steps = []
