"""The same work in several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def at_once(*works: Callable[[], object]) -> None:
    """Do each in a thread of its own. What one of them raises is raised here, when all have ended."""
    with ThreadPoolExecutor(len(works)) as threads:
        started = [threads.submit(work) for work in works]
    for one in started:
        one.result()
