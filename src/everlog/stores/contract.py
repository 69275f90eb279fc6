"""What every store promises: the thirteen members of `Store`, and optional protocols of one or two methods each.

    Reader    read get head purges                           what a store and an open write have in common
    Stored    identity slots ends chains check               a log as its store has it, for reading
    Store     small_state open_write watch close             an open log

One open write is `everlog.stores.open_write.OpenWrite`, the same class for all stores. The promises are G1 to G13 of
docs/why/guarantees.md; `everlog.testing.store_contract` proves them for any store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard, TypeVar, runtime_checkable

import msgspec

from everlog.core.canonical import canonical_pair
from everlog.core.chain import Chain
from everlog.core.codec import Packed, header_bytes, header_hash
from everlog.core.event import START, Event, Position, Purge, Purged, Recorded, whole
from everlog.core.group import Group
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query

if TYPE_CHECKING:
    from everlog.stores.identity import Origins
    from everlog.stores.open_write import OpenWrite
    from everlog.stores.small_state import StoreState


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The identity of a log. `epoch` changes when a copy is restored or renumbered, so that old cursors are reset.

    The events of `former` origins were made here, too: a log that was put back continues under a new origin.
    """

    log_id: str
    origin: str
    epoch: str
    created_us: int
    former: tuple[str, ...] = ()
    lives: tuple[tuple[int, str], ...] = ()  # each time it was put back: its head then, and its origin from then on

    def made(self, origin: str) -> bool:
        """Return whether the events of an origin were made by this log."""
        return origin == self.origin or origin in self.former

    def life_at(self, position: int) -> str:
        """Return the origin that the log took when it was put back last before this position, or nothing.

        It is part of the proof of a cursor: a lost event that was imported may get the position that it had before.
        """
        return next((origin for head, origin in reversed(self.lives) if position > head), "")


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """An event with the bytes that will be stored for it, so that it is encoded once."""

    event: Event
    header: bytes
    payload: bytes
    hash: bytes


def encode_event(event: Event) -> Encoded:
    """Encode a complete event, from a peer or another store, to be stored as it is."""
    event = whole(event)  # what it left to the group that it was read from does not follow from the group to come
    header, payload = header_bytes(event), b""
    if event.salt:
        payload, stored = canonical_pair(event.payload)
        if stored is not event.payload:  # the caller gets what a reader will get
            event = msgspec.structs.replace(event, payload=stored)
    return Encoded(event, header, payload, header_hash(header))


class Problem(msgspec.Struct, frozen=True):
    """Damage, with its position and reason. Position 0 means the store as a whole."""

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


class Erasure(NamedTuple):
    """The erasure of one payload: where it was, the event that allowed it, and the commitment, which stays."""

    position: Position
    id: EventId
    by: EventId
    commitment: bytes


class Known(NamedTuple):
    """An event id that the log has or had."""

    hash: bytes
    purged: bool


class Removable(NamedTuple):
    """What a purge of a stream would remove, and the scopes that its events are in."""

    slots: list[Purged]
    scopes: tuple[str, ...]


class Ends(msgspec.Struct, frozen=True, gc=False):
    """What a write starts from: the clock, and of what was asked for all that exists."""

    clock: int
    sequences: Mapping[str, int] = {}  # of streams; 0 if a stream never had an event; a purge does not take it back
    chains: Mapping[str, Chain] = {}  # of origins
    known: Mapping[EventId, Known] = {}  # of ids
    removable: Removable | None = None


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
        Its details have `position`, the first position that nothing accounts for, and `after`, where to continue:
        `read(after=details["after"])` gives what follows, `read(upto=details["position"] - 1)` what comes before.
        Where it is known, `file` names the file. A read with a filter stops too, unless the store knows that what was
        lost did not match. `head` still answers, and `packed` continues behind the damage.
        """
        ...

    def get(self, event_id: EventId) -> Recorded | None: ...

    def head(self) -> Position:
        """The last position given, to an event or to a purge."""
        ...

    def purges(self, *, after: Position = START) -> list[Purge]:
        """The purges with a reserved position above `after`, in order."""
        ...


class Stored(Reader, Protocol):
    """A log as its store has it, for reading: `Log.stored`. Events are as recorded, not upcast."""

    @property
    def identity(self) -> Identity: ...

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        """Return every position in order, as stored bytes, purged events included, uninterpreted."""
        ...

    def ends(
        self,
        *,
        streams: Collection[str] = (),
        origins: Collection[str] = (),
        ids: Collection[EventId] = (),
        purging: str = "",
    ) -> Ends:
        """Return what a write starts from. Only the clock may be asked for outside an open write."""
        ...

    def chains(self) -> dict[str, Chain]:
        """Return the chains of all origins of which an event is or was here, as of one moment."""
        ...

    def check(self) -> Iterator[Problem]:
        """Report damage of the store's own structure: indexes, state, triggers. `verify` checks the events."""
        ...


