"""Saying things to a log, and what a view of all that was said must be: for the tests of views."""

from __future__ import annotations

from typing import Any

from everlog.core.query import EVERYTHING
from everlog.log.log import Log
from everlog.views.fold import fold_all
from everlog.views.view import View, digest


def say(log: Log, value: Any, *, stream: str = "thing/1", actor: str = "user:ada", scope: str = "") -> int:
    recorded = log.append("thing.said", stream=stream, payload={"value": value}, actor=actor, scope=scope)
    return recorded.position


def from_nothing(log: Log, view: type[View]) -> str:
    return digest(fold_all(view(), log._store.read(EVERYTHING), upcast=log.catalog.upcast).items())
