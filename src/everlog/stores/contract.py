"""What every store promises: the whole contract, in three protocols.

    Reader   read get head purges claimed claimed_among noted notes    what a store and an open write can be asked
    Writer   clock tick link sequence append place purge claim note attempt
    Store    write packed clock kept check close

The promises are G1 to G13 of docs/guarantees.md; `everlog.testing.store_contract` proves them for any store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from everlog.core.canonical import canonical_pair
from everlog.core.codec import Packed, header_bytes, header_hash
from everlog.core.event import START, Event, Link, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query

FORMAT = 1
"""The format that this code writes. A store of a greater one is refused, never read as empty."""


class Identity(msgspec.Struct, frozen=True):
    """Who a log is. `epoch` changes when a copy is restored or renumbered, so that old cursors are told."""

    log_id: str
    origin: str
    epoch: str
    created_us: int


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """An event with the bytes that will be stored for it, so that nobody encodes them twice."""

    event: Event
    header: bytes
    payload: bytes
    hash: bytes


def seal(event: Event) -> Sealed:
    """An event that came whole, from a peer or another store, made ready to be stored as it is."""
    header, payload = header_bytes(event), b""
    if event.salt:
        payload, stored = canonical_pair(event.payload)
        if stored is not event.payload:  # who gets it from here gets what a reader will get
            event = msgspec.structs.replace(event, payload=stored)
    return Sealed(event, header, payload, header_hash(header))


class Problem(msgspec.Struct, frozen=True):
    """Damage, with its place and reason. Position 0 means the store as a whole."""

    position: Position
    code: str
    reason: str
    upto: Position = START  # the last position, where the same is wrong with several in a row
    file: str = ""  # relative to the log, where it is known

    @property
    def last(self) -> Position:
        return max(self.position, self.upto)


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Which events a request made: `count` of them, from the position `first` on."""

    first: Position
    count: int


CLAIM_BYTES = 16
"""The length of a claim's name: enough of a hash that no two requests ever share one."""

CLAIMS_KEPT_US_MIN = 24 * 60 * 60 * 1_000_000
"""How long a store remembers a claim at the least: the seeds' minimum for an idempotency key."""


class Note(msgspec.Struct, frozen=True, gc=False):
    """A note with the moment after which it is not there any more."""

    key: str
    value: str
    expires_us: int | None = None


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A claim with the name of its request."""

    name: bytes
    claim: Claim


class Reader(Protocol):
    def read(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        """The records that match, in order of position, above `after` and not above `upto`.

        A position is an event, a purge, or damaged. A read delivers what comes before damage and then raises Damaged.
        Its details have `position`, the first position that nothing accounts for, and `after`, where to go on:
        `read(after=details["after"])` gives what follows, `read(upto=details["position"] - 1)` what comes before.
        Where it is known, `file` names the file. A read with a filter stops too, unless the store knows that what was
        lost did not match. `head` still answers, and `packed` goes on behind the damage.
        """
        ...

    def get(self, event_id: EventId) -> Recorded | None: ...

    def head(self) -> Position:
        """The last position given, to an event or to a purge."""
        ...

    def purges(self, *, after: Position = START) -> list[Purge]:
        """The purges with a reserved position above `after`, in order."""
        ...

    def claimed(self, name: bytes) -> Claim | None:
        """What the request of this name has made, as long as it is remembered: a day at least."""
        ...

    def claimed_among(self, names: Collection[bytes]) -> set[bytes]:
        """Those of the names that are claimed: a quick answer for many, of which nearly always none is."""
        ...

    def noted(self, key: str) -> str | None:
        """The note under exactly this key, unless it has expired."""
        ...

    def notes(self, prefix: str, *, limit: int | None = None, newest_first: bool = False) -> dict[str, str]:
        """The notes whose key starts with `prefix`, in order of their keys; expired ones are not there."""
        ...


class Writer(Reader, Protocol):
    """One open write: nobody else writes until it ends, an exception undoes all of it.

    What it reads includes what it has staged.
    """

    @property
    def now_us(self) -> int:
        """The time of this write: what its events will carry as their time of arrival."""
        ...

    @property
    def clock(self) -> int:
        """The Lamport clock as it stands."""
        ...

    def tick(self, *, seen: int = 0) -> int:
        """The Lamport clock's next value: the send rule, and with `seen` the receive rule."""
        ...

    def link(self, origin: str) -> Link:
        """The end of an origin's chain."""
        ...

    def sequence(self, stream: str) -> int:
        """The stream's last sequence, 0 if it never had an event. A purge does not take it back."""
        ...

    def append(self, events: Sequence[Sealed], *, fresh: bool = False) -> list[Recorded]:
        """Record the events that are new; those that are there already are left out of the answer.

        `fresh` is the caller's word that the ids were made by this log just now, and spares looking for them.
        """
        ...

    def place(self, places: Sequence[Packed | Purged | Purge]) -> None:
        """Put places of another log here as they stand: same positions, sequences, times of arrival and bytes.

        They come in order, purges at the position they reserved, and the first follows the head. This is how a copy
        is made, and its maker's word that they are whole: `verify` proves it afterwards. By which purge an event was
        removed (`Purged.reserved`) must be known when that purge is placed too, and may be 0 before.
        """
        ...

    def purge(self, stream: str, *, actor: str, reason: str) -> Purge:
        """Remove a stream's events for good and return the record of it, with the reserved position."""
        ...

    def claim(self, name: bytes, first: Position, count: int) -> None:
        """Remember that the request of this name made these events, so that a retry finds them."""
        ...

    def note(self, key: str, value: str | None, *, expires_us: int | None = None) -> None:
        """Small state that must commit with the events: responses, cursors, refusals. None removes."""
        ...

    def attempt(self) -> AbstractContextManager[None]:
        """A part of this write that is undone alone when it raises."""
        ...


