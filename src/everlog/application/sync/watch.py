"""Sync again and again: each peer in its own thread, so that a slow or hostile one delays nobody.

After a sync that failed, the next one comes sooner than usual, and later with every further failure. Every pause
varies a little, so that nodes do not ask at the same moments.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from everlog.application.sync.peers import Peer
from everlog.errors import EverlogError
from everlog.sync.exchange import Synced

INTERVAL_S = 300.0
EMERGENCY_S = 30.0
_FIRST_PAUSE_S = 5.0
_LOOK_S = 5.0

Sync = Callable[[str], Synced]
Report = Callable[[str, "Synced | EverlogError"], None]


def pause_s(failures: int, *, emergency: bool, jitter: Callable[[], float] = random.random) -> float:
    """Return how long to wait after a sync, or after so many that failed one after the other."""
    usual = EMERGENCY_S if emergency else INTERVAL_S
    pause = usual if not failures else min(usual, _FIRST_PAUSE_S * 2.0 ** (failures - 1))
    return pause * (0.8 + 0.4 * jitter())


class Watch:
    """Syncs with peers until it is stopped. In an emergency, only with those that are near."""

    def __init__(
        self, peers: Callable[[], Sequence[Peer]], sync: Sync, report: Report, emergency: Callable[[], bool]
    ) -> None:
        self._peers = peers
        self._sync = sync
        self._report = report
        self._emergency = emergency
        self._stopped = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def run(self) -> None:
        """Start a thread for each peer, also for those that are added meanwhile; return when it is stopped."""
        while not self._stopped.is_set():
            for peer in self._wanted().values():
                thread = self._threads.get(peer.url)
                if thread is None or not thread.is_alive():
                    thread = threading.Thread(target=self._watch, args=(peer.url,), name="everlog-sync", daemon=True)
                    self._threads[peer.url] = thread
                    thread.start()
            self._stopped.wait(_LOOK_S)

    def stop(self) -> None:
        self._stopped.set()

    def _wanted(self) -> dict[str, Peer]:
        emergency = self._emergency()
        return {peer.url: peer for peer in self._peers() if peer.url and (peer.is_local or not emergency)}

    def _watch(self, url: str) -> None:
        failures = 0
        while not self._stopped.is_set() and url in self._wanted():
            try:
                self._report(url, self._sync(url))
                failures = 0
            except EverlogError as error:
                self._report(url, error)
                failures += 1
            self._stopped.wait(pause_s(failures, emergency=self._emergency()))


def sync_with_all(peers: Sequence[Peer], sync: Sync) -> dict[str, Synced | EverlogError]:
    """Sync once with each peer, all at the same time; return how each went."""
    found: dict[str, Synced | EverlogError] = {}

    def one(url: str) -> None:
        try:
            found[url] = sync(url)
        except EverlogError as error:
            found[url] = error

    threads = [threading.Thread(target=one, args=(peer.url,), daemon=True) for peer in peers if peer.url]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
