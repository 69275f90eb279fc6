"""Python's collector of cycles, kept off while a batch is worked on.

It would look at every one of the thousands of objects that a batch is made of, again and again, and find nothing:
they go when the last name of theirs goes. What a view of somebody else leaves behind in cycles waits for the end of
the batch, and no longer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
