"""Where the newest events of each stream are, for readers: those that the index of streams does not hold yet."""

from __future__ import annotations

import threading

from everlog.stores.lost import lost
from everlog.stores.sqlite.groups import BadRow, Fetch
from everlog.stores.sqlite.scan import END, windows

INDEXED = "coalesce((SELECT number FROM state WHERE name = 'indexed'), 0)"
"""The position up to which the index of streams and the table of claims are complete."""

_KNOWN_MAX = 20_000
_GROUP = "SELECT first, hash FROM groups WHERE first = ?"


class Recent:
    """The sequences and positions of a stream's newest events, each read from its group once.

    An event stays where it is, so what is known stays true. An event that was purged is in the index by then: a purge
    fills it first.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._forget()

    def _forget(self, indexed: int = 0) -> None:
        self._indexed = indexed
        self._seen = indexed  # all events up to here are in the index or known
        self._last: tuple[int, bytes] | None = None  # the last group that was seen: a log may be put back
        self._count = 0
        self._places: dict[str, list[tuple[int, int]]] = {}

    def places(self, fetch: Fetch, stream: str) -> list[tuple[int, int]]:
        """Return the sequences and positions of a stream's events that the index may not hold, in order."""
        with self._lock:
            ((indexed,),) = fetch(f"SELECT {INDEXED}", ())
            known = self._last is None or fetch(_GROUP, (self._last[0],)) == [self._last]
            if indexed != self._indexed or not known or self._count > _KNOWN_MAX:
                self._forget(indexed)
            for window in windows(fetch, self._seen, END, file=self.file):
                for group in window.groups:
                    try:
                        found = group.places()
                    except BadRow as error:
                        raise lost(group.first, group.last, why=str(error), file=self.file) from error
                    for place in found:
                        if self._seen < place.position <= window.high:
                            named = self._places.setdefault(place.event.stream, [])
                            named.append((place.sequence, place.position))
                    self._count += len(found)
                    self._last = (group.first, group.facts.hash)
                self._seen = window.high
            return list(self._places.get(stream, ()))
