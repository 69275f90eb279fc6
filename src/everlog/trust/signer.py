"""What signs the new events of one log: the key of its origin, and a new key whenever the log takes a new origin.

A log takes a new key and origin before it writes if its own chain is shorter than what the key has signed already: it
was restored from an older copy, and would otherwise sign other events with the same numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from everlog.core.event import Link
from everlog.stores.identity import Origins, no_key
from everlog.trust.keys import PrivateKey, is_key

_logger = logging.getLogger("everlog")


class Keys(Protocol):
    """Where private keys are kept, and beside each the last number that it signed in a log."""

    def new(self, *, like: str = "") -> PrivateKey:
        """Make a key and keep it, protected in the same way as another one."""
        ...

    def load(self, origin: str) -> PrivateKey: ...

    def last_signed(self, origin: str, log_id: str) -> int: ...

    def remember(self, origin: str, log_id: str, number: int) -> None: ...

    def close(self) -> None: ...


class KeysInMemory:
    """Keys of logs in memory."""

    def __init__(self, keys: Iterable[PrivateKey] = ()) -> None:
        self._keys = {key.public.origin: key for key in keys}
        self._last: dict[tuple[str, str], int] = {}

    def new(self, *, like: str = "") -> PrivateKey:
        made = PrivateKey.new()
        self._keys[made.public.origin] = made
        return made

    def load(self, origin: str) -> PrivateKey:
        if origin not in self._keys:
            raise no_key(origin)
        return self._keys[origin]

    def last_signed(self, origin: str, log_id: str) -> int:
        return self._last.get((origin, log_id), 0)

    def remember(self, origin: str, log_id: str, number: int) -> None:
        self._last[origin, log_id] = number

    def close(self) -> None: ...


class Signer(Origins):
    """Signs for one log. It has no lock: the one writer of a log owns it."""

    def __init__(self, keys: Keys, log_id: str) -> None:
        self._keys = keys
        self._log_id = log_id
        self._loaded: dict[str, PrivateKey] = {}
        self._last: dict[str, int] = {}  # the last numbers that were signed
        self._spare: PrivateKey | None = None  # made for a write that was undone

    def make_ready(self, origin: Callable[[], str]) -> None:
        """Load the key, or raise NoKey, before a write is opened: somebody may have to type a passphrase."""
        if not self._loaded and is_key(name := origin()):
            self.key(name)

    def key(self, origin: str) -> PrivateKey:
        found = self._loaded.get(origin)
        if found is None:
            found = self._loaded[origin] = self._keys.load(origin)
        return found

    def new(self, now_us: int, *, before: str) -> str:
        if self._spare is None:
            self._spare = self._keys.new(like=before if is_key(before) else "")
            self._loaded[self._spare.public.origin] = self._spare
            if is_key(before):
                _logger.warning(
                    "this log was copied or put back, so it continues with a new key, %s, before it signs a number"
                    " twice; others must name that key, too: docs/how-to/nodes/trust.md, Restored copies",
                    self._spare.public.origin,
                )
        return self._spare.public.origin

    def fits(self, origin: str, end_of: Callable[[str], Link]) -> bool:
        if not is_key(origin):
            return False
        last = self._last.get(origin)
        if last is None:
            last = self._last[origin] = self._keys.last_signed(origin, self._log_id)
        return end_of(origin).origin_seq >= last

    def has_signed(self, origin: str, number: int) -> None:
        """Keep the last number that was signed, once its event is on the disk."""
        if self._spare is not None and origin == self._spare.public.origin:
            self._spare = None
        self._last[origin] = max(number, self._last.get(origin, 0))
        self._keys.remember(origin, self._log_id, self._last[origin])

    def close(self) -> None:
        self._keys.close()
