"""Random histories of a few nodes, from a seed, and what all of them must agree on at the end."""

from __future__ import annotations

import random
import shutil
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import msgspec
from tests.support.nodes import CATALOG, STORES, new_log_id, open_node
from tests.support.postgres_schemas import Schemas
from tests.trust.signing import Author

from everlog.application.sync.forgets import follow_pending
from everlog.application.trust.forget import finish_interrupted, follow, forget, status
from everlog.application.trust.owned_bytes import Owned
from everlog.catalog.catalog import Catalog
from everlog.catalog.personal import Personal
from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Event, Purged
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import Conflict, NotFound
from everlog.log.admit.branches import branch_here
from everlog.log.admit.quarantine import held_rows
from everlog.log.forgotten import forgets_in
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN, PURGED, TYPES, events_listed
from everlog.log.write import prepare
from everlog.log.write.draft import Draft
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal
from everlog.sync.wire import Events, decode, encode
from everlog.testing.signing import key
from everlog.trust.ring import KeyRing, wrapped_for
from everlog.trust.sealing import Sealing, key_id_of
from everlog.trust.signer import KeysInMemory
from everlog.trust.standing import Branch, Limit, Rights
from everlog.trust.verdicts import Verdicts
from everlog.views import builtin
from everlog.views.conflicts import Conflicts
from everlog.views.registry import Views
from everlog.views.view import CAUSAL, View

OPS = (
    *("write",) * 8,
    *("sync",) * 8,
    *("stopped", "doubled", "shuffled", "person") * 2,
    *("reopen", "purge", "purge", "revoke", "fork", "backup", "restore", "partition", "heal"),
    *("crash", "forget", "rogue_purge", "name_branch"),
)
ROUNDS_MAX = 8
ADMIN = key(1).public.origin
PERSONS = ("p/0", "p/1", "p/2")
REMOVERS = ("user:n0", "user:n1")
"""Only what they purge and forget is followed, as with the admins of a community. The second one may be revoked."""


def new_catalog() -> Catalog:
    """Return the types of a history. Each log has its own: it opens sealed fields with its own ring."""
    catalog = Catalog()
    catalog.include(CATALOG)
    catalog.event("member.revoked")(Revoked)
    catalog.event("branch.named")(Named)
    catalog.event("person.noted")(Noted)
    return catalog


class Revoked(msgspec.Struct):
    origin: str
    upto: int


class Named(msgspec.Struct):
    origin: str
    first: int
    hashes: list[str]


class Noted(msgspec.Struct):
    person: str
    text: Annotated[str, Personal(of="person")]


class Members:
    """Every chain counts, up to where the admin has revoked it, and on the branch that the admin has named last."""

    deciding: Collection[str] = ("member.revoked", "branch.named")

    def rights(self, history: Iterable[Event]) -> Rights:
        limits: dict[str, int] = {}
        branches: dict[str, Branch] = {}
        for event in sorted(history, key=lambda event: event.causal_order):
            if event.origin != ADMIN:
                continue
            member = str(event.payload["origin"])
            if event.type == "branch.named":
                branches[member] = Branch(event.payload["first"], tuple(map(b64decode, event.payload["hashes"])))
            else:
                limits[member] = min(int(event.payload["upto"]), limits.get(member, 2**53))
        return _Limits(limits, branches)

    def begins(self, event: Event) -> bool:
        return False


class _Limits:
    begun = True
    named: Collection[str] = ()

    def __init__(self, limits: dict[str, int], branches: dict[str, Branch]) -> None:
        self._limits = limits
        self._branches = branches

    def branch(self, origin: str) -> Branch | None:
        return self._branches.get(origin)

    def limit(self, origin: str) -> Limit | None:
        return Limit(self._limits[origin], "revoked_author") if origin in self._limits else None

    def may_remove(self, record: Event) -> bool:
        return record.actor in REMOVERS


class Told(View):
    """One row per stream: its texts in the order that is the same on every node."""

    name = "test.told"
    types = ("note.written",)
    order = CAUSAL

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"said": [*state.get("said", ()), [event.id, event.payload["text"]]]}


class People(View):
    """What is noted of each person, as far as it can be read."""

    name = "test.people"
    types = ("person.noted",)
    order = CAUSAL

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"noted": [*state.get("noted", ()), [event.id, event.payload.get("text", "erased")]]}


