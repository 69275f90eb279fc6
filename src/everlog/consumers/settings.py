"""The settings of a group and of its members: the defaults, and what is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from everlog.errors import InvalidField

PARTITIONS = 16
PARTITIONS_MAX = 1024
LEASE_S = 30.0
PREFETCH = 100
ATTEMPTS_MAX = 5
RETRY_S = 1.0
RETRY_S_MAX = 300.0
HANDLING_S_MAX = 300.0
WATCHED_EVENTS = 100
"""After an owner vanished, this many events of its partitions are recorded before they are delivered."""

CHECK_S = 0.5
"""How often a member checks whether its group has changed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Settings:
    """How a process takes part in a group. The members of a group need not agree on these."""

    lease_us: int
    prefetch: int
    attempts_max: int
    retry_s: float
    retry_s_max: float
    hold: bool

    def wait_s(self, attempt: int) -> float:
        """Return the delay after this attempt failed: twice as long each time."""
        return float(min(self.retry_s * 2.0 ** min(attempt - 1, 60), self.retry_s_max))


def checked(
    *,
    lease_s: float,
    prefetch: int,
    attempts_max: int,
    retry_s: float,
    retry_s_max: float,
    on_poison: str,
) -> Settings:
    """Return the settings, or raise InvalidField for the first that cannot be used."""
    require(lease_s > 0, "lease_s", lease_s, "more than 0")
    require(prefetch >= 1, "prefetch", prefetch, "1 or more")
    require(attempts_max >= 1, "attempts_max", attempts_max, "1 or more")
    require(on_poison in ("hold", "pass"), "on_poison", on_poison, "'hold' (its key waits) or 'pass'")
    return Settings(
        lease_us=int(lease_s * 1_000_000),
        prefetch=prefetch,
        attempts_max=attempts_max,
        retry_s=retry_s,
        retry_s_max=retry_s_max,
        hold=on_poison == "hold",
    )


def require_name(name: str) -> None:
    require(_NAME.fullmatch(name) is not None, "name", name, "letters, digits, '.', '_' and '-', at most 64")


def require(holds: bool, field: str, value: object, expected: str) -> None:
    if not holds:
        raise InvalidField(f"the {field} is {value!r:.80}", why=f"it must be {expected}", hint="", field=field)
