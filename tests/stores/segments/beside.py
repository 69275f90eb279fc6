"""Processes that work on one segments log at the same time, for `test_beside.py`.

    python beside.py writers PATH SEED KILLS WHAT     one writer after the other, each killed while it writes
    python beside.py reader|fresh|view|check PATH     until SIGTERM; the last line is what it found, as JSON

`WHAT` names what writers do besides appending: purge, archive, close.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import everlog
from everlog.core.event import Position
from everlog.log.verify.verify import verify
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import stamped
from everlog.views.builtin import Streams
from everlog.views.fold import fold_all
from everlog.views.view import digest

STREAMS = 8


def write(path: Path, chance: random.Random, what: str) -> None:
    """Append frames of all sizes; print the last position and id of each write when it is acknowledged."""
    segment_bytes, space_bytes = chance.choice([16_000, 60_000, 10**8]), chance.choice([0, 8192, 2**20])
    store = SegmentsStore(path, segment_bytes_max=segment_bytes, space_bytes=space_bytes)
    while True:
        with store.open_write() as writer:
            for _ in range(chance.choice([1, 1, 3, 20])):
                payload = {"pad": "x" * chance.choice([1, 50, 3000, 30_000])}
                stream = f"thing/{chance.randrange(STREAMS)}"
                (made,) = writer.append(
                    [stamped(writer, store.identity.origin, type="thing.made", stream=stream, payload=payload)]
                )
        os.write(1, f"{made.position} {made.event.id}\n".encode())
        if "purge" in what and chance.random() < 0.05:
            with store.open_write() as writer:
                writer.purge(made.event.stream, actor="user:ada", reason="asked to")
        if "archive" in what and chance.random() < 0.05:
            store.archive(days=0)
        if "close" in what and chance.random() < 0.1:
            store.close()
            store = SegmentsStore(path, segment_bytes_max=segment_bytes)


def writers(path: Path, seed: int, kills: int, what: str) -> None:
    chance = random.Random(seed)
    for number in range(kills):
        child = os.fork()
        if child == 0:
            try:
                write(path, random.Random(f"{seed} {number}"), what)
            except BaseException as error:
                os.write(1, f"failed: {error!r}\n".encode())
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.01, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def until_stopped(work: Callable[[], None]) -> int:
    """Do it over and over until SIGTERM; how often."""
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    print("ready", flush=True)
    times = 0
    while not stopped:
        work()
        times += 1
    return times


def read(path: Path, *, fresh: bool) -> dict[str, Any]:
    """What a reader was shown that was wrong when it was shown, or is not there any more."""
    store = SegmentsStore(path, create=False)
    seen: dict[Position, str] = {}
    wrong: list[str] = []
    last = Position(0)

    def look() -> None:
        nonlocal store, last
        if fresh:
            store.close()
            store = SegmentsStore(path, create=False)
            last = Position(0)
        purges = store.purges()
        for record in store.read(after=last):
            if record.position != last + 1 and not purges and not store.purges():
                wrong.append(f"{record.position} after {last}")
            last = record.position
            if seen.setdefault(record.position, record.event.id) != record.event.id:
                wrong.append(f"{record.position} changed")
        if store.head() < last:
            wrong.append(f"the head went back from {last}")

    times = until_stopped(look)
    there = {record.position: record.event.id for record in store.read()}
    gone = {purged.position for purged in store.state.purged_at.values()}
    wrong += [
        f"{position} is gone" for position, id in seen.items() if there.get(position) != id and position not in gone
    ]
    store.close()
    return {"times": times, "seen": len(seen), "wrong": wrong}


def view(path: Path) -> dict[str, Any]:
    with everlog.open(f"segments:{path}", create=False) as log:

        def look() -> None:
            log.view(Streams).digest()

        times = until_stopped(look)
        equal = log.view(Streams).digest() == digest(fold_all(Streams(), log.read()).items())
        return {"times": times, "seen": log.head(), "wrong": [] if equal else ["the view is not the fold"]}


def check(path: Path) -> dict[str, Any]:
    store = SegmentsStore(path, create=False)
    wrong: list[str] = []
    times = until_stopped(lambda: wrong.extend(map(str, verify(store).problems)))
    return {"times": times, "seen": store.head(), "wrong": wrong}


def main(role: str, path: Path, *rest: str) -> None:
    if role == "writers":
        writers(path, int(rest[0]), int(rest[1]), rest[2])
        return
    roles = {
        "reader": lambda: read(path, fresh=False),
        "fresh": lambda: read(path, fresh=True),
        "view": lambda: view(path),
        "check": lambda: check(path),
    }
    print(json.dumps(roles[role]()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
