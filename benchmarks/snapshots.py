"""What snapshots of views cost and save: making one of many keys, a patch on it, opening from it, looking back.

    python -m benchmarks.snapshots                           200,000 events, 100,000 keys, on SQLite
    python -m benchmarks.snapshots --events 1000000

"open by replay" is a view without any state folding the whole log; "open from a snapshot" is the same with a snapshot
of a hundred events ago. Both end with the view's states on the disk and give the same digest.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import everlog
from everlog.core.event import Event
from everlog.log.log import Log
from everlog.views.builds.build import VIEWS, builds_of, drop_build, every_name
from everlog.views.snapshots.check import check_all
from everlog.views.view import View

BATCH = 5000
TAIL = 100


class Last(View):
    """The last text and a count, for every stream."""

    name = "last"
    types = ("note.added",)

    def initial(self) -> dict[str, Any]:
        return {"count": 0, "text": ""}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"count": state["count"] + 1, "text": event.payload["text"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--store", default="sqlite:log.db")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scheme, _, name = chosen.store.partition(":")
        measure(f"{scheme}:{Path(folder) / name}", chosen.events, chosen.keys)


def measure(url: str, events: int, keys: int) -> None:
    print(f"{events:,} events, {keys:,} keys, {url.partition(':')[0]}")
    with everlog.open(url, actor="user:ada") as log:
        fill(log, 0, events, keys)
        replayed = timed("open by replay", lambda: log.view(Last).catch_up())
        expected = log.view(Last).digest()
        made = timed("snapshot, full", lambda: log.view(Last).snapshot())
        entry = log.views.snapshots.folder.entries("last")[0]
        print(f"  {'':28} {entry.file_bytes / 1e6:8.1f} MB in the file")
        fill(log, events, TAIL, keys)
        timed("snapshot, a patch on it", lambda: log.view(Last).snapshot())
        patch = log.views.snapshots.folder.entries("last")[0]
        print(f"  {'':28} {patch.file_bytes / 1e6:8.3f} MB in the file")
        patch.path.unlink()
        expected = log.view(Last).digest()
        timed("restore and its tail", lambda: log.view(Last).restore())
        forget_states(log)
    with everlog.open(url, actor="user:ada") as log:
        opened = timed("open from a snapshot", lambda: log.view(Last).catch_up())
        assert log.view(Last).digest() == expected, "not the same states"
        timed("verify, 100 keys replayed", lambda: check_all(log.views.snapshots, log.view(Last), live=False))
        timed("a stream as of half-way", lambda: log.view(Last).get("note/1", as_of=events // 2))
    print(f"  a full snapshot of {keys:,} keys in {made:.2f} s (target 3 s)")
    print(f"  opening from a snapshot is {replayed / opened:.1f} times as fast as replay (target 10 at 1,000,000)")


def fill(log: Log, start: int, count: int, keys: int) -> None:
    for first in range(start, start + count, BATCH):
        log.append_batch(
            [
                everlog.Draft(
                    type="note.added", stream=f"note/{number * 7919 % keys}", payload={"text": f"number {number}"}
                )
                for number in range(first, min(first + BATCH, start + count))
            ]
        )


def forget_states(log: Log) -> None:
    small_state = log.views.small_state
    with small_state.change() as change:
        for name in every_name(small_state):
            for build in builds_of(small_state, name):
                drop_build(change, build)
            change.put(VIEWS, {name: None})


def timed(what: str, work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    took = time.perf_counter() - begun
    print(f"  {what:28} {took:8.3f} s")
    return took


if __name__ == "__main__":
    main()
