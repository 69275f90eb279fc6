"""A small world of consumers under a clock that stands still until it is moved, and the promises it must keep.

Effects are recorded as a fenced receiver would take them: one that comes with an older token than the partition has
seen is refused. What is checked at every step:

    order     an event has an effect only after every earlier event of its key had one, or was given up on record
    no skip   a cursor passes only what had an effect, lies in the dead letters, or was purged
    monotone  a cursor never goes back, unless somebody resets the group
    ack       what was acknowledged is not delivered again by whoever has the partition
"""

from __future__ import annotations

import random
from collections.abc import Callable

from everlog.catalog.builtin import BUILT_IN
from everlog.consumers.assignment import partition_of
from everlog.consumers.delivery import Delivery
from everlog.consumers.group import Group
from everlog.consumers.group_state import read_group, read_progress
from everlog.consumers.member import Member
from everlog.core.event import Recorded
from everlog.core.query import Cursor, Query
from everlog.errors import LeaseLost, NotFound
from everlog.log.dead_letters import (
    FAILED,
    OPEN,
    SKIPPED,
    read_letters,
)
from everlog.log.log import Log
from everlog.stores.contract import Store
from everlog.stores.memory import MemoryStore

NAMES = ("a", "b", "c", "d")
LEASE_S = 10.0


