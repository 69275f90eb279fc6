"""The identity of a new log."""

from __future__ import annotations

from everlog.core.ids import IdSource
from everlog.stores.contract import Identity


def new_identity(now_us: int) -> Identity:
    """Who a log that begins now is: its own id, the origin that its events will carry, and its first epoch."""
    log_id, origin = IdSource(now_ms=lambda: now_us // 1000).take(2)
    return Identity(log_id, origin, epoch=log_id[-8:].lower(), created_us=now_us)
