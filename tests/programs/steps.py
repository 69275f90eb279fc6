"""Random work in a domain, for the proof that its views always equal the fold of its events.

A domain's tests have a module `random_work` with a function `step(log, chance)`: do one thing that a user might do,
often one that will be refused. A refusal is an EverlogError, and fine; anything else is a bug.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module

from everlog.errors import EverlogError
from everlog.log.log import Log

Step = Callable[[Log, random.Random], None]


def step_of(domain: str) -> Step:
    found: Step = import_module(f"tests.programs.{domain}.random_work").step
    return found


def work(log: Log, domain: str, *, seed: int, steps: int) -> int:
    """Do so many steps; how many were refused."""
    step, chance, refused = step_of(domain), random.Random(seed), 0
    for _ in range(steps):
        try:
            step(log, chance)
        except EverlogError:
            refused += 1
    return refused