class World:
    def __init__(
        self,
        *,
        store: Callable[[Callable[[], int]], Store] = lambda now_us: MemoryStore(now_us=now_us),
        on_poison: str = "hold",
        partitions: int = 4,
        prefetch: int = 3,
    ) -> None:
        self.us = 1_800_000_000_000_000
        self.log = Log(store(lambda: self.us), BUILT_IN, now_us=lambda: self.us)
        self.holds = on_poison == "hold"
        self.group = Group(
            self.log,
            "mailer",
            Query(kind="note"),
            partitions=partitions,
            lease_s=LEASE_S,
            prefetch=prefetch,
            attempts_max=2,
            retry_s=1.0,
            on_poison=on_poison,
        )
        self.members: dict[str, Member] = {}
        self.out: dict[str, list[Delivery]] = {}
        self.zombies: list[Delivery] = []
        self.events: dict[int, Recorded] = {}  # those that match and are not purged
        self.effects: set[int] = set()
        self.acked: set[int] = set()
        self.given_up: set[int] = set()
        self.tokens: dict[int, int] = {}
        self.cursors: dict[int, int] = {}
        self.poison: set[int] = set()
        self.resets = 0
        self.reset_token = 0
        self.decided_before: set[int] = set()  # on record still, but the group was reset since

    # ---- what happens

    def append(self, key: int, *, poison: bool = False) -> None:
        recorded = self.log.append("note.added", stream=f"note/{key}", payload={"text": "x"})
        self.events[recorded.position] = recorded
        if poison:
            self.poison.add(recorded.position)

    def append_other(self) -> None:
        self.log.append("note.added", stream="other/1", payload={"text": "x"})

    def join(self, name: str, in_flight: int) -> None:
        if name in self.members:
            return
        self.members[name] = self.group.member(
            name, in_flight=in_flight, heartbeat=False, ticks=lambda: self.us / 1e6, on_reset=self.on_reset
        )
        self.out[name] = []

    def on_reset(self, reset: object) -> None:
        self.resets += 1

    def leave(self, name: str) -> None:
        if name in self.members:
            self.members.pop(name).leave()
            self.zombies += self.out.pop(name)

    def crash(self, name: str) -> None:
        if name in self.members:
            del self.members[name]
            self.zombies += self.out.pop(name)

    def take(self, name: str) -> None:
        member = self.members.get(name)
        if member is None:
            return
        if member._in_flight_max == 1 and self.out[name]:
            return  # asking for more would fail it, and that is another test's business
        try:
            delivery = member.take()
        except LeaseLost:
            self.crash(name)  # somebody joined under its name
            return
        if delivery is not None:
            state = read_group(self.log.writer.small_state, "mailer")
            if state is not None and state.grants[delivery.partition].token == delivery.token:
                # Somebody who does not know yet that the group was reset may still do its old work: it is fenced.
                assert delivery.position not in self.acked, f"{delivery} was acknowledged and comes again"
            assert delivery.position in self.events, f"{delivery} does not match, or was purged"
            self.out[name].append(delivery)

    def settle(self, delivery: Delivery) -> None:
        """What a handler does: the effect, then the word about it. Poison has no effect."""
        if delivery.position in self.poison:
            try:
                delivery.nack("poison")
            except LeaseLost:
                return
        else:
            self.have_effect(delivery)
            try:
                delivery.ack()
            except LeaseLost:
                return
            self.acked.add(delivery.position)

    def have_effect(self, delivery: Delivery) -> None:
        if delivery.token < self.tokens.get(delivery.partition, 0) or delivery.token <= self.reset_token:
            return  # the receiver has heard of a later owner or of a reset, and refuses
        self.tokens[delivery.partition] = delivery.token
        if delivery.position not in self.events:
            return  # purged while it was in hand
        stream = delivery.event.stream
        earlier = [
            index
            for index, event in self.events.items()
            if event.event.stream == stream and index < delivery.position
        ]
        unhandled = set(earlier) - self.effects - self.given_up
        if not self.holds:
            unhandled -= {letter.position for letter in self.group.dead_letters()}
        assert not unhandled, f"{delivery} of {stream} has its effect before {sorted(unhandled)}"
        self.effects.add(delivery.position)

    def settle_one(self, name: str, index: int) -> None:
        held = self.out.get(name)
        if held:
            self.settle(held.pop(index % len(held)))

    def wake_zombie(self, index: int) -> None:
        """A consumer that was thought dead goes on as if nothing had happened."""
        if self.zombies:
            self.settle(self.zombies.pop(index % len(self.zombies)))

    def pass_time(self, seconds: float) -> None:
        self.us += int(seconds * 1_000_000)

    def purge(self, key: int) -> None:
        try:
            self.log.purge(f"note/{key}", reason="test")
        except NotFound:
            return
        self.events = {p: event for p, event in self.events.items() if event.event.stream != f"note/{key}"}
        assert all(letter.stream != f"note/{key}" for letter in self.group.dead_letters(decided=True))

    def decide(self, index: int, *, skip: bool) -> None:
        letters = [letter for letter in self.group.dead_letters() if letter.what == FAILED]
        if not letters:
            return
        letter = letters[index % len(letters)]
        if skip:
            self.group.skip(letter.position, reason="test")
            self.given_up.add(letter.position)
            self.decided_before.discard(letter.position)
        else:
            self.poison.discard(letter.position)
            self.group.retry(letter.position)

    def reset_group(self) -> None:
        """Somebody has everything handled again: nothing from before counts."""
        state = read_group(self.log.writer.small_state, "mailer")
        if state is None:
            return
        self.group.reset()
        self.reset_token = state.tokens
        self.effects, self.acked, self.cursors = set(), set(), {}
        self.decided_before = {letter.position for letter in self.group.dead_letters(decided=True)}

    # ---- what must hold

    def check(self) -> None:
        letters = self.letters_that_count()
        for number in range(self.group.partitions):
            progress = read_progress(self.log.writer.small_state, "mailer", number)
            if progress is None:
                continue
            cursor = Cursor.of(progress.cursor).position
            assert cursor >= self.cursors.get(number, 0), f"the cursor of partition {number} went back"
            self.cursors[number] = cursor
            for position, recorded in self.events.items():
                if partition_of(recorded.event.stream, self.group.partitions) != number:
                    continue
                if position <= cursor or position in progress.done:
                    assert position in self.effects or position in letters, f"{position} was skipped at {cursor}"
        state = read_group(self.log.writer.small_state, "mailer")
        if state is not None:
            holders = [grant.member for grant in state.grants if grant.member]
            assert set(holders) <= set(state.members)

    def letters_that_count(self) -> set[int]:
        found = read_letters(self.log.writer.small_state, "mailer")
        return {one.position for one in found if one.what in OPEN or one.position not in self.decided_before}

    def check_lag(self) -> None:
        """The reported lag is the number of events that nobody acknowledged and that lie in no dead letter."""
        letters = self.letters_that_count()
        by_partition: dict[int, int] = {}
        for position, recorded in self.events.items():
            if position not in self.acked and position not in letters:
                number = partition_of(recorded.event.stream, self.group.partitions)
                by_partition[number] = by_partition.get(number, 0) + 1
        for lag in self.group.lag():
            assert lag.events == sum(by_partition.get(number, 0) for number in lag.partitions), lag
            assert lag.cursor == min((self.cursors.get(number, 0) for number in lag.partitions), default=lag.cursor)

    def finish(self) -> None:
        """When the trouble is over, one consumer that lives handles all that is left."""
        for name in list(self.members):
            self.crash(name)
        self.poison.clear()
        self.pass_time(LEASE_S + 1)
        self.join("last", 1)
        for _ in range(20 * (len(self.events) + 5)):
            for letter in self.group.dead_letters():
                if letter.what == FAILED:  # also those that become one now, because they ended consumers
                    self.group.retry(letter.position)
            self.take("last")
            self.settle_one("last", 0)
            self.pass_time(0.6)
            if self.members["last"].at_end and not self.out["last"]:
                break
        self.check()
        assert set(self.events) - self.effects - self.given_up == set(), "some were never handled"
        assert [letter for letter in self.group.dead_letters() if letter.what != SKIPPED] == []
        self.leave("last")
        assert [lag.events for lag in self.group.lag()] == [0]

    def close(self) -> None:
        self.log.close()

    # ---- at random, for the planted bugs

    def live(self, seed: int, steps: int) -> None:
        chance = random.Random(seed)
        for _ in range(steps):
            name = chance.choice(NAMES)
            index = chance.randrange(8)
            what = chance.choices(STEPS, WEIGHTS)[0]
            what(self, name, index, chance)
            self.check()
        self.finish()


