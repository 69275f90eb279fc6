"""The identity of a new log, and of one that was put back."""

from __future__ import annotations

from msgspec.structs import replace

from everlog.core.ids import IdSource
from everlog.stores.contract import Identity


def new_identity(now_us: int) -> Identity:
    """Who a log that begins now is: its own id, the origin that its events will carry, and its first epoch."""
    log_id, origin = IdSource(now_ms=lambda: now_us // 1000).take(2)
    return Identity(log_id, origin, epoch=log_id[-8:].lower(), created_us=now_us)


def new_origin(now_us: int) -> str:
    return str(IdSource(now_ms=lambda: now_us // 1000).take(1)[0])


def continued(identity: Identity, now_us: int, *, head: int) -> Identity:
    """Return the identity of a log that continues under a new origin. Its former origins stay its own."""
    origin = new_origin(now_us)
    lives = (*identity.lives, (int(head), origin))
    return replace(identity, origin=origin, former=(*identity.former, identity.origin), lives=lives)
