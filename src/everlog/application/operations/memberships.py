"""Consumers that take events by requests: their members run in this process, and a lease decides how long.

A member is in the memory of the process that it joined. It has no heartbeat: every request renews its lease, and a
consumer that sends none for as long as the lease loses its partitions to others. After a restart of the process the
consumer joins again, and gets the events again that it had not acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from everlog.consumers.delivery import Delivery
from everlog.consumers.group import Group
from everlog.consumers.member import Member
from everlog.errors import Busy, LeaseLost
from everlog.log.log import Log

MEMBERS_MAX = 1000


class Membership:
    """A consumer, its member, and the deliveries that it has not settled."""

    def __init__(self, member: Member, lease_s: float, now: Callable[[], float]) -> None:
        self.member = member
        self.lock = threading.Lock()
        self._ready: list[Delivery] = []  # taken by `join`, for the first `take`
        self._out: dict[tuple[int, int], Delivery] = {}  # by position and token, until they are settled
        self._lease_s = lease_s
        self._now = now
        self._used_at = now()

    def begin(self) -> None:
        """Take a share of the partitions."""
        with self.lock:
            first = self.member.take()
            self._ready = [] if first is None else [first]

    def take(self, limit: int, *, again: bool) -> list[Delivery]:
        """Return the next events, and renew the lease; with `again`, those before them that were not settled."""
        with self.lock:
            self.member.renew()
            found = list(self._out.values())[:limit] if again else []
            while len(found) < limit:
                delivery = self._ready.pop() if self._ready else self.member.take()
                if delivery is None:
                    break
                self._out[delivery.position, delivery.token] = delivery
                found.append(delivery)
            return found

    def settle(self, position: int, token: int, how: Callable[[Delivery], None]) -> None:
        """Acknowledge or refuse an event that was taken."""
        with self.lock:
            delivery = self._out.pop((position, token), None)
            if delivery is None:
                raise LeaseLost(
                    f"{self.member.name} does not have the event at {position} with the token {token}",
                    why="it was never taken, it was settled, or its partition has another owner",
                    hint="take the next events; this one comes again if nobody acknowledged it",
                    position=position,
                    token=token,
                )
            how(delivery)

    def use(self) -> None:
        self._used_at = self._now()

    @property
    def expired(self) -> bool:
        return self._now() - self._used_at > self._lease_s


class Memberships:
    """The consumers of one log that joined this process by requests."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[tuple[str, str], Membership] = {}
        self._now = now

    def join(self, group: Group, name: str, *, in_flight: int, lease_s: float) -> Membership:
        """Join a group. A consumer that joined earlier under the same name is replaced."""
        with self._lock:
            for known in [one for one, found in self._by_name.items() if found.expired]:
                del self._by_name[known]
            if len(self._by_name) >= MEMBERS_MAX and (group.name, name) not in self._by_name:
                raise Busy(
                    f"{MEMBERS_MAX:,} consumers have joined by requests",
                    why="that is the most that one process keeps",
                    hint="let one of them leave, or wait until a lease ends",
                )
        member = group.member(name, in_flight=in_flight, heartbeat=False)
        found = Membership(member, lease_s, self._now)
        with self._lock:
            self._by_name[group.name, name] = found
        return found

    def find(self, group: str, name: str) -> Membership:
        """Return a consumer that has joined and whose lease has not ended."""
        with self._lock:
            found = self._by_name.get((group, name))
            if found is not None and found.expired:
                del self._by_name[group, name]
                found = None
        if found is None:
            raise LeaseLost(
                f"{name[:64]} is not a member of {group[:64]} here",
                why="it never joined this process, it left, or it sent nothing for as long as its lease",
                hint="join the group again; events that were not acknowledged come again",
                member=name[:64],
            )
        found.use()
        return found

    def leave(self, group: str, name: str) -> None:
        with self._lock:
            found = self._by_name.pop((group, name), None)
        if found is not None:
            found.member.leave()


_OF_LOG: WeakKeyDictionary[Log, Memberships] = WeakKeyDictionary()
_LOCK = threading.Lock()


def memberships_of(log: Log) -> Memberships:
    """Return the consumers of a log in this process."""
    with _LOCK:
        return _OF_LOG.setdefault(log, Memberships())
