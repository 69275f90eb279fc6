"""16 writers race guarded appends: in every round exactly the allowed events are recorded, and the rest is refused.

The writers are threads of one process or of four processes, and four of them share a handle on the log; a memory log
has one handle. Each round has two races: for one stream (approve or reject a command) and across streams (an
environment has one deploy at a time, and each writer requests its own).
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import everlog
from everlog.core.query import Query
from everlog.errors import RejectedEvent
from everlog.log.log import Log
from everlog.log.write.draft import Draft

WRITERS, HANDLES = 16, 4
SHARES = [tuple(range(first, WRITERS, HANDLES)) for first in range(HANDLES)]
SHORT, LONG = 25, 1_000
PLACE = "acme/shop/prod"
WAIT_S = 120
Wait = Callable[[], object]


def request(round: int, writer: int) -> Draft:
    return Draft("control.deploy.requested", f"deploy/d{round}-{writer}", {"artifact": "shop:1"}, "system", PLACE)


def decision(round: int, writer: int) -> Draft:
    if writer % 2:
        return Draft("agent.command.rejected", f"command/c{round}", {"reason": "no"}, f"user:{writer}")
    return Draft("agent.command.approved", f"command/c{round}", {}, f"user:{writer}")


def append(log: Log, draft: Draft) -> bool:
    """Return whether it was recorded; False if a rule refused it."""
    try:
        log.append_batch([draft])
    except RejectedEvent:
        return False
    return True


def write(log: Log, rounds: int, wait: Wait, writer: int) -> list[str]:
    """Take part in all rounds; return the streams on which this writer was successful."""
    won: list[str] = []
    for round in range(rounds):
        wait()
        drafts = (decision(round, writer), request(round, writer))
        won += [draft.stream for draft in drafts if append(log, draft)]
        wait()
        if won and won[-1] == request(round, writer).stream:  # it ends, so that the next round can begin
            log.append("control.deploy.failed", stream=won[-1], payload={"error": "x"}, actor="system", scope=PLACE)
    return won


def share(log: Log, rounds: int, wait: Wait, writers: Iterable[int]) -> list[str]:
    """Let some of the writers use one handle, each in a thread."""
    with ThreadPoolExecutor(WRITERS) as threads:
        return [one for won in threads.map(partial(write, log, rounds, wait), writers) for one in won]


def with_a_handle(url: str, rounds: int, wait: Wait, writers: Iterable[int]) -> list[str]:
    with everlog.open(url) as log:
        return share(log, rounds, wait, writers)


_here: dict[str, Any] = {}


def _receive(barrier: Any) -> None:
    _here["barrier"] = barrier


def _in_a_process(url: str, rounds: int, writers: tuple[int, ...]) -> list[str]:
    return with_a_handle(url, rounds, partial(_here["barrier"].wait, WAIT_S), writers)


def in_threads(url: str, rounds: int) -> list[str]:
    barrier = threading.Barrier(WRITERS)
    work = partial(with_a_handle, url, rounds, partial(barrier.wait, WAIT_S))
    with ThreadPoolExecutor(HANDLES) as threads:
        return [one for won in threads.map(work, SHARES) for one in won]


def in_processes(url: str, rounds: int) -> list[str]:
    context: Any = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WRITERS)
    with ProcessPoolExecutor(HANDLES, context, _receive, (barrier,)) as processes:
        works = [processes.submit(_in_a_process, url, rounds, writers) for writers in SHARES]
        return [one for work in works for one in work.result()]


def prepare(log: Log, rounds: int) -> int:
    """Record what the races are about; return the head."""
    proposal = {"agent_id": "builder", "tool_name": "pytest"}
    log.append("control.org.created", stream="org/acme", actor="system", scope="acme")
    log.append("control.app.created", stream="app/acme.shop", actor="system", scope="acme/shop")
    log.append("control.environment.created", stream="environment/acme.shop.prod", actor="system", scope=PLACE)
    log.append_batch(
        [Draft("agent.command.proposed", f"command/c{n}", proposal, "agent:builder") for n in range(rounds)]
    )
    return log.head()


def require_exactly_the_allowed_events(log: Log, rounds: int, before: int, won: list[str]) -> None:
    assert log.head() == before + 3 * rounds, "a decision, a deploy and its end in each round"
    kinds = {"agent.command.approved", "agent.command.rejected", "control.deploy.requested"}
    recorded = [one.event.stream for one in log.read(Query(types=frozenset(kinds)))]
    assert sorted(recorded) == sorted(won), "what a writer was told is what is on record"
    of_round = Counter(name.replace("deploy/d", "command/c").partition("-")[0] for name in recorded)
    assert of_round == {f"command/c{round}": 2 for round in range(rounds)}
    assert refused(log) == 2 * (WRITERS - 1) * rounds
    assert log.verify().ok


def refused(log: Log) -> int:
    """Count all refusals: of an actor, 100 per minute are kept in full, and beyond that they are counted."""
    many = {(one.actor, one.at): one.count for one in log.writer.refusals.left_out()}
    kept = [(one.actor, one.refused_at.replace(second=0, microsecond=0)) for one in log.refusals(limit=None)]
    return sum(many.values()) + sum(one not in many for one in kept)


@pytest.fixture(params=[SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(
        request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:{tmp_path / 'log.db'}"
    )


@pytest.mark.parametrize("writers", [in_threads, in_processes])
def test_of_many_writers_on_several_handles_exactly_the_allowed_events_are_recorded(
    url: str, writers: Callable[[str, int], list[str]], rounds: int
) -> None:
    with everlog.open(url) as log:
        before = prepare(log, rounds)
        require_exactly_the_allowed_events(log, rounds, before, writers(url, rounds))


def test_of_many_writers_on_one_handle_exactly_the_allowed_events_are_recorded(rounds: int) -> None:
    with everlog.open("memory:") as log:
        before = prepare(log, rounds)
        barrier = threading.Barrier(WRITERS)
        won = share(log, rounds, partial(barrier.wait, WAIT_S), range(WRITERS))
        require_exactly_the_allowed_events(log, rounds, before, won)
