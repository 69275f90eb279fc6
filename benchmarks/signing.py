"""What signatures cost, a part of `everlog bench trust`: appends, admission, checks, and verify, against the same
without. The sides take turns, so that other work on the machine changes both alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
from benchmarks.rows import Row, Setup, in_turns, ratio

from everlog import aio, wiring
from everlog.catalog.builtin import BUILT_IN
from everlog.core.event import Event
from everlog.core.merkle import paths, root
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.identity import new_identity
from everlog.sync.exchange import Node
from everlog.sync.wire import Events, event_of
from everlog.testing.signing import signer
from everlog.trust.group_signature import event_is_signed, group_is_signed, signed_message
from everlog.trust.keys import PrivateKey

ONE, MANY, BYTES, ADMITTED, VERIFIED = 0.80, 0.90, 1.10, 0.70, 0.70
CHECKED = {8: 5.0, 64: 15.0}
OF_UNSIGNED = "of unsigned"


def measure(setup: Setup) -> Iterator[Row]:
    for size in CHECKED:
        yield _check(setup, size)
    for store in ("sqlite", "segments"):
        setup.progress(f"signing: appends in {store}")
        yield from _appends(setup, store)
        setup.progress(f"signing: admission and verify in {store}")
        yield from _admission(setup, store)


def _open(setup: Setup, store: str, name: str, *, signed: bool, log_id: str = "") -> Log:
    key = PrivateKey.new()
    made = new_identity(time.time_ns() // 1000, key.public.origin if signed else "")
    identity = msgspec.structs.replace(made, log_id=log_id or made.log_id)
    url = "memory:" if store == "memory" else f"{store}:{setup.directory / f'{name}-{store}-{signed}'}"
    opened = wiring.open_store(url, base=Path(), identity=identity)
    return Log(opened, BUILT_IN, actor="service:bench", signer=signer(opened, [key]) if signed else None)


def _drafts(count: int) -> list[Draft]:
    return [Draft("note.added", f"note/{n % 50}", {"text": f"note {n}", "topic": "x" * 80}) for n in range(count)]


def _appends(setup: Setup, store: str) -> Iterator[Row]:
    times = 2 if setup.quick else 100
    logs = [_open(setup, store, "append", signed=signed) for signed in (False, True)]

    def one(log: Log) -> None:
        log.append_batch(_drafts(1))

    def threads(log: Log) -> None:
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(one, log) for _ in range(64)]:
                done.result()

    def tasks(log: Log) -> None:
        async def all_at_once() -> None:
            await asyncio.gather(*(aio.append_batch(log, _drafts(1)) for _ in range(64)))

        asyncio.run(all_at_once())

    ways: dict[str, tuple[Callable[[Log], None], float, int]] = {
        "one event": (one, ONE, 4 * times),
        "8 threads": (threads, MANY, times // 4 + 1),
        "64 tasks": (tasks, MANY, times // 4 + 1),
        "batches of 64": (lambda log: void(log.append_batch(_drafts(64))), MANY, times),
        "batches of 1,000": (lambda log: void(log.append_batch(_drafts(1000))), MANY, times // 2),
    }
    try:
        for name, (way, must, count) in ways.items():
            took, cpu = in_turns([partial(way, log) for log in logs], setup.rounds, count)
            note = f"processor time {ratio(cpu, 1):.2f}"
            yield Row(f"signed append, {name}", store, ratio(took, 1), OF_UNSIGNED, must, False, note)
    finally:
        for log in logs:
            log.close()
    sizes = []
    for signed in (False, True):
        with _open(setup, store, "bytes", signed=signed) as log:
            for _ in range(times):
                log.append_batch(_drafts(8))
        paths_ = setup.directory.glob(f"bytes-{store}-{signed}*")
        sizes.append(sum(_size(path) for path in paths_))
    yield Row("bytes of a signed log, groups of 8", store, sizes[1] / sizes[0], OF_UNSIGNED, BYTES)


def _size(path: Path) -> int:
    return sum(_size(one) for one in path.iterdir()) if path.is_dir() else path.stat().st_size


def void(done: object) -> None:
    """Leave out what a call returns."""


def _admission(setup: Setup, store: str) -> Iterator[Row]:
    batches = 1 if setup.quick else 15
    targets, sent = [], []
    for signed in (False, True):
        with _open(setup, "memory", "source", signed=signed) as source:
            for _ in range(batches * (setup.rounds + 1) * 16):
                source.append_batch(_drafts(64))
            node = Node(source)
            sent.append([_decoded(message) for message in node.batches(node.all_spans())])
            targets.append(_open(setup, store, f"admit-{signed}", signed=False, log_id=source.identity.log_id))
    left = [iter(some) for some in sent]

    def admit() -> None:
        targets[0].admit(next(left[0])[0])

    def admit_each() -> None:
        events, message = next(left[1])
        outcomes = targets[1].admit_each(events, message.groups)
        assert all(one.kind == "recorded" for one in outcomes), outcomes[0]

    took, cpu = in_turns([admit, admit_each], setup.rounds, min(batches, (min(map(len, sent)) - 1) // setup.rounds))
    note = f"processor time {ratio(cpu, 1):.2f}"
    yield Row("admit batches with groups of 64", store, ratio(took, 1), OF_UNSIGNED, ADMITTED, False, note)
    took, cpu = in_turns([lambda log=log: void(log.verify()) for log in targets], setup.rounds, 1)  # type: ignore[misc]
    yield Row("verify", store, ratio(took, 1), OF_UNSIGNED, VERIFIED, False, f"processor time {ratio(cpu, 1):.2f}")
    for log in targets:
        log.close()


def _decoded(message: Events) -> tuple[list[Event], Events]:
    return [event_of(text) for text in message.events], message


def _check(setup: Setup, size: int) -> Row:
    key, log_id = PrivateKey.new(), new_identity(1).log_id
    origin, hashes = key.public.origin, [bytes([n]) * 32 for n in range(size)]
    signature, ways = key.sign(signed_message(log_id, origin, 1, size, root(hashes))), paths(hashes)

    def whole() -> None:
        assert group_is_signed(log_id, origin, 1, hashes, signature)

    def alone() -> None:
        for number, (hash, way) in enumerate(zip(hashes, ways, strict=True), 1):
            assert event_is_signed(log_id, origin, number, hash, (1, size), way, signature)

    _, cpu = in_turns([alone, whole], setup.rounds, 20 if setup.quick else 200)
    return Row(f"check a group of {size}", "", ratio(cpu, 1), "x one by one", CHECKED[size], False, "processor time")
