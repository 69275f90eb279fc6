"""A store that can be held up inside a write, so that others come to wait behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from everlog.stores.memory import MemoryStore

PATIENCE_S = 20


class HeldUp(MemoryStore):
    """`entered` is set when a write has begun; it goes on when `go_on` is."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go_on = threading.Event()

    @contextmanager
    def open_write(self) -> Iterator[Any]:
        with super().open_write() as staged:
            self.entered.set()
            assert self.go_on.wait(PATIENCE_S)
            yield staged
