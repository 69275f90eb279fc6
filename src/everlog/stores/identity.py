"""The identity of a new log, and how its origin changes.

The origin of an unsigned log is made up. That of a signed log is its key (`everlog.trust`), which replaces `Origins`.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from everlog.core.event import Link
from everlog.core.ids import IdSource, is_key
from everlog.errors import NoKey
from everlog.stores.contract import Identity


def new_identity(now_us: int, origin: str = "") -> Identity:
    """Who a log that begins now is: its own id, the origin that its events will carry, and its first epoch."""
    log_id, made = IdSource(now_ms=lambda: now_us // 1000).take(2)
    return Identity(log_id, origin or made, epoch=log_id[-8:].lower(), created_us=now_us)


class Origins:
    """Where a log gets its next origin from, and whether it may continue under the one that it has."""

    def new(self, now_us: int, *, before: str) -> str:
        """Return an origin that no log has had."""
        if is_key(before):
            raise no_key(before, why="the log must continue under a new key, and there is no place for keys")
        return str(IdSource(now_ms=lambda: now_us // 1000).take(1)[0])

    def fits(self, origin: str, end_of: Callable[[str], Link]) -> bool:
        """Return whether the log may continue the chain of its origin. `end_of` returns the end of a chain."""
        return True


def no_key(origin: str, *, why: str = "") -> NoKey:
    return NoKey(
        f"the key of {origin} is needed to write to this log",
        why=why or "a signed log signs every event, and its key is not here",
        hint="everlog keys list; put the key file back, or: everlog keys import FILE",
        origin=origin,
    )


def continued(identity: Identity, origin: str, *, head: int) -> Identity:
    """Return the identity of a log that continues under a new origin. Its former origins stay its own."""
    lives = (*identity.lives, (int(head), origin))
    return replace(identity, origin=origin, former=(*identity.former, identity.origin), lives=lives)
