"""Which positions were applied, as bits: what an audit needs to name every one that was not, at one bit each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from everlog.views.states import BLOCK

HELD_MAX = 1_000_000
"""Positions held before their bits are handed on. The bits of one block may then come in several parts."""


class Applied:
    def __init__(self) -> None:
        self._held: list[np.ndarray] = []
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= HELD_MAX

    def add(self, positions: pa.Array) -> None:
        if len(positions):
            self._held.append(positions.to_numpy(zero_copy_only=False).astype(np.int64))
            self._count += len(positions)

    def take(self) -> Iterator[tuple[int, bytes]]:
        """The number of each block and its bits, as `everlog.views.states` keeps them; then there are none."""
        if not self._held:
            return
        positions = np.concatenate(self._held)
        self._held, self._count = [], 0
        blocks, of = np.unique(positions // BLOCK, return_inverse=True)
        for start in range(0, len(blocks), BLOCK):  # a part at a time: a bit is a byte until it is packed
            mine = (of >= start) & (of < start + BLOCK)
            bits = np.zeros((min(BLOCK, len(blocks) - start), BLOCK), dtype=bool)
            bits[of[mine] - start, positions[mine] % BLOCK] = True
            packed = np.packbits(bits, axis=1, bitorder="little")[:, ::-1]
            for block, data in zip(blocks[start : start + BLOCK], packed, strict=True):
                yield int(block), data.tobytes()
