"""What travels between two nodes: shapes and limits.

Everything is one JSON object per message, in the shapes of seed 002, except for the messages of `ranges`, which are
bytes. Limits are applied before anything is made of a message: its size before it is parsed, then the number of
things in it. An event stays text until its turn comes, so that a bad one is refused alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, TypeVar

import msgspec

from everlog.core.canonical import NUMBER_MAX, canonical
from everlog.core.codec import EventObject
from everlog.core.event import EVENT_FIELDS, Event
from everlog.errors import NotCanonical, RejectedMessage
from everlog.trust.forks import ForkProof
from everlog.trust.group_signature import GroupSignature
from everlog.trust.stubs import Stub

BATCH_EVENTS = 1_000
BATCH_BYTES = 4_000_000
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""An event that is larger than `BATCH_BYTES` travels alone, as long as its message has room for it."""

ORIGINS_MAX = 10_000
"""A node with more chains than this is compared by ranges, and its heads list none of them."""

WANTS_MAX = 50_000
KEYS_MAX = 1_000
"""How many keys of persons are asked for at once."""

TYPES_MAX = 10_000
FORKS_MAX = 1_000
RUNS_MAX = 100
"""How many runs beyond a hole are listed per chain. What is in later ones is found by ranges."""

SHARED_MAX = 100
"""How many statements about views a node shares."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_Text = Annotated[str, msgspec.Meta(max_length=256)]
_KeyIds = Annotated[list[Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=KEYS_MAX)]
_Hash = Annotated[bytes, msgspec.Meta(max_length=32)]

T = TypeVar("T")


class RunHead(msgspec.Struct, frozen=True, array_like=True):
    """Events of a chain without a missing number: the first, the last, and the hash of the last."""

    first: _Number
    last: _Number
    hash: _Hash


class OriginHead(msgspec.Struct, frozen=True, array_like=True):
    """What a node has of one chain: its contiguous end with its hash, and what lies beyond holes."""

    end: _Number
    hash: _Hash
    beyond: Annotated[list[RunHead], msgspec.Meta(max_length=RUNS_MAX)] = []

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The first and the last number of each run."""
        first = [(1, self.end)] if self.end else []
        return first + [(run.first, run.last) for run in self.beyond]

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The missing numbers up to the greatest known one."""
        found, before = [], 0
        for first, last in self.runs:
            if first > before + 1:
                found.append((before + 1, first - 1))
            before = last
        return found


Forks = Annotated[list[ForkProof], msgspec.Meta(max_length=FORKS_MAX)]
"""Proofs of forks. Each is valid no matter who delivers it."""


class Heads(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What counts on a node. Two nodes with equal origins and the same forks have the same events."""

    community_id: _Text
    head: _Number
    heads_by_type: Annotated[dict[_Text, _Number], msgspec.Meta(max_length=TYPES_MAX)]
    origins: Annotated[dict[_Text, OriginHead], msgspec.Meta(max_length=ORIGINS_MAX)]
    forks: Forks = []
    count: _Number = 0
    fingerprint: Annotated[bytes, msgspec.Meta(max_length=16)] = b""  # of all hashes: see `ranges`
    origin: _Text = ""  # under which the node writes
    time_ms: _Number = 0  # of the node's clock, so that one that is wrong is noticed
    has_ring: bool = False  # it exchanges keys of persons
    lacks_keys: _KeyIds = []  # keys of persons that it needs
    shares: _Text = ""  # a hash of what it shares of views; empty if it shares nothing


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Numbers of one chain, the first and the last."""

    origin: _Text
    first: _Number
    last: _Number


class Wants(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node asks for: numbers of chains, or events by their hashes."""

    community_id: _Text
    wants: Annotated[list[Span], msgspec.Meta(max_length=WANTS_MAX)] = []
    hashes: Annotated[list[_Hash], msgspec.Meta(max_length=WANTS_MAX)] = []


class Keys(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Keys of persons: which ones a node needs, and a box with some that the other one needs. See `subject_keys`."""

    community_id: _Text
    node: _Text = ""  # the key of the node that sends this, for which the answer is sealed
    wants: _KeyIds = []
    box: Annotated[bytes, msgspec.Meta(max_length=BATCH_BYTES)] = b""


class SharedViews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Statements about views as signed notes, and of the rows of one those bytes of `size` that begin at `offset`."""

    community_id: _Text
    notes: Annotated[list[Annotated[str, msgspec.Meta(max_length=20_000)]], msgspec.Meta(max_length=SHARED_MAX)] = []
    wants: _Text = ""  # the hash of the rows that are asked for
    offset: _Number = 0
    size: _Number = 0
    body: Annotated[bytes, msgspec.Meta(max_length=BATCH_BYTES)] = b""


class TooLarge(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event for which no message has room. It is named, so that both sides know why it is missing."""

    id: _Text
    origin: _Text
    origin_seq: _Number
    bytes: _Number


class Events(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch of events."""

    community_id: _Text
    events: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BATCH_EVENTS)]
    groups: Annotated[list[GroupSignature], msgspec.Meta(max_length=BATCH_EVENTS)] = []
    purged: Annotated[list[Stub], msgspec.Meta(max_length=BATCH_EVENTS)] = []
    forks: Forks = []  # those that the other node does not list
    too_large: Annotated[list[TooLarge], msgspec.Meta(max_length=BATCH_EVENTS)] = []  # left out
    more: bool = False  # the sender has more of what was asked for