class Store(Stored, Protocol):
    """An open log. If it is created with `identity=…`, it has that identity."""

    origins: Origins  # of an unsigned log, unless `everlog.log` replaces them

    @property
    def small_state(self) -> StoreState:
        """Rows beside the events: claims, notes, and what views derive."""
        ...

    def open_write(self) -> AbstractContextManager[OpenWrite]:
        """Open the one write. When it closes without an exception, all of it is on the disk (G1, G2)."""
        ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back after another process has recorded something. It is only a hint, and may never come."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Indexed(Protocol):
    """A store whose index is separate from its events and can be rebuilt from them."""

    def bad_lines(self) -> list[Problem]:
        """Return what the index has found where an event should be, such as a conflict marker of git. Cheap."""
        ...

    def future_files(self) -> list[str]:
        """Return the files of future days: a clock was wrong when they were written."""
        ...

    def rebuild_index(self, *, accept_missing: bool = False) -> int:
        """Rebuild the index and return the number of events. `accept_missing`: continue without lost events."""
        ...


@runtime_checkable
class CanBeOlder(Protocol):
    """A store that cannot tell an older copy of itself, or one without its journal, from a restored backup."""

    def missing_own_events(self) -> int:
        """Return how many own events were written here after the last one that is in the log."""
        ...


class Checkout(NamedTuple):
    """What is checked out of a git repository."""

    branch: str  # empty if none is
    commit: str  # empty before the first


@runtime_checkable
class InGit(Protocol):
    """A store whose events may belong to a branch of git."""

    def checkout(self) -> Checkout | None:
        """Return what is checked out, or None for a log outside a repository."""
        ...

    def other_epochs(self) -> set[str]:
        """Return the epochs of branches that are not checked out. They come back when these are checked out."""
        ...


class Block(NamedTuple):
    """Many records as columns, which is the cheapest form for a reader of columns.

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
    """A store that reads in blocks."""

    def blocks(
        self, query: Query = EVERYTHING, *, after: Position = START, upto: Position | None = None
    ) -> Iterator[Block]:
        """Return what `read` would return, in the same order."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """A store that keeps commit groups, which `verify` reads as they are stored."""

    def groups(self, *, after: Position = START, upto: Position | None = None) -> Iterator[Group | Purged]:
        """Return every readable group that has one of these positions, in order, whole, and what purges left. The
        stubs of a group may come before or after it."""
        ...


@runtime_checkable
class PlacedGroup(Protocol):
    """A stored group that knows which positions it covers, and how its row differs from any other row of them."""

    first: int
    last: int
    checksum: int

    @property
    def whole(self) -> bool:
        """Whether nothing of it was purged."""
        ...

    def packed(self) -> Iterator[Packed]:
        """Return its records as the bytes that are hashed, signed and committed to."""
        ...


@runtime_checkable
class HidesEvents(Protocol):
    """A store that may show a reader only some of the events, such as those of a tenant."""

    @property
    def hides_events(self) -> bool: ...


@runtime_checkable
class ReadsPieces(Protocol):
    """A store that reads records in lists: one by one they cost a fold of all of them a tenth more."""

    def read_pieces(
        self, query: Query, *, after: Position, upto: Position | None, limit: int | None
    ) -> Iterator[list[Recorded]]:
        """Return what `read` would return, in lists that are not empty."""
        ...


@runtime_checkable
class Locating(Protocol):
    """A store that knows in which of its files a position is, or was."""

    def file_of(self, position: Position) -> str:
        """Return the name of the file, relative to the log; "" if it is unknown."""
        ...


@runtime_checkable
class Archiving(Protocol):
    """A store that can pack old files."""

    def archive(self, *, days: int) -> list[tuple[int, int, int]]:
        """Pack what was complete that many days ago: the number of each file, its size before and after."""
        ...


_Protocol = TypeVar("_Protocol")
_offered: dict[tuple[type, type], bool] = {}


def offers(store: object, protocol: type[_Protocol]) -> TypeGuard[_Protocol]:
    """Return what isinstance does, which takes 13 to 25 µs for a protocol: a page asks twice."""
    kind = (type(store), protocol)
    if kind not in _offered:
        _offered[kind] = isinstance(store, protocol)
    return _offered[kind]
