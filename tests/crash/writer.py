"""What a victim does: it appends, and tells what was acknowledged right after each append returned.

A kill can therefore only lose acknowledgements, never invent them. Of every three appends one is a batch of three.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import everlog
from everlog.catalog.builtin import BUILT_IN
from everlog.errors import EverlogError
from everlog.stores.segments.store import SegmentsStore

READY = b"ready\n"
SEGMENT_BYTES_MAX = 16_000


def append_events(
    url: str, count: int, name: str, tell: Callable[[bytes], None], *, stop_after: int = -1, insist: bool = False
) -> None:
    """Append `count` times to the log of a URL; `tell` gets a line for every acknowledged event.

    `stop_after` so many appends the process stops itself, as by Ctrl-Z, until somebody wakes it. One who
    `insist`s goes on with the next event when one was refused, and gives up at the end.
    """
    with _opened(url, f"agent:{name}") as log:
        tell(READY)
        refused: EverlogError | None = None
        for number in range(count):
            if number == stop_after:
                os.kill(os.getpid(), signal.SIGSTOP)
            try:
                records = _append(log, name, number)
            except EverlogError as error:
                if not insist:
                    raise
                refused = error
                continue
            for recorded in records:
                tell(f"{recorded.position} {recorded.event.id} {recorded.event.payload['text']}\n".encode())
        if refused is not None:
            raise refused


def _append(log: everlog.Log, name: str, number: int) -> Sequence[everlog.Recorded]:
    text = f"{name} {number}"
    if number % 3 != 2:
        return [log.append("note.added", stream=f"note/{name}", payload={"text": text})]
    batch = [
        everlog.Draft(type="note.added", stream=f"note/{name}-{part}", payload={"text": f"{text} {part}"})
        for part in range(3)
    ]
    return log.append_batch(batch, key=f"{name}-{number}")


def _opened(url: str, actor: str) -> everlog.Log:
    if not url.startswith("segments:"):
        return everlog.open(url, actor=actor)
    # Small segments, so that some crashes fall into the beginning of a new one.
    store = SegmentsStore(url.partition(":")[2], segment_bytes_max=SEGMENT_BYTES_MAX, space_bytes=8192)
    return everlog.Log(store, BUILT_IN, actor=actor)


def events_in(appends: int) -> int:
    """How many events that many appends make."""
    return sum(3 if number % 3 == 2 else 1 for number in range(appends))
