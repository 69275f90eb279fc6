"""The origins of this copy of a log: the one in use, earlier ones, and what an open write changes of them."""

from __future__ import annotations

from collections.abc import Callable

from everlog.files import Lock
from everlog.stores.contract import Identity
from everlog.stores.identity import Origins
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.schema import Index
from everlog.stores.put_back import remembered_end, was_put_back


class OwnOrigins:
    def __init__(self, folder: Folder, lock: Lock, now_us: Callable[[], int]) -> None:
        self._folder = folder
        self._lock = lock
        self._now_us = now_us
        self.origins = Origins()
        self._unsaved: tuple[tuple[str, ...], str] | None = None  # the origins before this write, and its place
        self._lives: tuple[object, tuple[tuple[int, str], ...]] | None = None  # remembered
        self.names = folder.origins()

    def read(self) -> None:
        """Read them again: another process may have changed them."""
        self.names = self._folder.origins()

    def all(self) -> tuple[str, ...]:
        """Return the origins of this copy, the one in use first, also one that another process has begun."""
        begun = [each for each in self._folder.origins() if each not in self.names]
        return (*begun, *self.names)

    def among(self, origins: set[str]) -> tuple[str, ...]:
        """Return the same for lines of these origins. They may be the first ones under an origin that another process
        has begun, and what was asked with a key there was asked here."""
        return self.names if origins.issubset(self.names) else self.all()

    def lives(self, epoch: str) -> tuple[tuple[int, str], ...]:
        """Return when this copy was put back in an epoch: see `Identity`."""
        if self._lives is None or self._lives[0] != (epoch, self.names):
            self._lives = (epoch, self.names), self._folder.lives(epoch)
        return self._lives[1]

    def use(self, origin: str, *, read_only: bool) -> None:
        """Use an earlier origin again, or with nothing a new one from the next write on."""
        if read_only:
            self.names = (origin, *[each for each in self.names if each and each != origin])
        else:
            self._folder.set_origin(origin)
            self.read()

    def begin(self) -> None:
        """Give this copy a new origin. A clone gets one before its first write, and so does a copy whose own events
        were removed: with the old origin it would assign the same numbers a second time (F11)."""
        before = self._folder.origins()
        self._folder.write_origins((self._new(before), *before), self._lock.place())
        self.read()

    # ---- a copy that was put back

    def settle(self, index: Index) -> None:
        """Make sure that own events continue the chain: another process may have changed the origin, and a copy that
        was put back takes a new one, with this write."""
        here = self._lock.place()
        if not here:
            return
        self.read()
        before, place, end = self.names, self._folder.place(), remembered_end(self._lock)
        identity = Identity(self._folder.log_id, before[0], index.epoch, 0, before[1:])
        if was_put_back(identity, index.chain(before[0]).end, place=place, here=here, remembered=end):
            self.names = (self._new(before), *before)
        if place != here or self.names is not before:
            self._unsaved = (before, here)

    def _new(self, before: tuple[str, ...]) -> str:
        return self.origins.new(self._now_us(), before=next(filter(None, before), ""))

    def continue_as(self, origin: str) -> None:
        """Take a new origin with this write."""
        before, place = self._unsaved or (self.names, self._folder.place())
        self.names, self._unsaved = (origin, *self.names), (before, place)

    def save(self, index: Index) -> None:
        """Record what settling the origin changed, before the lines of the write."""
        if self._unsaved is not None:
            before, place = self._unsaved
            put_back = None if self.names == before else (index.epoch, int(index.head()))
            self._folder.write_origins(self.names, place, put_back=put_back)
            self._lives = None
            if index.origin != self.names[0]:
                index.set_origin(self.names[0])
            self._unsaved = None

    def unsettle(self) -> bool:
        """Take back what settling the origin changed, if the write was undone. Return whether there was anything."""
        if self._unsaved is None:
            return False
        self.names, self._unsaved = self._unsaved[0], None
        return True
