"""everlog beside the library that a Python program would use instead: `eventsourcing` on SQLite.

    pip install 'everlog[peers]'
    python -m benchmarks.peers [--rounds 5] [--quick] [--directory DIR] [--json]

Floor, everlog and the peer take turns in every round of one run. See benchmarks/README.md for what is compared, and
what is not.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from benchmarks.bench.directory import choose_directory
from benchmarks.bench.events import Pool
from benchmarks.bench.floors import DiskFloor, RowsFloor, require_count
from benchmarks.bench.ours import BATCH, Ours
from benchmarks.bench.rounds import Contest, Rounds, Sample, Spread, interleave, ratio, timed, timed_each
from benchmarks.bench.run import FULL, QUICK, Sizes
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from everlog.log.write.draft import Draft

THREADS = 8


class Item(Aggregate):
    """The subject of a stream, written as that library wants it."""

    @event("Opened")
    def __init__(self, code: str) -> None:
        self.code = code
        self.lane = "planned"

    @event("Moved")
    def move(
        self,
        feature: str,
        came_from: str,
        went_to: str,
        reason: str,
        actor: str,
        causation_id: str,
        correlation_id: str,
    ) -> None:
        self.lane = went_to


class Items(Application[UUID]):
    log_section_size = 1000  # events in a page of the log; the default of 10 would make reading look slow


class Peer:
    """An application of that library with its default transcoder and its default (durable) SQLite settings."""

    def __init__(self, path: Path, pool: Pool, *, filled: int) -> None:
        settings = {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(path),
            "SQLITE_LOCK_TIMEOUT": "60",
        }
        self._app = Items(env=settings)
        self._pool = pool
        self._items = [Item(code=f"item-{number}") for number in range(BATCH + THREADS)]
        self._app.save(*self._items)
        for number in range((filled - len(self._items)) // BATCH):
            self._move_and_save(self._items[number % BATCH], arguments(pool.take(BATCH)))
        self._turn = 0

    def one_writer(self, count: int) -> Sample:
        moves = arguments(self._pool.take(count))
        return timed_each(1, [partial(self._move_and_save, self._next_item(), [move]) for move in moves])

    def threads(self, threads: int, each: int) -> Sample:
        """Each thread has an aggregate of its own: two that share one would be refused as a conflict."""
        barrier = threading.Barrier(threads + 1)
        failures: list[BaseException] = []

        def run(item: Item, moves: Sequence[dict[str, str]]) -> None:
            barrier.wait()
            try:
                for move in moves:
                    self._move_and_save(item, [move])
            except BaseException as error:
                failures.append(error)
                raise

        started = [
            threading.Thread(target=run, args=(item, arguments(self._pool.take(each))))
            for item in self._items[BATCH : BATCH + threads]
        ]
        for thread in started:
            thread.start()

        def wait() -> None:
            barrier.wait()
            for thread in started:
                thread.join()

        sample = timed(threads * each, wait)
        if failures:
            raise failures[0]
        return sample

    def batches(self, count: int) -> Sample:
        """A hundred events of one aggregate in one save."""
        requests = [
            partial(self._move_and_save, self._next_item(), arguments(self._pool.take(BATCH))) for _ in range(count)
        ]
        return timed_each(BATCH, requests)

    def read_all(self, events: int) -> Sample:
        """Notifications in order, each as the domain event that it carries."""

        def work() -> None:
            found = 0
            while found < events:
                page = self._app.notification_log.select(start=found + 1, limit=min(1000, events - found))
                for notification in page:
                    self._app.mapper.to_domain_event(notification)
                if not page:
                    break
                found += len(page)
            require_count(found, events)

        return timed(events, work)

    def close(self) -> None:
        self._app.close()

    def _next_item(self) -> Item:
        self._turn += 1
        return self._items[self._turn % BATCH]

    def _move_and_save(self, item: Item, moves: Sequence[dict[str, str]]) -> None:
        for move in moves:
            item.move(**move)
        self._app.save(item)


class Figure(NamedTuple):
    name: str
    ours_to_peer: Spread
    ours_to_floor: Spread
    peer_to_floor: Spread
    target: float | None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.ours_to_peer.middle >= self.target


# Only where the store decides. With one event a flush both sides wait for the same disk.
TARGETS: dict[str, float | None] = {
    "one writer": None,
    "8 threads": None,
    "batch of 100 of one stream": 2.5,
    "read everything": None,
}


def arguments(drafts: Sequence[Draft]) -> list[dict[str, str]]:
    """The same facts as the arguments of the peer's method."""
    return [
        {
            **draft.payload,
            "actor": draft.actor,
            "causation_id": draft.causation_id,
            "correlation_id": draft.correlation_id,
        }
        for draft in drafts
    ]


