"""The peers of one run, and those that are not installed: an absent one is reported, never left out silently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.bench.events import Pool
from benchmarks.bench.ours import LARGE
from benchmarks.bench.rounds import Sample
from benchmarks.bench.umadb_peer import Uma, uma_server

EVENTSOURCING, UMADB = "eventsourcing", "UmaDB"
NAMES = (EVENTSOURCING, UMADB)
INSTALL = {EVENTSOURCING: "pip install 'everlog[peers]'", UMADB: "pip install umadb"}


class Peer(Protocol):
    def one_writer(self, count: int) -> Sample: ...

    def threads(self, threads: int, each: int) -> Sample: ...

    def batches(self, count: int, size: int) -> Sample: ...

    def read_all(self, events: int) -> Sample: ...


class Peers(NamedTuple):
    present: dict[str, Peer]
    absent: tuple[str, ...]


@contextmanager
def open_peers(folder: Path, pool: Pool, *, filled: int, progress: Callable[[str], None]) -> Iterator[Peers]:
    """Fill every peer that is installed with as many events as our logs have."""
    present: dict[str, Peer] = {}
    with uma_server(folder) as url:
        if url is not None:
            present[UMADB] = uma = Uma(url, pool)
            uma.batches(filled // LARGE + 1, LARGE)
        close: Callable[[], None] = lambda: None  # noqa: E731 - nothing to close if it is absent
        if find_spec("eventsourcing") is not None:
            from benchmarks.bench.eventsourcing_peer import EventSourcing

            present[EVENTSOURCING] = library = EventSourcing(folder / "peer.db", pool, filled=filled)
            close = library.close
        absent = tuple(name for name in NAMES if name not in present)
        for name in absent:
            progress(f"{name} is not installed and is not measured: {INSTALL[name]}")
        try:
            yield Peers(present, absent)
        finally:
            close()
