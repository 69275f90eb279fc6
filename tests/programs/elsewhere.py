"""A log elsewhere that applies no rules: what it recorded can only be admitted here."""

from __future__ import annotations

from everlog import programs
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore


def lawless(program: str, *, actor: str) -> Log:
    """Return a log that knows the types of a program, and has no guard."""
    return Log(MemoryStore(), programs.load(program).types, actor=actor)
