"""A log whose store reports the commits of other processes listens as soon as somebody waits, and once."""

from __future__ import annotations

from collections.abc import Callable

from tests.conftest import CATALOG

from everlog.log.log import Log
from everlog.stores.memory import MemoryStore


class Reporting(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.callbacks: list[Callable[[], None]] = []

    def watch(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


def test_who_follows_is_woken_by_the_commit_of_another_process() -> None:
    store = Reporting()
    log = Log(store, CATALOG)
    log.subscribe(to_end=True)
    assert store.callbacks == [], "who reads to the end waits for nobody"
    log.subscribe()
    (report,) = store.callbacks
    before = log.writer.waiters.commits
    report()
    assert log.writer.waiters.commits == before + 1
    log.subscribe()
    assert store.callbacks == [report], "it listens once"


def test_who_waits_in_its_own_way_is_woken_too() -> None:
    store = Reporting()
    waiters = Log(store, CATALOG).writer.waiters
    (report,) = store.callbacks
    before = waiters.commits
    report()
    assert waiters.commits == before + 1
