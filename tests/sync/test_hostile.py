"""Random hostile peers: nothing that they make up is admitted, and honest nodes agree. 500 with --full."""

from __future__ import annotations

import random
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.nodes import close, new_log_id, open_node, write

from everlog.core.codec import Packed, commitment, header_hash, payload_bytes, unpack
from everlog.errors import EverlogError, NotFound
from everlog.log.write.draft import Draft
from everlog.sync.exchange import REQUESTS, Node
from everlog.sync.heads import proven_equal
from everlog.testing.signing import key
from everlog.trust.keys import is_key
from everlog.trust.standing import Pinned

SHORT, FULL, PARTS = 20, 500, 10
SYNCS = 6
NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**53, 2**64, 10**400, 1.5, "", "x", "\ud7ff", "AAAA", "z6Mk", [], {}, [[]], {"a": []}),
    *("A" * 44, "A" * 88, "A" * 120, [0, 0, 0], ["z", 1, 2**53]),
)


class Hostile:
    """A member that changes every answer and every message before it gives them away."""

    def __init__(self, seed: int, behind: Node) -> None:
        self.chance = random.Random(seed)
        self.behind = behind
        self.kept: list[bytes] = []

    def ask(self, request: str, body: bytes) -> bytes:
        """Answer as a peer would, and then not."""
        if request == "wants" and self.chance.random() < 0.3 and self.kept:
            return self.changed(self.chance.choice(self.kept))
        reply = self.behind.answer(request, body)
        if request == "wants":
            self.kept.append(reply)
        return reply if self.chance.random() < 0.4 else self.changed(reply)

    def changed(self, data: bytes) -> bytes:
        how = self.chance.random()
        if how < 0.1:
            return data[: self.chance.randrange(len(data) + 1)]
        if how < 0.2:
            return self.chance.randbytes(self.chance.randrange(200))
        if how < 0.35:
            flipped = bytearray(data)
            for _ in range(self.chance.randint(1, 4)):
                if flipped:
                    flipped[self.chance.randrange(len(flipped))] ^= 1 << self.chance.randrange(8)
            return bytes(flipped)
        try:
            found = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return data[::-1]
        if isinstance(found, dict) and found.get("events") and how < 0.6:
            self.forge(self.chance.choice(found["events"]))
        else:
            for _ in range(self.chance.randint(1, 5)):
                self.change(found)
        return msgspec.json.encode(found)

    def forge(self, event: dict[str, Any]) -> None:
        """Make another event of one, with everything right that needs no key."""
        if "payload" not in event or self.chance.random() < 0.2:
            event["lamport"] += self.chance.choice((1, 2**20, 2**50))
            return
        event["payload"] = {"text": "forged"}
        salt = b64decode(event["salt"])
        event["commitment"] = b64encode(commitment(salt, payload_bytes(event["payload"]))).decode()

    def change(self, found: Any) -> None:
        """Change one value somewhere inside."""
        while True:
            places = list(found) if isinstance(found, dict) else list(range(len(found)))
            if not places:
                return
            place = self.chance.choice(places)
            inner = found[place]
            if isinstance(inner, dict | list) and inner and self.chance.random() < 0.8:
                found = inner
                continue
            how = self.chance.random()
            if how < 0.2 and isinstance(found, dict):
                del found[place]
            elif how < 0.4 and isinstance(found, list):
                found.insert(place, deepcopy(self.chance.choice(found)))
            elif how < 0.5 and isinstance(inner, int):
                found[place] = inner + self.chance.choice((-1, 1, 1000))
            elif how < 0.6 and isinstance(found, list) and len(found) > 1:
                other = self.chance.randrange(len(found))
                found[place], found[other] = found[other], found[place]
            else:
                found[place] = deepcopy(self.chance.choice(NASTY))
            return


def quietly(work: Callable[[], object]) -> None:
    """Do something with a hostile peer: it may be refused, quickly, and nothing else may happen."""
    began = time.monotonic()
    with suppress(EverlogError):
        work()
    assert time.monotonic() - began < 10


def run(seed: int, folder: Path) -> None:
    folder.mkdir()
    log_id, chance = new_log_id(), random.Random(-seed)
    members = [key(number).public.origin for number in (1, 2, 3)]
    made = [
        open_node(store, folder, log_id, f"n{place}", keys=[key(place + 1)], make_standing=lambda: Pinned(members))
        for place, store in enumerate(("memory", chance.choice(("sqlite", "jsonl", "segments")), "memory"))
    ]
    one, other, member = made
    stranger = open_node("memory", folder, log_id, "stranger", keys=[key(4)])
    hostile = Hostile(seed, chance.choice((member, stranger)))
    for node in (*made, stranger):
        write(node, "a")
        node.log.append_batch([Draft("note.written", f"note/{place % 2}", {"text": place}) for place in range(5)])
    hostile.behind.sync_with(other.answer)
    for _ in range(SYNCS):
        write(chance.choice((*made, stranger)), "more")
        if chance.random() < 0.2:
            with suppress(NotFound):
                hostile.behind.log.purge("note/1", reason="hostile")
        victim = chance.choice((one, other))
        quietly(partial(victim.sync_with, hostile.ask, peer="peer:hostile"))
        for message in list(hostile.kept[-2:]):
            request = chance.choice(REQUESTS)
            quietly(partial(victim.answer, request, hostile.changed(message)))
    # Anybody can write under a name that is no key. Such events must only be the same on both nodes.
    real = {digest for node in (*made, stranger) for origin in own_origins(node) for digest in hashes(node, origin)}
    for node in (one, other):
        signed = {digest for origin in node.heads().origins if is_key(origin) for digest in hashes(node, origin)}
        assert signed <= real, "something was admitted that nobody wrote"
        assert key(4).public.origin not in node.heads().origins
    for _ in range(3):
        one.sync_with(other.answer)
        other.sync_with(one.answer)
    assert proven_equal(one.heads(), other.heads())
    for node in (one, other):
        report = node.log.verify()
        assert report.ok, report.problems
        write(node, "still writes")
    close([*made, stranger])


def own_origins(node: Node) -> tuple[str, ...]:
    return (node.log.identity.origin, *node.log.identity.former)


def hashes(node: Node, origin: str) -> set[bytes]:
    """Return the hashes of the events of one origin."""
    found = ((slot, unpack(slot).event if isinstance(slot, Packed) else slot) for slot in node.log.stored.slots())
    return {
        header_hash(slot.header) if isinstance(slot, Packed) else slot.hash
        for slot, event in found
        if event.origin == origin
    }


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_hostile_is_admitted(part: int, tmp_path: Path) -> None:
    for seed in range(part, SHORT, PARTS):
        run(seed, tmp_path / str(seed))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_of_500_hostile_peers_is_admitted(part: int, tmp_path: Path) -> None:
    for seed in range(SHORT + part, FULL, PARTS):
        run(seed, tmp_path / str(seed))