def compare(sizes: Sizes, *, rounds: int, directory: Path | None, progress: Callable[[str], None]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="everlog-peers-", dir=choose_directory(directory)) as name:
        here = Path(name)
        pool = Pool(sizes.pool)
        disk = DiskFloor(here / "floor")
        ours = Ours(here / "log.db", pool, filled=sizes.filled)
        peer = Peer(here / "peer.db", pool, filled=sizes.filled)
        rows = RowsFloor(here / "rows.db", ours.filling())
        gc.collect()
        gc.freeze()
        read = sizes.filled - 2 * BATCH  # what both surely hold
        one, threads, batch, everything = TARGETS
        contests = [
            Contest(
                one,
                {
                    "floor": lambda: disk.writes(sizes.one_writer),
                    "ours": lambda: ours.one_writer(sizes.one_writer),
                    "peer": lambda: peer.one_writer(sizes.one_writer),
                },
            ),
            Contest(
                threads,
                {
                    "floor": lambda: disk.writes(sizes.one_writer),
                    "ours": lambda: ours.threads(THREADS, sizes.each_thread),
                    "peer": lambda: peer.threads(THREADS, sizes.each_thread),
                },
            ),
            Contest(
                batch,
                {
                    "floor": lambda: disk.writes(sizes.batches, records_each=BATCH),
                    "ours": lambda: ours.batches(sizes.batches, one_stream=True),
                    "peer": lambda: peer.batches(sizes.batches),
                },
            ),
            Contest(
                everything,
                {
                    "floor": lambda: rows.read_all(read),
                    "ours": lambda: ours.read_all(read),
                    "peer": lambda: peer.read_all(read),
                },
            ),
        ]
        try:
            results = interleave(contests, rounds=rounds, progress=progress)
        finally:
            gc.unfreeze()
            rows.close()
            peer.close()
            ours.close()
            disk.close()
    return [figure(name, found) for name, found in results.items()]


def figure(name: str, rounds: Rounds) -> Figure:
    return Figure(
        name,
        ratio(rounds, "ours", "peer"),
        ratio(rounds, "ours", "floor"),
        ratio(rounds, "peer", "floor"),
        TARGETS[name],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure everlog against the eventsourcing library on SQLite.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes; a look, not a measurement")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; on a disk")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    given = parser.parse_args()

    def progress(said: str) -> None:
        print(said, file=sys.stderr)

    figures = compare(
        QUICK if given.quick else FULL, rounds=given.rounds, directory=given.directory, progress=progress
    )
    if given.json:
        print(json.dumps([found._asdict() for found in figures]))
    else:
        print(f"{'':28} {'ours / peer':>22} {'target':>7} {'ours / floor':>22} {'peer / floor':>22}")
        for found in figures:
            spreads = [found.ours_to_peer, found.ours_to_floor, found.peer_to_floor]
            texts = [f"{middle:.2f} ({low:.2f} to {high:.2f})" for middle, low, high in spreads]
            verdict = {True: "", False: "  MISSED", None: ""}[found.met]
            target = "" if found.target is None else f"{found.target:.1f}"
            print(f"{found.name:28} {texts[0]:>22} {target:>7} {texts[1]:>22} {texts[2]:>22}{verdict}")
    return 0 if all(found.met is not False for found in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