Step = Callable[[World, str, int, random.Random], None]
_TABLE: tuple[tuple[int, Step], ...] = (
    (6, lambda w, name, index, chance: w.append(index % 4, poison=chance.random() < 0.15)),
    (1, lambda w, name, index, chance: w.append_other()),
    (3, lambda w, name, index, chance: w.join(name, 1 + index % 3)),
    (1, lambda w, name, index, chance: w.leave(name)),
    (1, lambda w, name, index, chance: w.crash(name)),
    (10, lambda w, name, index, chance: w.take(name)),
    (9, lambda w, name, index, chance: w.settle_one(name, index)),
    (1, lambda w, name, index, chance: w.wake_zombie(index)),
    (3, lambda w, name, index, chance: w.pass_time(chance.choice((0.6, 2, 5, 11)))),
    (1, lambda w, name, index, chance: w.purge(index % 4) if chance.random() < 0.3 else None),
    (1, lambda w, name, index, chance: w.decide(index, skip=chance.random() < 0.5)),
    (1, lambda w, name, index, chance: w.reset_group() if chance.random() < 0.3 else None),
    (1, lambda w, name, index, chance: w.check_lag()),
)
STEPS = [step for _, step in _TABLE]
WEIGHTS = [weight for weight, _ in _TABLE]


def fill(log: Log, count: int, keys: int = 5) -> None:
    for number in range(count):
        log.append("note.added", stream=f"note/{number % keys}", payload={"text": str(number)})


def take_one(member: Member) -> Delivery:
    delivery = member.take()
    assert delivery is not None
    return delivery
