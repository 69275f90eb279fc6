"""Many rows in one statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

# One statement for many rows spares most of the cost of calling SQLite, and lets go of the interpreter's lock once
# where a statement for each row would hand it to another thread every time.
_ROWS_AT_ONCE = 64


@lru_cache(maxsize=4 * _ROWS_AT_ONCE)
def _rows(start: str, columns: int, rows: int) -> str:
    row = "(" + ", ".join("?" * columns) + ")"
    return start + ", ".join([row] * rows)


def insert_rows(writer: sqlite3.Connection, start: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[first : first + _ROWS_AT_ONCE]
        writer.execute(_rows(start, len(some[0]), len(some)), tuple(chain.from_iterable(some)))
