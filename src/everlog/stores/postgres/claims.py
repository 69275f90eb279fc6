"""The claimed names that this process knows, so that a new name costs no query."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from everlog.stores.open_write import OpenWrite
from everlog.stores.postgres.queries import Fetch
from everlog.stores.postgres.statements import statements

_REMEMBERED_MAX = 200_000
_WRITES_ALONE_MIN = 32


class ClaimNames:
    """All claimed names: loaded when this process has written for a while, and kept while they are complete."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._writes = 0
        self._names: set[bytes] = set()
        self.complete = False

    def maybe_claimed(self, fetch: Fetch, names: Collection[bytes]) -> Collection[bytes]:
        """Return the names that may be claimed. Call it inside a write."""
        if not self.complete and self._writes == _WRITES_ALONE_MIN:
            self._writes += 1  # once only: a table that is too large now will not shrink soon
            rows = fetch(statements("write")["claim_names"], {"limit": _REMEMBERED_MAX})
            self.complete = len(rows) < _REMEMBERED_MAX
            self._names = {found.bytes for (found,) in rows} if self.complete else set()
        return self._names.intersection(names) if self.complete else names

    def others_claimed(self, names: Iterable[tuple[UUID]]) -> None:
        """Add names that other processes have claimed."""
        if self.complete:
            self._names.update(found.bytes for (found,) in names)

    def committed(self, staged: OpenWrite) -> None:
        self._writes += self._writes < _WRITES_ALONE_MIN
        if self.complete:
            self._names.update(staged.staged_claims)
            self.complete = len(self._names) < _REMEMBERED_MAX
