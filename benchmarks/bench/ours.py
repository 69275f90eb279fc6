"""everlog itself at work, with everything on: validation, canonical form, hashing, chain, idempotency, flush."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.bench.events import CATALOG, Pool, chunks, fields
from benchmarks.bench.floors import require_count
from benchmarks.bench.rounds import Meter, Sample, timed, timed_each, timed_threads
from msgspec.structs import replace

from everlog import aio, wiring
from everlog.core.event import Event, whole
from everlog.core.query import EVERYTHING, Cursor, Query
from everlog.log.log import Log
from everlog.log.read.pages import PAGE_LIMIT
from everlog.log.write.draft import Draft

BATCH = 100
LARGE = 1000
READ_STREAM = "item/read"


class Ours:
    """One log, filled beforehand: an empty one would flatter the appends."""

    def __init__(self, path: Path, pool: Pool, *, filled: int, scheme: str = "sqlite") -> None:
        self.path = path
        self.log = wiring.open(f"{scheme}:{path}", catalog=CATALOG)
        self._pool = pool
        self._filled = filled
        self.log.append_batch(pool.on_one_stream(BATCH, READ_STREAM))
        for drafts in chunks(pool.mixed(filled - BATCH), LARGE):
            self.log.append_batch(drafts)
        self.log.close()  # an open SQLite log has a write-ahead log beside it, whatever its size
        self.bytes_per_event = bytes_below(path) / filled
        self.log = wiring.open(f"{scheme}:{path}", catalog=CATALOG)

    def filling(self) -> list[Event]:
        """What was in the log before anything was measured."""
        return [whole(recorded.event) for recorded in self.log.read(limit=self._filled)]

    def one_writer(self, count: int) -> Sample:
        drafts = self._pool.take(count)
        return timed_each(1, [partial(self._append, draft, self._pool.key()) for draft in drafts])

    def threads(self, threads: int, each: int) -> Sample:
        """Threads that append one event at a time, each to streams of others as well."""
        works = [
            [partial(self._append, draft, self._pool.key()) for draft in self._pool.take(each)]
            for _ in range(threads)
        ]
        return timed_threads(works)

    def tasks(self, tasks: int, each: int) -> Sample:
        """Tasks of one event loop that append one event at a time."""
        work = [[(draft, self._pool.key()) for draft in self._pool.take(each)] for _ in range(tasks)]

        async def run(mine: Sequence[tuple[Draft, str]]) -> None:
            for draft, key in mine:
                await aio.append(self.log, draft.type, key=key, **fields(draft))

        async def run_all() -> Sample:
            meter = Meter()
            await asyncio.gather(*[run(mine) for mine in work])
            return meter.sample(tasks * each)

        return asyncio.run(run_all())

    def batches(self, count: int, *, one_stream: bool) -> Sample:
        """Whole batches, one after the other, each with an idempotency key."""
        return batches(self.log, self._pool, count, one_stream=one_stream)

    def large_batches(self, count: int) -> Sample:
        requests = [
            partial(self.log.append_batch, self._pool.take(LARGE), key=self._pool.key()) for _ in range(count)
        ]
        return timed_each(LARGE, requests)

    def by_id(self, positions: Sequence[int]) -> Sample:
        """Read single events by their ids, in an order that no cache of neighbours helps."""
        ids = [next(iter(self.log.read(after=position - 1, limit=1))).event.id for position in positions]
        Random(5).shuffle(ids)
        return timed_each(1, [partial(self.log.get, event_id) for event_id in ids])

    def batches_never_seen(self, count: int) -> Sample:
        """The same, but nothing that these batches say was ever said before."""
        pool = self._pool
        made = [pool.never_seen(BATCH) for _ in range(count)]
        return timed_each(BATCH, [partial(self.log.append_batch, drafts, key=pool.key()) for drafts in made])

    def read_all(self, events: int) -> Sample:
        return self._read(EVERYTHING, events)

    def read_to_head(self) -> Sample:
        return self._read(EVERYTHING, int(self.log.head()))

    def read_stream(self, events: int, *, times: int) -> Sample:
        return self._read(Query(stream=READ_STREAM), events, times=times)

    def read_type(self, type: str, events: int, *, times: int) -> Sample:
        return self._read(Query(types=frozenset([type])), events, times=times)

    def pages(self, *, times: int, checked: bool) -> Sample:
        """All pages of the filling that begin at a cursor, with the check of the cursor's proof or without it."""
        cursors: list[Cursor] = []
        page = self.log.page_after()
        while page.next_cursor.position < self._filled - PAGE_LIMIT:
            cursors.append(page.next_cursor if checked else replace(page.next_cursor, proof=""))
            page = self.log.page_after(page.next_cursor)
        return timed_each(PAGE_LIMIT, [partial(self.log.page_after, cursor) for cursor in cursors * times])

    def verify(self) -> Sample:
        """Everything that is in the log by now. A log that does not verify makes every other figure worthless."""
        events = int(self.log.head())

        def work() -> None:
            report = self.log.verify()
            if not report.ok:
                raise AssertionError(f"the log of the benchmark does not verify: {report.problems[0]}")

        return timed(events, work)

    def close(self) -> None:
        self.log.close()

    def _append(self, draft: Draft, key: str) -> None:
        self.log.append(draft.type, key=key, **fields(draft))

    def _read(self, query: Query, events: int, *, times: int = 1) -> Sample:
        def work() -> None:
            found = 0
            for _ in self.log.read(query, limit=events):
                found += 1
            require_count(found, events)

        return timed_each(events, [work] * times)


def batches_in_memory(pool: Pool, count: int) -> Sample:
    """The same batches without a disk: what the rules cost alone."""
    log = wiring.open("memory:", catalog=CATALOG)
    try:
        return batches(log, pool, count, one_stream=True)
    finally:
        log.close()


def batches(log: Log, pool: Pool, count: int, *, one_stream: bool) -> Sample:
    requests = []
    for number in range(count):
        stream = f"item/batch-{number % 10}"
        drafts = pool.on_one_stream(BATCH, stream) if one_stream else pool.on_streams_of_their_own(BATCH)
        requests.append(partial(log.append_batch, drafts, key=pool.key()))
    return timed_each(BATCH, requests)


def bytes_below(path: Path) -> int:
    """Return the size of a log: of its folder, or of its file with what SQLite keeps beside it."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(path.name + "*")
    return sum(file.stat().st_size for file in files if file.is_file())