class Rejected(msgspec.Struct, frozen=True, omit_defaults=True):
    event_id: str
    reason: str
    held: bool = False


class Received(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a batch."""

    accepted: _Number
    rejected: _Number
    rejected_reasons: Annotated[list[Rejected], msgspec.Meta(max_length=2 * BATCH_EVENTS)]
    new_head: _Number


_THINGS_MAX: dict[type, int] = {
    Heads: ORIGINS_MAX + TYPES_MAX + FORKS_MAX + KEYS_MAX,
    Keys: KEYS_MAX,
    SharedViews: SHARED_MAX,
    Wants: 2 * WANTS_MAX,
    Events: 5 * BATCH_EVENTS,
    Received: 2 * BATCH_EVENTS,
}
"""How many things the lists of a message may have together."""

_INSIDE = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_STRING = re.compile(rb'"' + _INSIDE + rb'(?:"|\\?\Z)', re.DOTALL)
_WHOLE_STRINGS = re.compile(rb'(?:[^"]*+"' + _INSIDE + rb'")*+[^"]*+', re.DOTALL)
_PART_BYTES = 64 * 1024
_COMMA, _OPENING = ord(","), b"[{"
_NO_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))
_encode = msgspec.json.Encoder().encode


def encode(message: msgspec.Struct) -> bytes:
    return _encode(message)


def decode(data: bytes, shape: type[T]) -> T:
    """Return a message of a peer; refuse one that is too large, or not of this shape."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise _refused(shape, f"it has {len(data):,} bytes, and {MESSAGE_BYTES_MAX:,} are allowed")
    most = _THINGS_MAX.get(shape, len(data))
    if data.count(b",") > most and _has_more_things(data, most):
        raise _refused(shape, f"its lists have more than {most:,} entries")
    try:
        return msgspec.json.decode(data, type=shape)
    # A value that is nested too deeply, and a number of many thousand digits, end in errors of Python.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as error:
        raise _refused(shape, str(error)[:200] or type(error).__name__) from error


def _has_more_things(data: bytes, most: int) -> bool:
    """Return whether the lists of a message have more entries together. Nothing is made of them."""
    depth = 0
    for letter in chain.from_iterable(_structure(data)):
        if letter == _COMMA:
            if depth == 2:
                most -= 1
                if most < 0:
                    return True
        elif letter in _OPENING:
            depth += 1
        else:
            depth -= 1
    return False


def _structure(data: bytes) -> Iterator[bytes]:
    """Return the brackets and commas of JSON that are not in strings, from one part of it after the other."""
    at = 0
    while at < len(data):
        whole = _WHOLE_STRINGS.match(data, at, at + _PART_BYTES)
        end = at if whole is None else whole.end()
        if end > at:
            yield _STRING.sub(b"", data[at:end]).translate(None, _NO_STRUCTURE)
        else:  # a string that is longer than a part
            found = _STRING.match(data, at)
            end = len(data) if found is None else found.end()
        at = end


def _refused(shape: type[Any], why: str) -> RejectedMessage:
    return RejectedMessage(
        f"a peer sent {shape.__name__.lower()} that cannot be read", why=why, hint="everlog peers list"
    )


def event_text(event: Event, *, proof: bool) -> msgspec.Raw:
    """Return an event as it travels. Without `proof` it leaves out its signature, which travels with its group."""
    left_out = () if proof else ("signature", "path")
    fields = {name: getattr(event, name) for name in EventObject.__struct_fields__ if name not in left_out}
    return msgspec.Raw(_encode(EventObject(**fields)))


def event_of(text: msgspec.Raw) -> Event:
    """Return the event of its text; refuse anything else."""
    try:
        found = msgspec.json.decode(text, type=EventObject)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as error:
        raise NotCanonical("$", f"it is not an event: {str(error)[:200]}") from error
    canonical(found.payload)  # refuses what has no single JSON form
    return Event(*[getattr(found, name) for name in EVENT_FIELDS])


def claimed_id(text: msgspec.Raw) -> str:
    """Return the id that a refused event claims to have, for the answer to its sender."""
    try:
        return msgspec.json.decode(text, type=_WithId).id[:64]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError):
        return ""


class _WithId(msgspec.Struct):
    id: str = ""
