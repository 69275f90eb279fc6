"""What other nodes sent to a log, and the ways of reading that other nodes rely on.

Two authors have keys. One of them forked its chain at number 3, so its events from there on do not count. Of the
other, number 3 did not come yet, so 4 and 5 wait in the quarantine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace
from tests.trust.signing import Author, id_of

from everlog.application.trust.checkpoints import make_checkpoint, make_heads
from everlog.application.trust.proofs import prove
from everlog.core.event import Event
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.sync.exchange import Node
from everlog.trust.notes import parse_checkpoint

_MS = 1_740_000_000_000
_FORKED, _WAITING = 1, 2

PURGED = "note/3"
"""A stream that is purged after the first events came."""


def _author(log: Log, seed: int) -> Author:
    return Author(seed, log.identity.log_id)


def _written(author: Author, count: int, **fields: Any) -> list[Event]:
    events: list[Event] = []
    for _ in range(count):
        number = author.number + 1
        fields = {"payload": {"body": f"sent {number}"}, **fields}
        events += author.write(**{**fields, "id": id_of(author.origin, number, _MS)})
    return events


def send_first(log: Log) -> None:
    """What arrives early in the life of the log."""
    forked = _author(log, _FORKED)
    sent = [*_written(forked, 4), *_written(forked, 1, stream=PURGED), *_written(_author(log, _WAITING), 2)]
    found = log.admit_each(sent)
    assert {one.kind for one in found} == {"recorded"}, found


def send_last(log: Log) -> None:
    """What arrives late: a fork of the first author, and events of the second that others must precede."""
    forked, waiting = _author(log, _FORKED), _author(log, _WAITING)
    _written(forked, 2)
    found = log.admit_each([*_written(forked, 1, actor="user:eve"), *_written(waiting, 5)[3:]])
    assert [one.kind for one in found] == ["held"] * 3, found


def _arrived(log: Log) -> Any:
    """Number 3 comes, and what waits for it is recorded with it."""
    waiting = _author(log, _WAITING)
    _admit(log, _written(waiting, 3)[2:])
    return [(one.position, one.event.origin_seq) for one in log.read() if one.event.origin == waiting.origin]


def _fork_found(log: Log) -> Any:
    """The second author turns out to have signed two events with the number 2."""
    twin = _author(log, _WAITING)
    _written(twin, 1)
    codes = _admit(log, _written(twin, 1, actor="user:eve"))
    return codes, [(fork.origin, fork.origin_seq) for fork in log.forks()]


@contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


def _admit(log: Log, events: list[Event]) -> list[str]:
    """The outcomes. It is an error if one says that the log is damaged, or if an event that waited is reported."""
    with warnings_of("everlog") as warned:
        outcomes = log.admit_each(events)
    if any("waited" in text or "waits" in text for text in warned):
        raise Damaged(warned[0])
    for one in outcomes:
        if one.code == "db_corrupt":
            raise Damaged(one.reason)
    return [one.code for one in outcomes]


def _checkpoint(log: Log) -> Any:
    made = parse_checkpoint(make_checkpoint(log, None).text)
    return made.size, made.root


def _tree(log: Log) -> Any:
    """The tree as it was at every earlier size, with proofs."""
    size = log.tree.head().size
    return [
        (log.tree.root(old), log.tree.consistency(old, size), log.tree.inclusion(old - 1, size))
        for old in range(1, size + 1, 5)
    ]


def _proofs(log: Log) -> Any:
    """Proofs of events, purged events and purges alike."""
    found = [prove(log, f"#{position}", None) for position in range(1, log.head() + 1, 4)]
    return [(proof.leaf, proof.group, proof.inclusion) for proof in found]


def _heads_for_sync(log: Log) -> Any:
    """Without the log's own origin: a log that lost it gets another one."""
    return replace(Node(log).heads(), origin="", time_ms=0)


def _in_batches(log: Log) -> Any:
    node = Node(log)
    found = list(node.batches(node.all_spans()))
    return [bytes(text) for batch in found for text in batch.events], [
        stub for batch in found for stub in batch.purged
    ]


def _by_hash(log: Log) -> Any:
    node = Node(log)
    keys = node._items().keys
    return keys, [bytes(text) for batch in node.batches([], [key[8:] for key in keys]) for text in batch.events]


def _facts(log: Log) -> Any:
    return [(one.position, one.event.origin_seq) for one in log.counted(log.read())]


READS: dict[str, Callable[[Log], Any]] = {
    "what counts": _facts,
    "verdicts": lambda log: str(log.verdicts()),
    "forks": lambda log: [str(fork) for fork in log.forks()],
    "what waits is recorded": _arrived,
    "a fork is found": _fork_found,
    "checkpoint": _checkpoint,
    "tree": _tree,
    "proofs": _proofs,
    "heads": lambda log: make_heads(log, None).text,
    "heads for sync": _heads_for_sync,
    "sync": _in_batches,
    "sync by hash": _by_hash,
}
