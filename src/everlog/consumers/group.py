"""A named group of consumers that share the events of a query, each key in order, each event at least once.

group = Group(log, "mailer", Query(types=frozenset({"order.placed"})), key="stream", partitions=16)
with group.member("mailer-1") as member:
    for delivery in member:
        send_mail(delivery.event)      # first the effect
        delivery.ack()                 # then the cursor
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from everlog.consumers import settings
from everlog.consumers.assignment import OWN, Key, key_of, partition_of
from everlog.consumers.group_state import (
    Grant,
    GroupState,
    Progress,
    forget_group,
    group_names,
    keep_group,
    keep_progress,
    read_group,
    read_progress,
)
from everlog.consumers.member import Member, OnReset
from everlog.consumers.settings import require, require_name
from everlog.core.event import START, Event, Position
from everlog.core.fields import require_text
from everlog.core.query import EVERYTHING, Cursor, Query
from everlog.errors import GroupDiffers, InvalidField, NotFound
from everlog.log.dead_letters import (
    OPEN,
    RETRYING,
    SKIPPED,
    GroupLetter,
    keep_letter,
    read_letters,
    remove_letter,
)
from everlog.log.log import Log
from everlog.log.read.resets import newest_purge
from everlog.log.secrets.find import refuse_secrets
from everlog.stores.contract import Reader
from everlog.stores.open_write import OpenWrite


class Lag(msgspec.Struct, frozen=True):
    """How far behind one member is; the empty name stands for partitions without an owner."""

    member: str
    partitions: tuple[int, ...]
    events: int | None  # waiting to be handled; None if the key is a function, or they were not counted
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
        partitions: int = settings.PARTITIONS,
        start: Cursor | int | str = START,
        lease_s: float = settings.LEASE_S,
        prefetch: int = settings.PREFETCH,
        attempts_max: int = settings.ATTEMPTS_MAX,
        retry_s: float = settings.RETRY_S,
        retry_s_max: float = settings.RETRY_S_MAX,
        on_poison: str = "hold",
    ) -> None:
        require_name(name)
        require(
            1 <= partitions <= settings.PARTITIONS_MAX,
            "partitions",
            partitions,
            f"between 1 and {settings.PARTITIONS_MAX}",
        )
        self.log = log
        self.name = name
        self.query = query
        self.key_name = key if isinstance(key, str) else OWN
        self._key = key_of(key) if isinstance(key, str) else key
        self.partitions = partitions
        self._start = start
        self.settings = settings.checked(
            lease_s=lease_s,
            prefetch=prefetch,
            attempts_max=attempts_max,
            retry_s=retry_s,
            retry_s_max=retry_s_max,
            on_poison=on_poison,
        )

    @classmethod
    def stored(cls, log: Log, name: str) -> Group:
        """Return the group as the log knows it, to inspect or change it. Raise NotFound if there is none of this
        name."""
        state = read_group(log.writer.small_state, name)
        if state is None:
            raise NotFound(
                f"there is no group of consumers {name[:64]!r}",
                why="a group exists once a member has joined it",
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
        handling_s_max: float = settings.HANDLING_S_MAX,
        on_reset: OnReset | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> Member:
        """Return a consumer of this group. A consumer that joins later under the same name replaces it.

        `in_flight` events may be handled at once, never two of one key. `ack_batch` acknowledgements share a write; a
        crash repeats them. The heartbeat renews the lease in a thread as long as no event is being handled for longer
        than `handling_s_max`.
        """
        require_name(name)
        require(in_flight >= 1, "in_flight", in_flight, "1 or more")
        require(ack_batch >= 1, "ack_batch", ack_batch, "1 or more")
        self.agreed(self.log.stored, read_group(self.log.writer.small_state, self.name))
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
        """Return the stored group, or a new one. Raise GroupDiffers if the stored one is defined differently."""
        if state is not None:
            self._require_same(state)
            return state
        start = Cursor.of(reader.head() if self._start == "head" else self._start)
        if not start.epoch:
            start = Cursor(start.position, newest_purge(reader, self.query), self.log.identity.epoch)
        grants = tuple([Grant()] * self.partitions)
        return GroupState(key=self.key_name, query=self.query, start=str(start), grants=grants)

    def key_and_defect(self, event: Event) -> tuple[str, str]:
        """Return the key of an event; if it cannot be computed, the stream and the reason."""
        try:
            key = self._key(event)
        except Exception as error:
            return event.stream, f"its key cannot be computed: {type(error).__name__}: {error}"
        return (
            (key, "") if isinstance(key, str) else (event.stream, f"its key is not a text but a {type(key).__name__}")
        )

    def _require_same(self, state: GroupState) -> None:
        asked = {"partitions": self.partitions, "key": self.key_name, "query": self.query}
        found = {"partitions": len(state.grants), "key": state.key, "query": state.query}
        differing = [field for field in asked if asked[field] != found[field]]
        if differing:
            raise GroupDiffers(
                f"the group {self.name} is defined with a different {' and '.join(differing)}",
                why="its cursors and the order of its keys are valid only for the definition that it began with",
                hint="use a new name; everlog consumers reset --help shows how to remove the existing group",
                group=self.name,
                differing=differing,
            )

    # ---- inspecting and changing it

    def lag_in_positions(self) -> list[Lag]:
        """Return how far behind each member is, without counting events: only the cursors are read."""
        return self.lag(count=False)

    def lag(self, *, count: bool = True) -> list[Lag]:
        """Return how far behind each member is, in waiting events and in positions."""
        rows = self.log.writer.small_state
        state = read_group(rows, self.name)
        if state is None:
            return []
        head = self.log.head()
        progresses = [
            read_progress(rows, self.name, number) or Progress(cursor=state.start)
            for number in range(self.partitions)
        ]
        cursors = [Cursor.of(progress.cursor).position for progress in progresses]
        waiting = self._count_waiting(progresses, cursors, head) if count else None
        letters = [letter.partition for letter in read_letters(rows, self.name) if letter.what in OPEN]
        found = []
        for member in ["", *sorted(state.members)]:
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
                    state.members[member].until_us if member else 0,
                )
            )
        return found

    def _count_waiting(self, progresses: list[Progress], cursors: list[Position], head: Position) -> list[int] | None:
        if self._key is _unknown:
            return None
        waiting = [0] * self.partitions
        done = [set(progress.done) for progress in progresses]
        for recorded in self.log.read(self.query, after=min(cursors), upto=head):
            number = partition_of(self.key_and_defect(recorded.event)[0], self.partitions)
            if recorded.position > cursors[number] and recorded.position not in done[number]:
                waiting[number] += 1
        return waiting

    def dead_letters(self, *, decided: bool = False) -> list[GroupLetter]:
        """Return the events that the group could not handle, in order; with `decided`, also those decided since."""
        state = self.log.writer.small_state
        state.refuse_lost_notes()
        found = [letter for letter in read_letters(state, self.name) if decided or letter.what in OPEN]
        return sorted(found, key=lambda letter: letter.position)

    def retry(self, position: int, *, by: str = "", reason: str = "") -> GroupLetter:
        """Try a dead letter again, as often as a new event; the waiting events of its key follow in order."""
        return self._decide(position, RETRYING, by, reason)

    def skip(self, position: int, *, by: str = "", reason: str) -> GroupLetter:
        """Give up an event permanently, and record it; the waiting events of its key follow in order."""
        require_text("reason", reason)
        require(bool(reason), "reason", reason, "a reason, because it is recorded")
        return self._decide(position, SKIPPED, by, reason)

    def _decide(self, position: int, what: str, by: str, reason: str) -> GroupLetter:
        require_text("reason", reason)
        refuse_secrets("the reason", {"reason": reason})

        def work(writer: OpenWrite) -> GroupLetter:
            state = read_group(writer, self.name)
            found = [one for one in read_letters(writer, self.name) if one.position == position and one.what in OPEN]
            if not found or state is None:
                raise NotFound(
                    f"{self.name} has no dead letter at position {position}",
                    why="it never was one, or it has been decided",
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

        return self.log.writer.write(work)

    def reset(self, to: Cursor | int | str = START) -> None:
        """Start every partition again after a position, or at the "head"; running members continue from there."""
        wanted = Cursor.of(self.log.head() if to == "head" else to)
        purged = newest_purge(self.log.stored, self.query)
        epoch = self.log.identity.epoch

        def work(writer: OpenWrite) -> None:
            state = read_group(writer, self.name)
            if state is None:
                raise NotFound(f"there is no group of consumers {self.name}", hint="everlog consumers list")
            head = writer.head()
            require(wanted.position <= head, "position", wanted.position, f"not beyond the head, {head}")
            cursor = str(Cursor(wanted.position, purged, epoch))
            for number in range(len(state.grants)):
                keep_progress(writer, self.name, number, Progress(cursor=cursor))
            for letter in read_letters(writer, self.name):
                if letter.position > wanted.position and letter.what in OPEN:
                    remove_letter(writer, letter)  # it is delivered again anyway
            # Freed, so that a member with events in flight is fenced off and cannot move the cursors back.
            freed = {number: Grant("", grant.token) for number, grant in enumerate(state.grants)}
            changed = msgspec.structs.replace(state.granting(freed), decisions=state.decisions + 1)
            keep_group(writer, self.name, changed)

        self.log.writer.write(work)

    def forget(self) -> None:
        """Remove the group: its definition, its cursors, its members and its dead letters."""

        def work(writer: OpenWrite) -> None:
            forget_group(writer, self.name)
            for letter in read_letters(writer, self.name):
                remove_letter(writer, letter)

        self.log.writer.write(work)


def groups(log: Log) -> list[Group]:
    """Return every group of consumers of the log."""
    return [Group.stored(log, name) for name in group_names(log.writer.small_state)]


def _unknown(event: Event) -> str:
    raise InvalidField("the key of this group is a function, which is not available here", field="key")