class Streams(builtin.Streams):
    order = CAUSAL


class Types(builtin.Types):
    order = CAUSAL


class Fields(builtin.Fields):
    order = CAUSAL


VIEWS = (Told(), People(), builtin.Actors(), Conflicts(), Streams(), Types(), Fields())
"""All views of a log. Those in the order of positions are folded in causal order here, the same everywhere."""


def origin_of(number: int) -> str:
    return key(number).public.origin


class Stopped(Exception):
    """A carrier that broke between two requests, or a process that ended between two writes."""


class History:
    """Nodes that write, exchange, fail and recover as a seed says."""

    def __init__(
        self, seed: int, folder: Path, schemas: Schemas | None = None, *, stores: Sequence[str] = ()
    ) -> None:
        """With `schemas`, one node in every third history is in PostgreSQL. `stores` are those of a test."""
        self.chance = random.Random(seed)
        self.folder = folder
        self.log_id = new_log_id()
        self.seen: Counter[str] = Counter()
        count = self.chance.randint(3, 5)
        self.stores = [self.chance.choice(STORES) for _ in range(count)]
        if stores:
            self.stores, count = list(stores), len(stores)
        self.postgres, self._schemas = "", schemas
        if schemas is not None and seed % 3 == 0:
            self.stores[self.chance.randrange(count)] = "postgresql"
            self.postgres = schemas.new()
        self.keys = [KeysInMemory([key(place + 1)]) for place in range(count)]
        self.nodes = [self.open(place) for place in range(count)]
        self.sides = [0] * count
        self.backups: set[int] = set()
        self.written = 0

    def open(self, place: int) -> Node:
        store, name = self.stores[place], f"n{place}"
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        urls = {"memory": "memory:", "postgresql": self.postgres}
        opened = open_node(
            store,
            folder,
            self.log_id,
            name,
            url=urls.get(store, f"{store}:{folder / 'log'}"),
            catalog=new_catalog(),
            keys=[key(place + 1)],
            kept=self.keys[place],
            make_standing=Members,
            make_views=lambda log: Views(log, VIEWS),
            sealing=Sealing(lambda: self.ring(place, opened.log)),
        )
        log = opened.log
        log.writer.first = partial(finish_interrupted, log, Owned())
        return Node(log, on_forgotten=lambda: self.follow(log), may_have_keys=lambda node: True)

    def ring(self, place: int, log: Log) -> KeyRing:
        """Return the ring of a node, which is outside its log and its backups."""
        origins = dict.fromkeys((log.identity.origin, *wrapped_for(self.folder / f"r{place}")))
        gone = {one for forget in forgets_in(log.writer.small_state) for one in forget.keys}
        return KeyRing(
            self.folder / f"r{place}", node_keys=[self.keys[place].load(one) for one in origins], gone=gone
        )

    def follow(self, log: Log) -> None:
        follow_pending(log, Owned)

    def close(self) -> None:
        for node in self.nodes:
            node.log.close()
        if self.postgres and self._schemas is not None:
            self._schemas.drop(self.postgres)

    def in_files(self, place: int) -> bool:
        return self.stores[place] not in ("memory", "postgresql")

    # ---- what happens

    def run(self, steps: int) -> None:
        for _ in range(steps):
            op = self.chance.choice(OPS)
            self.seen[op] += 1
            getattr(self, f"do_{op}")(self.chance.randrange(len(self.nodes)))
        self.settle()

    def do_write(self, place: int) -> None:
        chance, node = self.chance, self.nodes[place]
        drafts = []
        for _ in range(chance.choice((1, 1, 2, 7))):
            self.written += 1
            drafts.append(Draft("note.written", f"note/{chance.randrange(4)}", {"text": self.written}))
        node.log.append_batch(drafts)

    def do_person(self, place: int) -> None:
        """Something is noted of a person; sometimes as before the field was declared personal."""
        self.written += 1
        payload = {"person": self.chance.choice(PERSONS), "text": f"about somebody, {self.written}"}
        with ExitStack() as stack:
            if self.chance.random() < 0.4:
                stack.enter_context(patch.object(prepare, "_seal", lambda *given: None))
            self.nodes[place].log.append(
                "person.noted", stream=payload["person"].replace("p/", "person/"), payload=payload
            )

    def do_forget(self, place: int) -> None:
        """One of the first two nodes forgets somebody. The second one may be revoked afterwards, or before."""
        with suppress(NotFound):
            forget(self.nodes[place % 2].log, self.chance.choice(PERSONS), owned=Owned())

    def do_rogue_purge(self, place: int) -> None:
        """A member whose purges nobody follows purges all the same, revoked or not. What it made is elsewhere."""
        if place < len(REMOVERS):
            return
        for peer in range(len(self.nodes)):
            if peer != place:
                self.nodes[place].sync_with(self.nodes[peer].answer)
        with suppress(NotFound):
            self.nodes[place].log.purge(f"note/{self.chance.randrange(4)}", reason="without the right to it")

    def do_crash(self, place: int) -> None:
        """The process ends between two writes of a sync, a purge or a forget, and is started again."""
        what = self.chance.choice((self.do_sync, self.do_sync, self.do_purge, self.do_forget))
        place = place if what == self.do_sync else place % 2
        left = self.chance.randint(1, 6)
        if self.stores[place] == "memory":
            return
        writer = self.nodes[place].log.writer

        def counted(write: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left <= 0:
                    raise Stopped
                return write(*given, **named)

            return call

        with ExitStack() as stack:
            for name in ("write", "admit_each"):
                stack.enter_context(patch.object(writer, name, counted(getattr(writer, name))))
            stack.enter_context(suppress(Stopped))
            what(place)
        if self.in_files(place):  # as the files are, without what closing a log does
            here, copy = self.folder / f"n{place}", self.folder / f"c{place}"
            shutil.copytree(here, copy)
            self.nodes[place].log.close()
            shutil.rmtree(here)
            copy.rename(here)
            self.nodes[place] = self.open(place)
        else:
            self.do_reopen(place)

    def _other(self, place: int) -> int | None:
        found = [one for one in range(len(self.nodes)) if one != place and self.sides[one] == self.sides[place]]
        return self.chance.choice(found) if found else None

    def do_sync(self, place: int) -> None:
        other = self._other(place)
        if other is not None:
            self.nodes[place].sync_with(self.nodes[other].answer)

    def do_stopped(self, place: int) -> None:
        """The connection breaks between two requests, before or after the peer has done its part."""
        other, left = self._other(place), self.chance.randint(1, 4)
        if other is None:
            return
        node, peer, late = self.nodes[place], self.nodes[other], self.chance.random() < 0.5

        def ask(request: str, body: bytes) -> bytes:
            nonlocal left
            left -= 1
            if left == 0:
                if late:
                    peer.answer(request, body)
                raise Stopped
            return peer.answer(request, body)

        with suppress(Stopped):
            node.sync_with(ask)
        if self.chance.random() < 0.5:
            self.do_reopen(place)

    def do_doubled(self, place: int) -> None:
        other = self._other(place)
        if other is None:
            return
        peer = self.nodes[other]

        def ask(request: str, body: bytes) -> bytes:
            peer.answer(request, body)
            return peer.answer(request, body)

        self.nodes[place].sync_with(ask)

    def do_shuffled(self, place: int) -> None:
        """The events of every batch come in another order."""
        other = self._other(place)
        if other is None:
            return
        peer = self.nodes[other]

        def shuffled(data: bytes) -> bytes:
            message = decode(data, Events)
            events = list(message.events)
            self.chance.shuffle(events)
            return encode(msgspec.structs.replace(message, events=events))

        def ask(request: str, body: bytes) -> bytes:
            reply = peer.answer(request, shuffled(body) if request == "events" else body)
            return shuffled(reply) if request == "wants" else reply

        self.nodes[place].sync_with(ask)

    def do_reopen(self, place: int) -> None:
        if self.stores[place] != "memory":
            self.nodes[place].log.close()
            self.nodes[place] = self.open(place)

    def do_purge(self, place: int) -> None:
        """One of the first two nodes purges. The second one may be revoked afterwards, before its record or after."""
        with suppress(NotFound):
            self.nodes[place % 2].log.purge(f"note/{self.chance.randrange(4)}", reason="a history")

    def do_revoke(self, _: int) -> None:
        """The admin revokes a member: its chain counts up to the end that the admin knows, or a little less."""
        admin = self.nodes[0].log
        if admin.identity.origin != ADMIN or self.chance.random() < 0.5:
            return
        trusted = {ADMIN}
        ends = {origin: head.end for origin, head in self.nodes[0].heads().origins.items() if origin not in trusted}
        if ends:
            origin = self.chance.choice(sorted(ends))
            upto = max(0, ends[origin] - self.chance.choice((0, 0, 1)))
            admin.append("member.revoked", stream="member/1", payload={"origin": origin, "upto": upto})

    def do_fork(self, place: int) -> None:
        """A member that is no node here shows two nodes different events with the same numbers."""
        author = Author(self.chance.randint(20, 22), self.log_id)
        common = author.write(self.chance.randint(0, 3)) if self.chance.random() < 0.8 else []
        fields = {"type": "note.written", "stream": "note/1"}
        twin = author.twin()
        if author.origin != origin_of(20):  # that one gives one id to two events, and no branch of it is named
            author.ms += 1 + 2 * self.written
            twin.ms += 2 + 2 * self.written
        one = author.write(2, payload={"text": f"one {self.written}"}, **fields)
        other = twin.write(self.chance.randint(1, 3), payload={"text": f"other {self.written}"}, **fields)
        self.written += 1
        self.nodes[place].log.admit_each([*common, *one])
        self.nodes[self.chance.randrange(len(self.nodes))].log.admit_each([*common, *other])

    def do_name_branch(self, _: int) -> None:
        """The admin names a branch of a chain that forked: the one that it has, or one that waits."""
        admin = self.nodes[0].log
        forks = [fork.origin for fork in admin.forks() if fork.origin in map(origin_of, (21, 22))]
        if admin.identity.origin != ADMIN or not forks:
            return
        origin = self.chance.choice(forks)
        held = dict(held_rows(admin.writer.small_state)).get(origin, [])
        upto = self.chance.choice(["", *(one.id for one in held)])
        with suppress(Conflict, NotFound):
            branch = admin.writer.write(lambda write: branch_here(write, origin, upto))
            hashes = [b64encode(one).decode() for one in branch.hashes]
            payload = {"origin": origin, "first": branch.first, "hashes": hashes}
            admin.append("branch.named", stream="member/1", payload=payload)
            self.seen["named"] += 1

    def do_backup(self, place: int) -> None:
        if self.in_files(place):
            self.nodes[place].log.close()
            shutil.rmtree(self.folder / f"b{place}", ignore_errors=True)
            shutil.copytree(self.folder / f"n{place}", self.folder / f"b{place}")
            self.backups.add(place)
            self.nodes[place] = self.open(place)

    def do_restore(self, place: int) -> None:
        """An old copy is put back, and the numbers that its key has signed since are not known any more.

        It syncs before it writes: without that, and without the file beside its key, nothing could warn it.
        """
        if place not in self.backups:
            return
        self.nodes[place].log.close()
        shutil.rmtree(self.folder / f"n{place}")
        shutil.copytree(self.folder / f"b{place}", self.folder / f"n{place}")
        self.keys[place]._last.clear()
        self.nodes[place] = self.open(place)
        for peer in range(len(self.nodes)):
            if peer != place:
                self.nodes[place].sync_with(self.nodes[peer].answer)

    def do_partition(self, _: int) -> None:
        self.sides = [self.chance.randrange(2) for _ in self.nodes]

    def do_heal(self, _: int) -> None:
        self.sides = [0] * len(self.nodes)

    # ---- the end

    def settle(self) -> None:
        """Sync in rounds, as nodes do, until all of them are equal."""
        for place in range(len(self.nodes)):
            self.do_reopen(place)  # a log that took a new key meanwhile opens boxes with it from now on
        self.sync_all()

    def sync_all(self) -> None:
        for number in range(ROUNDS_MAX):
            for place in range(len(self.nodes)):
                # In turn with every other node: one whose record lost its standing cannot pass on what it purged.
                other = (place + 1 + number % (len(self.nodes) - 1)) % len(self.nodes)
                self.nodes[place].sync_with(self.nodes[other].answer)
            heads = [node.heads() for node in self.nodes]
            if all(proven_equal(heads[0], one) and not one.lacks_keys for one in heads) and not heads[0].lacks_keys:
                return

    def remove_what_was_lost(self) -> bool:
        """What some nodes removed with a record that does not count, the admin removes with one that does; False if
        there is nothing."""
        admin, found = self.nodes[0].log, [node_lost(node) for node in self.nodes]
        for stream in sorted({stream for lost in found for stream in lost.purged.values()}):
            admin.purge(stream, reason="others have lost it")
            self.seen["purged what was lost"] += 1
        if any(lost.forgotten for lost in found):
            self.seen["forgot what was lost"] += 1
            for record in [one.record for one in status(admin) if not one.counts]:
                follow(admin, record, owned=Owned())
            for person in PERSONS:
                with suppress(NotFound):
                    forget(admin, person, owned=Owned())
        if any(found):
            self.sync_all()
        return any(found)

    def require_agreement(self, *, nothing_lost: bool = False) -> None:
        """All nodes agree. One that removed something with a record that does not count lacks that, and nothing else;
        with `nothing_lost`, there is no such node. What no node has any more cannot be sent: then nodes agree only
        when an admin has purged it again."""
        first = self.nodes[0]
        forks, everything = counting(first)[0], set().union(*(counting(node)[1] for node in self.nodes))
        if not nothing_lost and any(node_lost(node).purged.keys() - everything for node in self.nodes):
            self.seen["lost everywhere"] += 1
            return
        digests: dict[Lost, tuple[str, ...]] = {}
        for place, node in enumerate(self.nodes):
            where = f"{self.stores[place]} {place}"
            assert proven_equal(first.heads(), node.heads()), f"heads of {where}"
            lost = node_lost(node)
            assert not (nothing_lost and lost), f"{where} still lacks {lost}"
            assert counting(node) == (forks, everything - lost.purged.keys()), f"verdicts of {where}"
            found = tuple(node.log.view(view).digest() for view in VIEWS)
            expected = digests.setdefault(lost, found)
            wrong = [view.name for view, one, other in zip(VIEWS, found, expected, strict=True) if one != other]
            assert not wrong, f"{wrong} of {where}"
            report = node.log.verify()
            assert report.ok, (where, report.problems)


class Lost(NamedTuple):
    """What is gone on a node though no record that counts lists it."""

    purged: dict[EventId, str]  # events that count, with streams
    forgotten: frozenset[str]  # events that count without their payloads, and keys

    def __bool__(self) -> bool:
        return bool(self.purged or self.forgotten)

    def __hash__(self) -> int:
        return hash((frozenset(self.purged), self.forgotten))


def node_lost(node: Node) -> Lost:
    log, verdicts = node.log, node.log.verdicts()
    records = [one.event for one in log.counted(log.stored.read(Query(types=frozenset(TYPES))))]
    allowed = log.writer.write(lambda write: [one for one in records if log.writer.may_remove(write, one)])
    listed = {(record.type, *place) for record in allowed for place in events_listed(record)}
    streams = {purge.reserved: purge.stream for purge in log.stored.purges()}
    purged = {
        slot.id: streams[slot.reserved]
        for slot in log.stored.slots()
        if isinstance(slot, Purged)
        and (PURGED, slot.origin, slot.origin_seq, slot.hash) not in listed
        and counts(slot, verdicts)
    }
    here = [one.event for one in log.counted(log.stored.read())]
    bare = {
        event.id
        for event in here
        if not event.salt
        and (FORGOTTEN, event.origin, event.origin_seq, header_hash(header_bytes(event))) not in listed
    }
    needed = {key_id_of(value) for event in here if event.type == "person.noted" for value in event.payload.values()}
    ring = log.sealing.ring if log.sealing is not None else None
    gone = needed & (frozenset() if ring is None else ring.destroyed)
    return Lost(purged, frozenset({*bare, *(gone - {key for one in allowed for key in one.payload.get("keys", ())})}))


def counts(slot: Purged, verdicts: Verdicts) -> bool:
    limit = verdicts.limits.get(slot.origin)
    return limit is None or (slot.origin_seq <= limit.upto and slot.id not in verdicts.lost)


def counting(node: Node) -> tuple[list[tuple[str, int]], set[str]]:
    """Return what a node decided: where chains forked, and which events count."""
    forks = [(fork.origin, fork.origin_seq) for fork in node.log.forks()]
    return forks, {one.event.id for one in node.log.counted(node.log.read())}
