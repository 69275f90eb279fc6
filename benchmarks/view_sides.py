"""What is measured of views: ours through the whole product, the floor, and the peers doing the same fold.

A replay here is what a user gets from `catch_up` of a view that has no states yet: every event is read (on segments
under its hash), brought up to the latest version of its type, folded, and the states are kept with the cursor.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.bench.events import CATALOG, Pool
from benchmarks.bench.eventsourcing_peer import EventSourcing
from benchmarks.bench.floors import require_count
from benchmarks.bench.rounds import Sample, timed
from benchmarks.bench.umadb_peer import Uma

from everlog import wiring
from everlog.core.event import Event, whole
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.views.builds.build import VIEWS, builds_of, drop_build, every_name
from everlog.views.view import View

FILL_BATCH = 250
STREAM_EVENTS = 100
ALIVE = 100  # streams that are written to at a time
SPREAD = "item/spread"


class Lanes(View):
    """Where everything stands: a state a stream, and as little work of its own as a view can have."""

    name = "lanes"

    def initial(self) -> str:
        return "planned"

    def apply(self, state: str, event: Event) -> str:
        lane: str = event.payload["went_to"]
        return lane


class LanesToo(Lanes):
    """The same under another name, for a second process."""

    name = "lanes-too"


# ---- logs to measure on


def fill(
    log: Log, events: int, streams: Callable[[int], str], progress: Callable[[str], None], *, batch: int = FILL_BATCH
) -> None:
    """Events in batches of 250, a busy writer's group; `streams` says which stream the event at a place is of."""
    pool, have, said = Pool(2_000), int(log.head()), 0
    while have < events:
        number = min(batch, events - have)
        log.append_batch([_on(draft, streams(have + place)) for place, draft in enumerate(pool.take(number))])
        have += number
        if have - said >= 1_000_000:
            said = have
            progress(f"{have:,} of {events:,} events")


def _on(draft: Draft, stream: str) -> Draft:
    return Draft(
        type=draft.type,
        stream=stream,
        payload=draft.payload,
        actor=draft.actor,
        causation_id=draft.causation_id,
        correlation_id=draft.correlation_id,
    )


def round_robin(streams: int) -> Callable[[int], str]:
    return lambda place: f"item/{place * 7919 % streams:06}"


def generations(events: int) -> Callable[[int], str]:
    """Streams of a hundred events: most live for ten thousand positions, one lives as long as the log."""
    every = max(1, events // STREAM_EVENTS)

    def stream(place: int) -> str:
        if place % every == every // 2:
            return SPREAD
        return f"item/{place // (ALIVE * STREAM_EVENTS):05}-{place % ALIVE:02}"

    return stream


def some_streams(events: int, count: int) -> list[str]:
    """Streams that lived all along the log, none of them twice."""
    last = max(1, events // (ALIVE * STREAM_EVENTS))
    return [f"item/{number * last // count:05}-{number * 37 % ALIVE:02}" for number in range(count)]


# ---- replaying


def replay(log: Log, events: int, view: type[View] = Lanes) -> Sample:
    """The whole log through a view that has no states yet."""
    forget_states(log)
    handle = log.view(view)

    def work() -> None:
        require_count(int(handle.catch_up()), events)

    return timed(events, work)


def forget_states(log: Log) -> None:
    small_state = log.views.small_state
    with small_state.change() as change:
        for name in every_name(small_state):
            for build in builds_of(small_state, name):
                drop_build(change, build)
            change.put(VIEWS, {name: None})


class BareDecode:
    """MessagePack bodies in memory, decoded into the same structs, and nothing else."""

    def __init__(self, records: Iterator[Any]) -> None:
        encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Event).decode
        self._bodies = [encode(whole(recorded.event)) for recorded in records]

    def read_all(self) -> Sample:
        def work() -> None:
            for body in self._bodies:
                self._decode(body)

        return timed(len(self._bodies), work)


class FoldingPeer(EventSourcing):
    """`eventsourcing`: its notifications as domain events, and the same fold over them."""

    def fold(self, events: int) -> Sample:
        def work() -> None:
            found, lanes = 0, dict[Any, str]()
            while found < events:
                page = self._app.notification_log.select(start=found + 1, limit=min(1000, events - found))
                for notification in page:
                    happened: Any = self._app.mapper.to_domain_event(notification)
                    lanes[happened.originator_id] = getattr(happened, "went_to", "planned")
                if not page:
                    break
                found += len(page)
            require_count(found, events)

        return timed(events, work)


class FoldingUma(Uma):
    """UmaDB: its events with their JSON decoded, and the same fold over them."""

    def fold(self, events: int) -> Sample:
        decode = msgspec.json.Decoder().decode

        def work() -> None:
            found, lanes, reading = 0, dict[str, str](), self._client.read()
            while found < events and (batch := reading.next_batch()):
                for one in batch:
                    said = decode(one.event.data)
                    lanes[said["stream"]] = said["payload"]["went_to"]
                    found += 1
            if found < events:
                raise AssertionError(f"UmaDB has {found} events where {events} were to be read")

        return timed(events, work)


def replay_in(url: str, processes: int, times: int) -> Sample:
    """Two views replayed `times` times each: by one process one after the other, or by two side by side."""
    views: Sequence[Sequence[type[View]]] = [[Lanes, LanesToo]] if processes == 1 else [[Lanes], [LanesToo]]
    barrier = multiprocessing.Barrier(processes + 1)
    workers = [multiprocessing.Process(target=_replay, args=(url, mine, times, barrier)) for mine in views]
    for worker in workers:
        worker.start()
    barrier.wait()
    started = time.perf_counter()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - started
    if any(worker.exitcode for worker in workers):
        raise AssertionError("a process that replays failed")
    return Sample(2 * times / took)


def _replay(url: str, views: Sequence[type[View]], times: int, barrier: Any) -> None:
    with wiring.open(url, catalog=CATALOG, create=False) as log:
        barrier.wait()
        for _ in range(times):
            for view in views:
                log.view(view).rebuild(fresh=True)


# ---- one stream


def status_ms(log: Log, stream: str) -> float:
    """The status of a stream from its events alone, as `everlog state` answers it."""
    started = time.perf_counter()
    answer = log.view("fields").get(stream, as_of=int(log.head()))
    took = (time.perf_counter() - started) * 1000
    if answer.state is None:
        raise AssertionError(f"{stream} has no state")
    return took


# ---- memory


def peak_mb(url: str) -> tuple[float, float]:
    """What a process of its own takes at most while it replays a log, and what it takes before it begins."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.view_sides", url],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    before, peak = done.stdout.split()
    return float(peak), float(before)


def _replay_and_tell(url: str) -> None:
    def peak() -> float:
        # Not ru_maxrss, which also knows what the process had that started this one.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

    with wiring.open(url, catalog=CATALOG, create=False) as log:
        forget_states(log)
        before = peak()
        log.view(Lanes).catch_up()
        print(f"{before:.0f} {peak():.0f}")


if __name__ == "__main__":
    _replay_and_tell(sys.argv[1])
