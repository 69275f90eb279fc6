"""Which names are claimed, as far as this process knows: a new one should cost no question to the server."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from everlog.stores.postgres.queries import Fetch
from everlog.stores.postgres.statements import statements
from everlog.stores.staging import Staged

_REMEMBERED_MAX = 200_000
_WRITES_ALONE_MIN = 32


class ClaimNames:
    """Every claimed name there is: fetched once this process has written for a while, kept while it is complete."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._writes = 0
        self._names: set[bytes] = set()
        self.complete = False

    def maybe_claimed(self, fetch: Fetch, names: Collection[bytes]) -> Collection[bytes]:
        """Those of the names that are not surely free. To be asked inside a write."""
        if not self.complete and self._writes == _WRITES_ALONE_MIN:
            self._writes += 1  # asked once: a table that is too large now will not be small soon
            rows = fetch(statements("write")["claim_names"], {"limit": _REMEMBERED_MAX})
            self.complete = len(rows) < _REMEMBERED_MAX
            self._names = {found.bytes for (found,) in rows} if self.complete else set()
        return self._names.intersection(names) if self.complete else names

    def others_claimed(self, names: Iterable[tuple[UUID]]) -> None:
        """What others have claimed since."""
        if self.complete:
            self._names.update(found.bytes for (found,) in names)

    def committed(self, staged: Staged) -> None:
        self._writes += self._writes < _WRITES_ALONE_MIN
        if self.complete:
            self._names.update(staged.staged_claims)
            self.complete = len(self._names) < _REMEMBERED_MAX
