"""The peer that a Python program would use instead: the library `eventsourcing` on SQLite, with its defaults.

Its defaults flush every save, as everlog does. It keeps domain objects and their versions, and has neither a hash
chain nor idempotency keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from benchmarks.bench.events import Pool
from benchmarks.bench.floors import require_count
from benchmarks.bench.ours import BATCH
from benchmarks.bench.rounds import Sample, timed, timed_each, timed_threads
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


class EventSourcing:
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
        """Each thread has its own aggregate: two that share one would be refused as a conflict."""
        works = [
            [partial(self._move_and_save, item, [move]) for move in arguments(self._pool.take(each))]
            for item in self._items[BATCH : BATCH + threads]
        ]
        return timed_threads(works)

    def batches(self, count: int, size: int) -> Sample:
        """Events of one aggregate in one save."""
        moves = [arguments(self._pool.take(size)) for _ in range(count)]
        return timed_each(size, [partial(self._move_and_save, self._next_item(), some) for some in moves])

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
