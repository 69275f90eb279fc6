"""Logs for the benchmarks on Spark: the same events in every store, made once and kept if a directory is named."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from benchmarks.bench.events import CATALOG, Pool

import everlog
from everlog.demo.postgres_server import NoServer, start_server
from everlog.transfer.copy import copy_log
from everlog.wiring import copy_target, open_store

BATCH = 1000
STREAMS_EACH = 20  # events a stream: 50,000 streams in a million


def log_of(directory: Path, kind: str, events: int, *, by_itself: bool = False) -> str:
    """The URL of a log with so many events; made if it is not there. By itself: nothing else has to hold the same."""
    path = directory / f"{kind}-{events}{'.db' if kind == 'sqlite' else ''}"
    url = f"{kind}:{path}"
    if path.exists():
        return url
    started = time.monotonic()
    if kind == "sqlite" or by_itself:
        _make(url, events)
    else:
        _copy(log_of(directory, "sqlite", events), url)
    print(f"made {url} in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return url


@contextmanager
def postgres_log(directory: Path, events: int) -> Iterator[str | None]:
    """The same log in a PostgreSQL of its own, which ends with the `with`; None if none can be started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    try:
        # By TCP: JDBC knows no Unix sockets, and both sides should come the same way.
        server = start_server(listen_addresses="127.0.0.1", port=port)
    except NoServer:
        yield None
        return
    with server:
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres?schema=everlog"
        _copy(log_of(directory, "sqlite", events), url)
        yield url


def _copy(source_url: str, url: str) -> None:
    source = open_store(source_url, base=Path(), create=False)
    try:
        copy_log(source, copy_target(url, base=Path()))
    finally:
        source.close()


def _make(url: str, events: int) -> None:
    pool, streams = Pool(10 * BATCH), max(events // STREAMS_EACH, 1)
    with everlog.open(url, catalog=CATALOG, actor="system") as log:
        for first in range(0, events, BATCH):
            drafts = pool.mixed(min(BATCH, events - first))
            log.append_batch(
                [
                    # A step that shares no factor with the number of streams: neighbours are of different ones.
                    msgspec.structs.replace(draft, stream=f"item/{(first + number) * 7919 % streams:06}")
                    for number, draft in enumerate(drafts)
                ]
            )
