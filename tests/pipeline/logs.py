"""Logs in every kind of store, by URL, for the tests of what reads them with Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.conftest import CATALOG

import everlog
from everlog import Draft, Log
from everlog.core.event import Recorded

KINDS = ("sqlite", "jsonl", "segments")


def url_in(folder: Path, kind: str) -> str:
    return f"{kind}:{folder / kind}" + (".db" if kind == "sqlite" else "")


def open_log(url: str) -> Log:
    return everlog.open(url, catalog=CATALOG, actor="user:ada")


def add(log: Log, count: int, *, first: int = 0) -> list[Recorded]:
    """Events of two types on seven streams, with every kind of value that JSON has, in writes of different sizes."""
    drafts = [_draft(number) for number in range(first, first + count)]
    made: list[Recorded] = []
    while drafts:
        size = 1 + len(made) % 40
        some, drafts = drafts[:size], drafts[size:]
        made += log.append_batch(some)
    return made


VALUES: tuple[Any, ...] = (None, True, 0, -1, 2**53 - 1, 1.5, -0.0, 1e-7, 100.0, "", 'ü ☃ 𝄞 \u0000 \\ " \n', [], {})


def _draft(number: int) -> Draft:
    value = VALUES[number % len(VALUES)]
    payload = {"value": {"number": number, "é": value, "list": [value, [number]]}}
    return Draft(
        "note.added" if number % 5 == 0 else "thing.said",
        f"{'note' if number % 2 else 'thing'}/{number % 7}",
        {"text": f"note {number}"} if number % 5 == 0 else payload,
        scope=("", "acme", "acme/shop", "acmecorp")[number % 4],
        occurred_at=datetime(2020, 1, 1, number % 24, microsecond=number % 3, tzinfo=UTC),
        correlation_id=f"c{number % 3}" if number % 3 else "",
        tags={"b": "2", "a": "ü"} if number % 11 == 0 else {},
    )
