"""Pages of 1,000 events over HTTP from 4 clients, against `page_after` in process: a part of `everlog bench http`.

Every client reads the whole log, page by page; the rate is that of all of them. The server keeps the texts of recent
records, so its first pass over a log (cold) is measured apart from the later ones. Rounds are interleaved.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from statistics import median

from benchmarks.http_streams import UNLIMITED, Server, serving
from benchmarks.rows import Row, Setup

import everlog
from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.log.write.draft import Draft

STORES = ("sqlite", "jsonl", "segments")
CLIENTS, PAGE, MUST = 4, 1_000, 0.7


def fill(log: Log, events: int) -> None:
    for start in range(0, events, PAGE):
        log.append_batch(
            [
                Draft("note.added", f"note/{n % 50}", {"text": f"the text of note {n}, with words as most have " * 2})
                for n in range(start, min(start + PAGE, events))
            ]
        )


def in_process(log: Log) -> float:
    """Return the events per second of one reader."""
    began, cursor, count = time.perf_counter(), Cursor(), 0
    while True:
        page = log.page_after(cursor, limit=PAGE)
        count, cursor = count + len(page.events), page.next_cursor
        if page.at_head:
            return count / (time.perf_counter() - began)


def over_http(server: Server, events: int) -> float:
    """Return the events per second of all clients together."""
    ready = threading.Barrier(CLIENTS + 1)
    threads = [threading.Thread(target=_read_all, args=(server, events, ready)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return CLIENTS * events / (time.perf_counter() - began)


def _read_all(server: Server, events: int, ready: threading.Barrier) -> None:
    cursor, position, held = "0", 0, bytearray(4 * 1024 * 1024)
    with socket.create_connection(("127.0.0.1", server.port)) as made:
        ready.wait()
        while position < events:
            made.sendall(server.request(f"/v1/events?after={cursor}&limit={PAGE}"))
            got, end = 0, 0
            while not end or got < end:
                got += made.recv_into(memoryview(held)[got:])
                if not end and (head := held.find(b"\r\n\r\n", 0, got)) > 0:
                    end = (
                        head + 4 + int(bytes(held[:head]).lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    )
            last = bytes(held[max(0, got - 400) : got])
            cursor = last.rpartition(b'"next":"')[2].partition(b'"')[0].decode()
            position = int(cursor.partition("@")[0])


def rows(setup: Setup) -> Iterator[Row]:
    events = 5_000 if setup.quick else 50_000
    for store in STORES:
        setup.progress(f"pages: {events:,} events, {store}")
        with serving(setup.directory, store=store, environment=UNLIMITED) as server:
            with everlog.open(server.url_of_log, actor="service:bench") as log:
                fill(log, events)
                here, there = [in_process(log)], [over_http(server, events)]
                for _ in range(setup.rounds):
                    here.append(in_process(log))
                    there.append(over_http(server, events))
            ratios = [over / inside for over, inside in zip(there, here, strict=True)]
            note = f"{median(there[1:]):,.0f} against {median(here[1:]):,.0f} events/s, {events:,} events"
            name = f"pages of {PAGE} from {CLIENTS} clients / in process"
            yield Row(f"{name}, first time", store, ratios[0], "")
            yield Row(name, store, median(ratios[1:]), "", MUST, at_most=False, note=note)