class Store(Reader, Protocol):
    """An open log. Made with `identity=…` where there is none yet, it is the log that the identity says."""

    @property
    def identity(self) -> Identity: ...

    def write(self) -> AbstractContextManager[Writer]:
        """The one door for writing. When it closes without an exception, all of it is on the disk (G1, G2)."""
        ...

    def packed(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        """Every place of the log in order, as stored bytes, purged events included, uninterpreted."""
        ...

    def clock(self) -> int:
        """The Lamport clock as it stands on the disk, also for who may not write."""
        ...

    def kept(self) -> Iterator[Note | Claimed]:
        """What a copy must take over beside the places: every claim and every note, each once, in any order."""
        ...

    def check(self) -> Iterator[Problem]:
        """Damage of the store's own structure: indexes, state, triggers. The events are `verify`'s business."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Indexed(Protocol):
    """A store whose index is apart from its events and can be made anew from them."""

    def bad_lines(self) -> list[Problem]:
        """What the index knows to be no event where one should be, such as a conflict marker of git. Cheap to ask."""
        ...

    def future_files(self) -> list[str]:
        """The files of days to come: a clock was wrong when they were written."""
        ...

    def rebuild_index(self, *, accept_missing: bool = False) -> int:
        """Make it, and return the number of events. `accept_missing`: go on without those that are not there."""
        ...


class Checkout(NamedTuple):
    """What of a repository of git is checked out."""

    branch: str  # nothing if none is
    commit: str  # nothing before the first


@runtime_checkable
class InGit(Protocol):
    """A store whose events may be those of a branch of git."""

    def checkout(self) -> Checkout | None:
        """What is checked out; None for a log that is in no repository."""
        ...

    def other_epochs(self) -> set[str]:
        """The epochs of branches that are not checked out, which come back when these are."""
        ...


class Slab(NamedTuple):
    """Records side by side, by the column: how much at once is read cheapest, for whoever wants columns anyway.

    The header is there as its canonical text, or taken apart: a column for each field, in the order of `Header`, a
    time as text or in microseconds, tags as canonical JSON. A payload is its exact text, empty once it was erased; a
    path is its hashes one after the other.
    """

    positions: Sequence[int]
    sequences: Sequence[int]
    received_us: Sequence[int]
    headers: Sequence[bytes] | Sequence[str]
    fields: Sequence[Sequence[Any]]
    payloads: Sequence[bytes] | Sequence[str]
    salts: Sequence[bytes]
    signatures: Sequence[bytes] = ()  # none at all: nothing is signed
    paths: Sequence[bytes] = ()


@runtime_checkable
class Scanning(Protocol):
    """A store that reads in slabs."""

    def scan(
        self, query: Query = EVERYTHING, *, after: Position = START, upto: Position | None = None
    ) -> Iterator[Slab]:
        """What `read` would give, in the same order."""
        ...


@runtime_checkable
class TellsOfCommits(Protocol):
    """A store that can say when another process has recorded something. Only a hint: whoever follows looks anyway."""

    def call_on_commit(self, callback: Callable[[], None]) -> None: ...


@runtime_checkable
class HidesEvents(Protocol):
    """A store that may give a reader only some of the events, such as those of a tenant."""

    @property
    def hides_events(self) -> bool: ...


@runtime_checkable
class ReadsPieces(Protocol):
    """A store that has its records in lists: one by one they cost whoever folds them all a tenth more."""

    def read_pieces(
        self, query: Query, *, after: Position, upto: Position | None, limit: int | None
    ) -> Iterator[list[Recorded]]:
        """What `read` gives, in lists of any length that is not 0."""
        ...


@runtime_checkable
class Locating(Protocol):
    """A store that knows in which of its files a position lies, or lay."""

    def file_of(self, position: Position) -> str:
        """The name of the file, relative to the log; "" if nobody can say."""
        ...


@runtime_checkable
class Archiving(Protocol):
    """A store that packs what is old and will not change any more."""

    def archive(self, *, days: int) -> list[tuple[int, int, int]]:
        """Pack what was complete that many days ago: the number of each file, its size before and after."""
        ...
