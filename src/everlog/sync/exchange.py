"""The requests of a node and the answers of its peer, as functions of bytes. A carrier only moves them.

    ours                                        the peer's
    heads   ────────────────────────────────>   what counts of each chain, with hashes; proofs of forks
            take the forks, compare: wants, gives
    wants   numbers of chains, or hashes ───>   a batch of events        repeated until nothing is left
    events  a batch of events ──────────────>   one outcome per event    repeated until nothing is left
    ranges  if heads cannot tell ───────────>   the differences by hash, then wants and events again
    keys    of persons, if either lacks some >  a box with those that we lack
    views   what we state of views ──────────>  what the peer states; for a node that joins, the rows of one

The node that asks does both directions, so a peer behind a firewall can sync with one that is not. The peer keeps no
state between two requests: a node that is interrupted asks again, and gets only what is still missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from typing import Protocol

import msgspec

from everlog.core.codec import Packed, header_bytes, header_hash
from everlog.core.event import START, Position, Purged
from everlog.core.query import Query
from everlog.errors import Conflict, RejectedMessage
from everlog.log.admit.quarantine import held_rows
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN
from everlog.sync import ranges
from everlog.sync.batches import batches
from everlog.sync.heads import compare, forks_that_lack, proven_equal, without
from everlog.sync.holdings import Holdings, Places
from everlog.sync.intake import TakenIn, take_in
from everlog.sync.purges import Purges
from everlog.sync.subject_keys import SubjectKeys
from everlog.sync.wire import (
    FORKS_MAX,
    WANTS_MAX,
    Events,
    Heads,
    Keys,
    Received,
    Rejected,
    SharedViews,
    Span,
    Wants,
    decode,
    encode,
)

HEADS, WANTS, EVENTS, RANGES, KEYS, VIEWS = REQUESTS = ("heads", "wants", "events", "ranges", "keys", "views")

Ask = Callable[[str, bytes], bytes]
"""Sends a request to a peer, by its name and body, and returns the answer."""

_PASSES_MAX = 3
_ROUNDS_MAX = 1_000
_REASONS_MAX = 100
_BODY_BYTES = 3_000_000  # of the rows of a view, in one message


class Shelf(Protocol):
    """What a node shares of its views."""

    def notes(self) -> list[str]:
        """Return the signed statements about views."""
        ...

    def body(self, rows: str) -> bytes:
        """Return the rows with this hash, nothing if they are not here."""
        ...

    def take(self, notes: Iterable[str]) -> bool:
        """Take over signatures of others; return whether something is new."""
        ...


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """What one sync did. `equal`: both nodes have the same events now, proven by their heads."""

    sent_count: int
    received_count: int
    duration_ms: int
    round_trips: int
    equal: bool
    held: int = 0
    rejected: list[Rejected] = []  # the first hundred of what either side did not take, or did not send
    clock_ahead_ms: int = 0  # how far the clock of this machine is ahead of that of the peer


class Node:
    """One log that takes part. Its methods may be called by several threads."""

    def __init__(
        self,
        log: Log,
        *,
        follow_purges: bool = True,
        on_forgotten: Callable[[], None] = lambda: None,
        may_have_keys: Callable[[str], bool] = lambda node: False,
        shelf: Shelf | None = None,
    ) -> None:
        """With `follow_purges`, what other nodes purged is removed here, too. `on_forgotten` is called when the
        record of a forget came, or what decides on one. `may_have_keys` decides which nodes, by their keys, get the
        keys of persons. `shelf` has what this node shares of its views."""
        self.log = log
        self._shelf = shelf
        self.keys = SubjectKeys(log, may_have_keys)
        self._on_forgotten = on_forgotten
        self.log_id = log.identity.log_id
        self._holdings = Holdings(log.stored, log.verdicts)
        self._purges = Purges(log, self._holdings, follow=follow_purges)
        self._followed: tuple[str, Position] = ("", START)
        self._lock = threading.Lock()

    def heads(self) -> Heads:
        self.log.writer.do_first()  # such as a forget that was interrupted: what it erases is not sent any more
        self._follow()
        with self._lock:
            return self._heads()

    def _heads(self) -> Heads:
        self._holdings.refresh()
        found = self._holdings.heads(self.log.forks(), time_ms=time.time_ns() // 1_000_000)
        if self.keys.ring is not None:
            found = msgspec.structs.replace(found, has_ring=True, lacks_keys=self.keys.lacking())
        notes = [] if self._shelf is None else self._shelf.notes()
        return msgspec.structs.replace(found, shares=_hash_of(notes)) if notes else found

    # ---- answering

    def answer(self, request: str, body: bytes, *, peer: str = "peer:unknown") -> bytes:
        """Return the answer to a request of a peer."""
        if request == HEADS:
            return encode(self.heads())
        if request == WANTS:
            return self._answer_wants(decode(body, Wants))
        if request == EVENTS:
            return self._answer_events(decode(body, Events), peer=peer)
        if request == RANGES:
            return ranges.answer(self._items(), body)
        if request == KEYS:
            return self._answer_keys(decode(body, Keys))
        if request == VIEWS:
            return self._answer_views(decode(body, SharedViews))
        raise RejectedMessage(
            "a peer asked for something that is not known here", why=request[:80], hint="everlog peers list"
        )

    def _answer_wants(self, wanted: Wants) -> bytes:
        self.require_same(wanted.community_id)
        found = self.batches(wanted.wants, wanted.hashes)
        return encode(next(found, Events(community_id=self.log_id, events=[])))

    def _answer_events(self, message: Events, *, peer: str) -> bytes:
        self.require_same(message.community_id)
        taken = self.take(message, peer=peer)
        return encode(
            Received(
                accepted=taken.recorded + taken.known,
                rejected=len(taken.rejected),
                rejected_reasons=taken.rejected,
                new_head=self.heads().head,
            )
        )

    def _answer_keys(self, message: Keys) -> bytes:
        self.require_same(message.community_id)
        with self._lock:
            self.keys.take_in(message.box)
            box = self.keys.box_for(message.node, message.wants)
        return encode(Keys(community_id=self.log_id, node=self.log.identity.origin, box=box))

    def _answer_views(self, message: SharedViews) -> bytes:
        self.require_same(message.community_id)
        if self._shelf is None:
            return encode(SharedViews(community_id=self.log_id))
        if message.wants:
            body = self._shelf.body(message.wants)
            part = body[message.offset : message.offset + _BODY_BYTES]
            return encode(SharedViews(community_id=self.log_id, offset=message.offset, size=len(body), body=part))
        self._shelf.take(message.notes)
        return encode(SharedViews(community_id=self.log_id, notes=self._shelf.notes()))

    # ---- what both sides do

    def take(self, message: Events, *, peer: str) -> TakenIn:
        """Take in a batch of events, and follow the purges that came with it."""
        taken = take_in(self.log, message, peer=peer)
        self._follow()
        return taken

    def follow_forgets(self) -> None:
        """Follow what others have forgotten, or record again what was forgotten here."""
        self._on_forgotten()

    def _follow(self) -> None:
        """Follow the purges and forgets of others that are new here, also those that a process before left."""
        epoch, after = self._followed
        if (self.log.identity.epoch, self.log.head()) == (epoch, after):
            return
        self._purges.follow()
        asked = Query(types=frozenset((FORGOTTEN, *self.log.writer.deciding)))
        is_new = epoch != self.log.identity.epoch
        if is_new or any(self.log.stored.read(asked, after=after, limit=1)):
            self._on_forgotten()
        self._followed = (self.log.identity.epoch, self.log.head())

    def take_forks(self, theirs: Heads, *, peer: str) -> None:
        """Take in the proofs of forks that a peer lists and this node lacks."""
        new = forks_that_lack(self.heads(), theirs.forks) if theirs.forks else []
        if new:
            self.log.admit_each([], forks=new, sender=peer)

    def batches(self, spans: Sequence[Span], hashes: Collection[bytes] = ()) -> Iterator[Events]:
        """Return events by their numbers and by their hashes, in order of position."""
        with self._lock:
            self._holdings.refresh()
            places = self._holdings.places_of(spans)
            if hashes:
                places += self._holdings.places_of_hashes(hashes)
                places.sort(key=lambda each: each.position)
        return batches(self.log_id, self._slots(places), self._purges)

    def all_spans(self) -> list[Span]:
        """Return the numbers of everything that is here."""
        with self._lock:
            self._holdings.refresh()
            chains = self._holdings.chains
            return [Span(origin, 1, chain.greatest.origin_seq) for origin, chain in chains.items()]

    def _slots(self, places: Sequence[Places]) -> Iterator[Packed | Purged]:
        return chain.from_iterable(self._holdings.slots_at(each) for each in places)

    def _items(self) -> ranges.Items:
        with self._lock:
            self._holdings.refresh()
            return self._holdings.items()

    def require_same(self, log_id: str) -> None:
        """Refuse what belongs to another log."""
        if log_id != self.log_id:
            raise Conflict(
                f"a peer has the log {log_id[:64]}, and this is the log {self.log_id}",
                why="only copies of one log are synced",
                hint="everlog join URL makes a copy of the peer's log",
            )

    # ---- asking

    def sync_with(self, ask: Ask, *, peer: str = "peer:unknown") -> Synced:
        """Exchange with a peer whatever either side lacks."""
        self.log.writer.do_first()  # others must learn of it
        return _Session(self, ask, peer).run()

    def fetch(self, ask: Ask, spans: Sequence[Span], *, peer: str = "peer:unknown") -> int:
        """Fetch these numbers of chains from a peer, and nothing else; return how many events were recorded."""
        session = _Session(self, ask, peer)
        session.fetch(spans)
        return session.received

    def plan(self, theirs: Heads, *, peer: str) -> tuple[Heads, list[Span], list[Span], bool]:
        """Take the forks that a peer lists; return our heads, what we want, what the peer lacks, and whether ranges
        must find the rest."""
        self.take_forks(theirs, peer=peer)
        self._follow()
        with self._lock:
            ours = self._heads()
            wants, gives, unclear = compare(self._holdings, ours, theirs)
        return ours, without(wants, self._waiting()) if wants else [], gives, unclear or self.suspects_fork()

    def suspects_fork(self) -> bool:
        """Return whether an event waits that does not follow the end of its chain here, and no fork is proven yet.

        The events before it have other hashes at the peer. Heads do not show them: only ranges find the lowest.
        """
        state = self.log.writer.small_state
        suspected = {origin for origin, rows in held_rows(state) if any(held.code == "fork" for held in rows)}
        return bool(suspected - {fork.origin for fork in self.log.forks()}) if suspected else False

    def keys_to_exchange(self, theirs: Heads) -> Keys | None:
        """Return what to ask and to give of the keys of persons; None if nothing."""
        if not theirs.has_ring or self.keys.ring is None:
            return None
        with self._lock:
            wants, box = self.keys.lacking(), self.keys.box_for(theirs.origin, theirs.lacks_keys)
        if not wants and not box:
            return None
        return Keys(community_id=self.log_id, node=self.log.identity.origin, wants=wants, box=box)

    def take_keys(self, reply: Keys) -> int:
        """Take the keys of persons that a peer answered with; return how many were new."""
        with self._lock:
            return self.keys.take_in(reply.box)

    def exchange_views(self, ask: Ask, theirs: Heads) -> None:
        """Exchange statements about views: signatures of both sides, and of a third one if they have them."""
        if self._shelf is None or not (theirs.shares and self._shelf.notes()):
            return
        for _ in range(_PASSES_MAX):
            notes = self._shelf.notes()
            if _hash_of(notes) == theirs.shares:
                return
            reply = decode(ask(VIEWS, encode(SharedViews(community_id=self.log_id, notes=notes))), SharedViews)
            theirs = msgspec.structs.replace(theirs, shares=_hash_of(reply.notes))
            if not self._shelf.take(reply.notes):
                return

    def _waiting(self) -> list[tuple[str, int]]:
        """Return the numbers of the events that wait beside the log: they are not fetched again.

        One that waits without its payload is. Of a chain that forked, an event with this number may wait that is on
        another branch than the peer's.
        """
        rows = ((origin, held) for origin, some in held_rows(self.log.writer.small_state) for held in some)
        return [(origin, held.origin_seq) for origin, held in rows if held.code != "fork" and not held.bare]


class _Session:
    """One sync with one peer."""

    def __init__(self, node: Node, ask: Ask, peer: str) -> None:
        self._node = node
        self._ask_peer = ask
        self._peer = peer
        self._trips = 0
        self._sent = 0
        self.received = 0
        self._held = 0
        self._rejected: list[Rejected] = []

    def run(self) -> Synced:
        began = time.monotonic()
        theirs = self._heads()
        ahead_ms = time.time_ns() // 1_000_000 - theirs.time_ms if theirs.time_ms else 0
        equal = False
        for _ in range(_PASSES_MAX):
            before, received = len(self._node.log.forks()), self.received
            ours, wants, gives, unclear = self._node.plan(theirs, peer=self._peer)
            equal = proven_equal(ours, theirs)
            lacks = self._send_forks(theirs)
            if not (wants or gives or unclear or lacks):
                break
            self.fetch(wants)
            self._send(self._node.batches(gives))
            if unclear:
                self._by_ranges()
            theirs = self._heads()
            equal = proven_equal(self._node.heads(), theirs)
            # A fork that was found meanwhile changes what counts on both sides. What waits may need a later record.
            same_forks = len(self._node.log.forks()) == before == len(theirs.forks)
            is_settled = not self._held or self.received == received
            if equal or (is_settled and same_forks and not self._node.suspects_fork()):
                break
        self._exchange_keys(theirs)
        if self.received:
            self._node.follow_forgets()  # what came may be sealed with a key that was destroyed here
        if equal:
            self._node.exchange_views(self._ask, theirs)
        return Synced(
            sent_count=self._sent,
            received_count=self.received,
            duration_ms=int((time.monotonic() - began) * 1000),
            round_trips=self._trips,
            equal=equal,
            held=self._held,
            rejected=self._rejected[:_REASONS_MAX],
            clock_ahead_ms=ahead_ms,
        )

    def _ask(self, request: str, body: bytes = b"") -> bytes:
        self._trips += 1
        return self._ask_peer(request, body)

    def _heads(self) -> Heads:
        theirs = decode(self._ask(HEADS), Heads)
        self._node.require_same(theirs.community_id)
        return theirs

    def _send_forks(self, theirs: Heads) -> bool:
        forks = forks_that_lack(theirs, self._node.log.forks())
        if forks:
            self._send(iter([Events(community_id=self._node.log_id, events=[], forks=forks[:FORKS_MAX])]))
        return bool(forks)

    def fetch(self, wants: Sequence[Span], hashes: Sequence[bytes] = ()) -> None:
        """Ask for events until the peer has no more of them."""
        left, left_hashes = list(wants), list(hashes)
        for _ in range(_ROUNDS_MAX):
            if not left and not left_hashes:
                return
            asked = Wants(community_id=self._node.log_id, wants=left[:WANTS_MAX], hashes=left_hashes[:WANTS_MAX])
            message = decode(self._ask(WANTS, encode(asked)), Events)
            self._node.require_same(message.community_id)
            taken = self._node.take(message, peer=self._peer)
            self.received += taken.recorded
            self._took(taken.rejected, taken.held)
            came = [(event.origin, event.origin_seq) for event in taken.events]
            came += [(stub.origin, stub.origin_seq) for stub in message.purged]
            came += [(one.origin, one.origin_seq) for one in message.too_large]
            before = len(left_hashes), left
            left = without(left, came)
            if left_hashes:
                gone = {header_hash(header_bytes(event)) for event in taken.events}
                gone.update(stub.hash for stub in message.purged)
                left_hashes = [digest for digest in left_hashes if digest not in gone]
            if not message.more or before == (len(left_hashes), left):  # the peer has no more of these
                left, left_hashes = left[WANTS_MAX:], left_hashes[WANTS_MAX:]

    def _send(self, found: Iterator[Events]) -> None:
        for message in found:
            received = decode(self._ask(EVENTS, encode(message)), Received)
            self._sent += min(received.accepted, len(message.events))
            self._took(received.rejected_reasons, sum(each.held for each in received.rejected_reasons))

    def _exchange_keys(self, theirs: Heads) -> None:
        """Exchange the keys of persons that either side lacks, for the events that both have now."""
        for _ in range(_ROUNDS_MAX):
            asked = self._node.keys_to_exchange(theirs)
            if asked is None:
                return
            came = self._node.take_keys(decode(self._ask(KEYS, encode(asked)), Keys))
            theirs = msgspec.structs.replace(theirs, lacks_keys=[])  # they have them now, or take none
            if not came:
                return

    def _by_ranges(self) -> None:
        """Find the differences by hash, then exchange them."""
        items = self._node._items()
        message: bytes | None = ranges.first_message(items)
        have: list[bytes] = []
        need: list[bytes] = []
        for _ in range(_ROUNDS_MAX):
            if message is None:
                break
            found = ranges.next_message(items, self._ask(RANGES, message))
            have += found.have
            need += found.need
            message = found.message
        self.fetch([], list(dict.fromkeys(need)))
        for start in range(0, len(have), WANTS_MAX):
            self._send(self._node.batches([], have[start : start + WANTS_MAX]))

    def _took(self, rejected: Sequence[Rejected], held: int) -> None:
        self._held += held
        self._rejected += rejected[: _REASONS_MAX - len(self._rejected)]


def _hash_of(notes: Sequence[str]) -> str:
    return sha256("".join(sorted(notes)).encode()).hexdigest()[:16]
