"""Who may use an operation, and what it does. Each command, question and action states it."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["none", "read", "append", "admin"]
ROLES: tuple[Role, ...] = ("none", "read", "append", "admin")
"""Each role may do what the ones before it may. `none` needs no token."""

Limit = Literal["within", "log", "none"]
"""How the caller's scope limits an operation: `within` (what is outside of it does not exist), `log` (it is about the
whole log, so only a caller without a limit may use it), or `none` (it is about no events)."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Who may use an operation or a route, how the caller's scope limits it, and what it does."""

    role: Role
    scope: Limit
    destructive: bool = False
    idempotent: bool = True
