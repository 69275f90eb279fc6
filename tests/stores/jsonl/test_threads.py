"""Threads that share one handle, while one of them replaces the index."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.stores.jsonl.own import own, texts

from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.small_state import read_note

QUESTIONS: dict[str, Callable[[JsonlStore], object]] = {
    "head": JsonlStore.head,
    "read": texts,
    "identity": lambda store: store.identity.origin,
    "purges": JsonlStore.purges,
    "chains": JsonlStore.chains,
    "a note": lambda store: read_note(store.small_state, "standing"),
    "slots": lambda store: len(list(store.slots())),
    "check": lambda store: list(store.check()),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_thread_that_reads_while_another_one_rebuilds_the_index_waits_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """It has seen that the index is up to date. When it asks the index, there is none for a moment."""
    store = JsonlStore(path)
    own(store, payload={"text": "one"})
    ask = QUESTIONS[question]
    wanted = ask(store)
    updater, gone = store._updater, threading.Event()
    refresh, build = updater.refresh, updater._build_index
    rebuilding = threading.Thread(target=store.rebuild_index)

    def overtaken() -> None:
        refresh()
        monkeypatch.setattr(updater, "refresh", refresh)  # once
        rebuilding.start()
        assert gone.wait(20)

    def late() -> None:
        gone.set()
        time.sleep(0.3)
        build()

    monkeypatch.setattr(updater, "refresh", overtaken)
    monkeypatch.setattr(updater, "_build_index", late)
    assert ask(store) == wanted
    assert gone.is_set()
    rebuilding.join(20)
    store.close()
