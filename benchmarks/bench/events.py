"""The events that the benchmark appends: of the size and with the fields that a real request has.

A payload of four strings (about 140 bytes), an actor, a correlation id, a causation id and an idempotency key. One
event in twenty is of a second, rare type, so that reading by type has something to find and much to pass over. Half
of the payloads have texts that no event had before, and half repeat one of 200.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.log.write.draft import Draft

TYPE = "bench.moved"
RARE_TYPE = "bench.closed"
RARE_EVERY = 20
NEW_TYPE = "bench.measured"
STREAMS = 200
REPEATED = 200  # payloads that come again and again

CATALOG = Catalog()
_LANES = ("planned", "doing", "for_review", "done")
_WORDS = ("reviewed", "merged", "rebased", "waiting", "blocked", "tested", "shipped", "again", "finally", "quietly")


@CATALOG.event(TYPE)
class Moved(msgspec.Struct):
    """A thing went from one lane to another."""

    feature: str
    came_from: str
    went_to: str
    reason: str


@CATALOG.event(RARE_TYPE)
class Closed(msgspec.Struct):
    """The same four fields under a name that occurs seldom."""

    feature: str
    came_from: str
    went_to: str
    reason: str


@CATALOG.event(NEW_TYPE)
class Measured(msgspec.Struct):
    """What a sensor or a person says: never the same twice."""

    feature: str
    came_from: str
    went_to: str
    reason: str
    hours: float


MODELS: dict[str, type[msgspec.Struct]] = {TYPE: Moved, RARE_TYPE: Closed, NEW_TYPE: Measured}


class Pool:
    """Drafts made once, before the clock starts; a fresh idempotency key for every use of one."""

    def __init__(self, size: int, *, seed: int = 1) -> None:
        self._rng = rng = random.Random(seed)
        payloads = [_payload(rng) for _ in range(REPEATED)]
        self._drafts = [_draft(rng, f"item/{number % STREAMS:05}", rng.choice(payloads)) for number in range(size)]
        self._taken = 0
        self._keys = count(1)

    def take(self, number: int) -> list[Draft]:
        """The next drafts, over and over; every second one with texts that were never used before in this run."""
        first = self._taken
        self._taken += number
        return [self._draft(index) for index in range(first, first + number)]

    def _draft(self, index: int) -> Draft:
        draft = self._drafts[index % len(self._drafts)]
        if index % 2:
            return draft
        payload = {name: f"{text[:-8]}{index:08x}" for name, text in draft.payload.items()}
        return msgspec.structs.replace(draft, payload=payload)

    def mixed(self, number: int) -> list[Draft]:
        """The next drafts, with every twentieth of the rare type."""
        return [
            msgspec.structs.replace(draft, type=RARE_TYPE) if index % RARE_EVERY == 0 else draft
            for index, draft in enumerate(self.take(number))
        ]

    def on_one_stream(self, number: int, stream: str) -> list[Draft]:
        return [msgspec.structs.replace(draft, stream=stream) for draft in self.take(number)]

    def on_streams_of_their_own(self, number: int) -> list[Draft]:
        return [
            msgspec.structs.replace(draft, stream=f"item/{index:05}") for index, draft in enumerate(self.take(number))
        ]

    def never_seen(self, number: int) -> list[Draft]:
        """Drafts of which nothing repeats: new streams and actors, texts beyond ASCII, numbers with fractions."""
        new = []
        for draft in self.take(number):
            mark = f"{self._rng.getrandbits(40):010x}"
            payload = {**draft.payload, "reason": f"geprüft, {mark} mal größer", "hours": self._rng.random()}
            draft = msgspec.structs.replace(draft, type=NEW_TYPE, payload=payload)
            new.append(msgspec.structs.replace(draft, stream=f"item/{mark}", actor=f"agent:{mark}"))
        return new

    def key(self) -> str:
        """An idempotency key that was never used before in this run."""
        return f"request-{next(self._keys):012}"


def fields(draft: Draft) -> dict[str, Any]:
    """What a caller of `append` passes for this draft, beside the type and the key."""
    return {
        "stream": draft.stream,
        "payload": draft.payload,
        "actor": draft.actor,
        "causation_id": draft.causation_id,
        "correlation_id": draft.correlation_id,
    }


def chunks(drafts: Sequence[Draft], size: int) -> list[Sequence[Draft]]:
    return [drafts[start : start + size] for start in range(0, len(drafts), size)]


def _payload(rng: random.Random) -> dict[str, str]:
    return {
        "feature": f"{rng.randrange(10**4):04}-{rng.choice(_WORDS)}-{rng.choice(_WORDS)}",
        "came_from": rng.choice(_LANES),
        "went_to": rng.choice(_LANES),
        "reason": " ".join(rng.choices(_WORDS, k=7)),
    }


def _draft(rng: random.Random, stream: str, payload: dict[str, str]) -> Draft:
    return Draft(
        type=TYPE,
        stream=stream,
        payload=payload,
        actor=f"agent:worker-{rng.randrange(20):02}",
        causation_id=f"cause-{rng.getrandbits(64):016x}",
        correlation_id=f"trace-{rng.getrandbits(64):016x}",
    )
