"""The peer UmaDB with its defaults: a server, reached over a socket, from the wheel that `pip install umadb` gets.

Its processor time and its context switches are its client's alone: what the server takes is not seen from here.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.bench.events import Pool
from benchmarks.bench.floors import require_count
from benchmarks.bench.ours import LARGE
from benchmarks.bench.rounds import Sample, timed, timed_each, timed_threads

from everlog.log.write.draft import Draft


class Uma:
    """UmaDB with its defaults: its own server, reached over a socket; the event as JSON, its stream as a tag."""

    def __init__(self, url: str, pool: Pool) -> None:
        import umadb

        self._umadb: Any = umadb
        self._url = url
        self._client: Any = umadb.Client(url, batch_size=LARGE)
        self._pool = pool
        self._encode = msgspec.json.Encoder().encode

    def one_writer(self, count: int) -> Sample:
        return self.batches(count, 1)

    def threads(self, threads: int, each: int) -> Sample:
        """Each thread has its own client."""
        works = []
        for _ in range(threads):
            client = self._umadb.Client(self._url)
            works.append([partial(client.append, [made]) for made in self._made(self._pool.take(each))])
        return timed_threads(works)

    def batches(self, count: int, size: int) -> Sample:
        works = [self._made(self._pool.take(size)) for _ in range(count)]
        return timed_each(size, [partial(self._client.append, events) for events in works])

    def read_all(self, events: int) -> Sample:
        decode = msgspec.json.Decoder().decode

        def work() -> None:
            found, reading = 0, self._client.read()
            while found < events and (batch := reading.next_batch()):
                for one in batch:
                    decode(one.event.data)
                    found += 1
            require_count(min(found, events), events)

        return timed(events, work)

    def _made(self, drafts: Sequence[Draft]) -> list[Any]:
        return [self._umadb.Event(draft.type, self._encode(draft), [draft.stream], uuid.uuid4()) for draft in drafts]


@contextmanager
def uma_server(folder: Path) -> Iterator[str | None]:
    """Run the server that is in the wheel of UmaDB; None if the wheel is not installed."""
    binary = Path(sys.executable).with_name("umadb")
    if find_spec("umadb") is None or not binary.exists():
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = folder / "uma"
    store.mkdir()
    server = subprocess.Popen(
        [str(binary), "--listen", f"127.0.0.1:{port}", "--db-path", str(store)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"the server of UmaDB does not listen on port {port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)
