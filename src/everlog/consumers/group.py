"""A named group of consumers that share the events of a query, each key in order, each event at least once.

group = Group(log, "mailer", Query(types=frozenset({"order.placed"})), key="stream", partitions=16)
with group.member("mailer-1") as member:
    for delivery in member:
        send_mail(delivery.event)      # first the effect
        delivery.ack()                 # then the cursor
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from everlog.consumers.keys import OWN, Key, key_of, partition_of
from everlog.consumers.member import Member, OnReset
from everlog.consumers.states import (
    Grant,
    GroupState,
    Place,
    forget_group,
    group_names,
    keep_group,
    keep_place,
    read_group,
    read_place,
)
from everlog.core.event import START, Event, Position
from everlog.core.fields import require_text
from everlog.core.query import EVERYTHING, Cursor, Query
from everlog.errors import GroupDiffers, InvalidField, NotFound
from everlog.log.letters import OPEN, RETRYING, SKIPPED, Letter, keep_letter, read_letters, remove_letter
from everlog.log.log import Log
from everlog.log.pages import newest_purge
from everlog.log.secrets import refuse_secrets
from everlog.stores.contract import Reader, Writer

PARTITIONS = 16
PARTITIONS_MAX = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Settings:
    """How a process takes part; the members of a group need not agree on these."""

    lease_us: int = 30_000_000
    prefetch: int = 100
    attempts_max: int = 5
    retry_s: float = 1.0
    retry_s_max: float = 300.0
    hold: bool = True

    def wait_s(self, attempt: int) -> float:
        """How long to wait after this attempt failed: twice as long each time."""
        return float(min(self.retry_s * 2.0 ** min(attempt - 1, 60), self.retry_s_max))


class Lag(msgspec.Struct, frozen=True):
    """How far behind one member is; the empty name stands for partitions that nobody has."""

    member: str
    partitions: tuple[int, ...]
    events: (
        int | None
    )  # that wait to be handled; None where nobody can tell: the key is a function, or it was not counted
    positions: int  # from the oldest of its cursors to the head
    cursor: int  # the oldest of them
    dead_letters: int
    lease_until_us: int  # when its lease ends, by the store's time


class Group:
    def __init__(
        self,
        log: Log,
        name: str,
        query: Query = EVERYTHING,
        *,
        key: str | Key = "stream",
        partitions: int = PARTITIONS,
        start: Cursor | int | str = START,
        lease_s: float = 30.0,
        prefetch: int = 100,
        attempts_max: int = 5,
        retry_s: float = 1.0,
        retry_s_max: float = 300.0,
        on_poison: str = "hold",
    ) -> None:
        _require(_NAME.fullmatch(name) is not None, "name", name, "letters, digits, '.', '_' and '-', at most 64")
        _require(1 <= partitions <= PARTITIONS_MAX, "partitions", partitions, f"between 1 and {PARTITIONS_MAX}")
        _require(lease_s > 0, "lease_s", lease_s, "more than 0")
        _require(prefetch >= 1, "prefetch", prefetch, "1 or more")
        _require(attempts_max >= 1, "attempts_max", attempts_max, "1 or more")
        _require(on_poison in ("hold", "pass"), "on_poison", on_poison, "'hold' (its key waits) or 'pass'")
        self.log = log
        self.name = name
        self.query = query
        self.key_name = key if isinstance(key, str) else OWN
        self._key = key_of(key) if isinstance(key, str) else key
        self.partitions = partitions
        self._start = start
        self.settings = Settings(
            lease_us=int(lease_s * 1_000_000),
            prefetch=prefetch,
            attempts_max=attempts_max,
            retry_s=retry_s,
            retry_s_max=retry_s_max,
            hold=on_poison == "hold",
        )

    @classmethod
    def stored(cls, log: Log, name: str) -> Group:
        """The group as the log knows it, for those who look after it. NotFound if there is none of this name."""
        state = read_group(log.store, name)
        if state is None:
            raise NotFound(
                f"there is no group of consumers {name[:64]!r}",
                why="a group is there once a member has joined it",
                hint="everlog consumers list",
                group=name,
            )
        unknown = state.key == OWN
        return cls(log, name, state.query, key=_unknown if unknown else state.key, partitions=len(state.grants))

    # ---- members

    def member(
        self,
        name: str,
        *,
        in_flight: int = 1,
        ack_batch: int = 1,
        heartbeat: bool = True,
        handling_s_max: float = 300.0,
        on_reset: OnReset | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> Member:
        """A consumer of this group. Its name is its seat: who joins under it later takes it over.

        `in_flight` events may be handled at once, never two of a key. With `ack_batch`, so many acknowledgements
        share a write; a crash repeats them. The heartbeat renews the lease in a thread as long as no event is in
        hand for longer than `handling_s_max`.
        """
        _require(_NAME.fullmatch(name) is not None, "name", name, "letters, digits, '.', '_' and '-', at most 64")
        _require(in_flight >= 1, "in_flight", in_flight, "1 or more")
        _require(ack_batch >= 1, "ack_batch", ack_batch, "1 or more")
        self.agreed(self.log.store, read_group(self.log.store, self.name))
        return Member(
            self,
            name,
            in_flight=in_flight,
            ack_batch=ack_batch,
            heartbeat=heartbeat,
            handling_s_max=handling_s_max,
            on_reset=on_reset,
            ticks=ticks,
        )

    def agreed(self, reader: Reader, state: GroupState | None) -> GroupState:
        """The group as the log knows it, or as it begins; GroupDiffers if it was defined in another way."""
        if state is not None:
            self._require_same(state)
            return state
        start = Cursor.of(reader.head() if self._start == "head" else self._start)
        if not start.epoch:
            start = Cursor(start.position, newest_purge(reader, self.query), self.log.identity.epoch)
        grants = tuple([Grant()] * self.partitions)
        return GroupState(key=self.key_name, query=self.query, start=str(start), grants=grants)

    def key_and_defect(self, event: Event) -> tuple[str, str]:
        """The key of an event; of one whose key cannot be told, its stream and the reason."""
        try:
            key = self._key(event)
        except Exception as error:
            return event.stream, f"its key cannot be told: {type(error).__name__}: {error}"
        return (key, "") if isinstance(key, str) else (event.stream, f"its key is no text but {type(key).__name__}")

    def _require_same(self, state: GroupState) -> None:
        asked = {"partitions": self.partitions, "key": self.key_name, "query": self.query}
        found = {"partitions": len(state.grants), "key": state.key, "query": state.query}
        differing = [field for field in asked if asked[field] != found[field]]
        if differing:
            raise GroupDiffers(
                f"the group {self.name} is defined with another {' and '.join(differing)}",
                why="its cursors and the order of its keys hold for the definition that it began with",
                hint="use a new name; everlog consumers reset --help shows how to forget the group that is there",
                group=self.name,
                differing=differing,
            )

    # ---- looking after it

    def lag_in_positions(self) -> list[Lag]:
        """How far behind each member is, without counting events: it reads no more than the cursors."""
        return self.lag(count=False)

    def lag(self, *, count: bool = True) -> list[Lag]:
        """How far behind each member is, by events that wait and by positions."""
        store = self.log.store
        state = read_group(store, self.name)
        if state is None:
            return []
        head = self.log.head()
        places = [
            read_place(store, self.name, number) or Place(cursor=state.start) for number in range(self.partitions)
        ]
        cursors = [Cursor.of(place.cursor).position for place in places]
        waiting = self._count_waiting(places, cursors, head) if count else None
        letters = [letter.partition for letter in read_letters(store, self.name) if letter.what in OPEN]
        found = []
        for member in ["", *sorted(state.seats)]:
            held = state.held_by(member)
            if not held and not member:
                continue
            oldest = min((cursors[number] for number in held), default=head)
            found.append(
                Lag(
                    member,
                    tuple(held),
                    None if waiting is None else sum(waiting[number] for number in held),
                    max(head - oldest, 0),
                    oldest,
                    sum(1 for number in letters if number in held),
                    state.seats[member].until_us if member else 0,
                )
            )
        return found

    def _count_waiting(self, places: list[Place], cursors: list[Position], head: Position) -> list[int] | None:
        if self._key is _unknown:
            return None
        waiting = [0] * self.partitions
        done = [set(place.done) for place in places]
        for recorded in self.log.read(self.query, after=min(cursors), upto=head):
            number = partition_of(self.key_and_defect(recorded.event)[0], self.partitions)
            if recorded.position > cursors[number] and recorded.position not in done[number]:
                waiting[number] += 1
        return waiting

    def dead_letters(self, *, decided: bool = False) -> list[Letter]:
        """The events that the group could not take, in order; with `decided`, also those that were dealt with."""
        found = [letter for letter in read_letters(self.log.store, self.name) if decided or letter.what in OPEN]
        return sorted(found, key=lambda letter: letter.position)

    def retry(self, position: int, *, by: str = "", reason: str = "") -> Letter:
        """Have a dead letter tried again, as often as an event; those of its key that wait follow in order."""
        return self._decide(position, RETRYING, by, reason)

    def skip(self, position: int, *, by: str = "", reason: str) -> Letter:
        """Do without an event for good, on record; those of its key that wait follow in order."""
        require_text("reason", reason)
        _require(bool(reason), "reason", reason, "a reason, because it stays on record")
        return self._decide(position, SKIPPED, by, reason)

    def _decide(self, position: int, what: str, by: str, reason: str) -> Letter:
        require_text("reason", reason)
        refuse_secrets("the reason", {"reason": reason})

        def work(writer: Writer) -> Letter:
            state = read_group(writer, self.name)
            found = [one for one in read_letters(writer, self.name) if one.position == position and one.what in OPEN]
            if not found or state is None:
                raise NotFound(
                    f"{self.name} has no dead letter at position {position}",
                    why="it was never one, or somebody dealt with it",
                    hint=f"everlog consumers dead-letters {self.name}",
                    group=self.name,
                    position=position,
                )
            letter = msgspec.structs.replace(
                found[0],
                what=what,
                attempts=0 if what == RETRYING else found[0].attempts,
                not_before_us=0,
                decided_by=by or self.log.actor,
                decided_because=reason,
                decided_us=writer.now_us,
            )
            keep_letter(writer, letter)
            keep_group(writer, self.name, msgspec.structs.replace(state, decisions=state.decisions + 1))
            return letter

        return self.log.in_one_write(work)

    def reset(self, to: Cursor | int | str = START) -> None:
        """Have every partition begin again after a position, or at the "head"; members go on there by themselves."""
        wanted = Cursor.of(self.log.head() if to == "head" else to)
        purged = newest_purge(self.log.store, self.query)
        epoch = self.log.identity.epoch

        def work(writer: Writer) -> None:
            state = read_group(writer, self.name)
            if state is None:
                raise NotFound(f"there is no group of consumers {self.name}", hint="everlog consumers list")
            head = writer.head()
            _require(wanted.position <= head, "position", wanted.position, f"not beyond the head, {head}")
            cursor = str(Cursor(wanted.position, purged, epoch))
            for number in range(len(state.grants)):
                keep_place(writer, self.name, number, Place(cursor=cursor))
            for letter in read_letters(writer, self.name):
                if letter.position > wanted.position and letter.what in OPEN:
                    remove_letter(writer, letter)  # it comes again by itself
            # Freed, so that whoever has something in flight is fenced off and cannot move the cursors back.
            freed = {number: Grant("", grant.token) for number, grant in enumerate(state.grants)}
            changed = msgspec.structs.replace(state.granting(freed), decisions=state.decisions + 1)
            keep_group(writer, self.name, changed)

        self.log.in_one_write(work)

    def forget(self) -> None:
        """Remove the group itself: its definition, its cursors, its seats and its letters."""

        def work(writer: Writer) -> None:
            forget_group(writer, self.name)
            for letter in read_letters(writer, self.name):
                remove_letter(writer, letter)

        self.log.in_one_write(work)


def groups(log: Log) -> list[Group]:
    """Every group of consumers that the log knows."""
    return [Group.stored(log, name) for name in group_names(log.store)]


def _unknown(event: Event) -> str:
    raise InvalidField("the key of this group is a function that is not here", field="key")


def _require(holds: bool, field: str, value: object, expected: str) -> None:
    if not holds:
        raise InvalidField(f"the {field} is {value!r:.80}", why=f"it must be {expected}", hint="", field=field)
