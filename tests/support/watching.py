"""A process that only reads, beside writers that are killed: a cursor that pages, a subscriber and a live view.

Each of them writes down what it sees, up to the event whose text is END. The live view is compared with a fold of the
log all the way, and waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from everlog.core.event import Recorded
from everlog.core.query import Reset
from everlog.log.log import Log
from everlog.views.builtin import Actors
from everlog.views.fold import fold_all

END = "end"
PAGE = 3  # less than a batch, so that most pages end before the head
VIEW = Actors
KEY = "system"
PATIENCE_S = 120.0
PAUSE_S = 0.02
WAIT_FOR_S = 30.0


class Watched(msgspec.Struct):
    """What the readers of one process saw, in the order in which they saw it."""

    paged: list[Recorded]
    subscribed: list[Recorded]
    looks: int  # at the live view while it was behind or up to date, each compared with a fold
    waits: int  # for the live view, each compared with a fold


def watch(log: Log) -> Watched:
    """Read until END was seen by all. `log` keeps VIEW with a thread of its own."""
    with ThreadPoolExecutor(3) as threads:
        subscribed = threads.submit(_subscribe, log)
        seen = threads.submit(_look_at_view, log, subscribed.done)
        paged = threads.submit(_page, log)
        looks, waits = seen.result(PATIENCE_S)
        return Watched(paged.result(PATIENCE_S), subscribed.result(PATIENCE_S), looks, waits)


def _page(log: Log) -> list[Recorded]:
    found: list[Recorded] = []
    cursor, end = "0", time.monotonic() + PATIENCE_S
    while not _is_over(found):
        assert time.monotonic() < end, f"END was not seen after {len(found)} events"
        page = log.page_after(cursor, limit=PAGE)
        assert page.reset is None, page.reset
        found += page.events
        cursor = str(page.next_cursor)
        if page.at_head:
            time.sleep(PAUSE_S)
    return found


def _subscribe(log: Log) -> list[Recorded]:
    found: list[Recorded] = []
    end = time.monotonic() + PATIENCE_S
    for item in log.subscribe(stop=lambda: _is_over(found) or time.monotonic() > end):
        assert not isinstance(item, Reset), item
        found.append(item)
        if _is_over(found):
            break
    assert _is_over(found), f"END was not seen after {len(found)} events"
    return found


def _look_at_view(log: Log, is_over: Callable[[], bool]) -> tuple[int, int]:
    looks = waits = 0
    over = False
    while not over:
        over = is_over()  # then once more, with everything in it
        least = 0
        if over or looks % 2:
            least = log.head()
            log.wait_for(VIEW.name, least, WAIT_FOR_S)
            waits += 1
        answer = log.view(VIEW.name).get(KEY, fresh=False)
        wanted = fold_all(VIEW(), log._store.read(upto=answer.position), upcast=log.catalog.upcast).get(KEY)
        assert answer.position >= least, (answer, least)
        assert answer.state == wanted, (answer, wanted)
        looks += 1
        time.sleep(PAUSE_S)
    return looks, waits


def _is_over(found: list[Recorded]) -> bool:
    return bool(found) and found[-1].event.payload["text"] == END
