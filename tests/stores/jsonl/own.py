"""What the tests of the JSONL store do again and again."""

from __future__ import annotations

from pathlib import Path

from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import stamped


class Clock:
    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.us


def own(store: JsonlStore, stream: str = "note/1", **fields: object) -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin, stream=stream, **fields)], fresh=True)


def texts(store: JsonlStore) -> list[str]:
    return [recorded.event.payload["text"] for recorded in store.read()]


def day_files(path: Path) -> list[Path]:
    return sorted((path / "events").iterdir())


def codes(store: JsonlStore) -> list[str]:
    return [problem.code for problem in store.check()]
