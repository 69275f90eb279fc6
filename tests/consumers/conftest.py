"""Logs with consumers, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everlog
from everlog.log.log import Log

MANY_PROCESSES = ("sqlite", "jsonl", "postgres")


def url_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind == "postgres":
        found: str = request.getfixturevalue("postgres_url")
        return found
    return {
        "memory": "memory:",
        "sqlite": f"sqlite:{folder}/log.db",
        "jsonl": f"jsonl:{folder}/log",
        "segments": f"segments:{folder}/log",
    }[kind]


@pytest.fixture(params=["memory", *MANY_PROCESSES, "segments"])
def any_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    with everlog.open(url_of(request.param, tmp_path, request)) as log:
        yield log


@pytest.fixture(params=MANY_PROCESSES)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path, request)


@pytest.fixture
def memory_log() -> Iterator[Log]:
    with everlog.open("memory:") as log:
        yield log
