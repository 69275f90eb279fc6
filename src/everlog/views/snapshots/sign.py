"""The signatures of snapshots: those of the log's own key, and of the keys that it had before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlog.stores.identity import no_key
from everlog.trust.keys import is_key, key_of

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.views.snapshots.file import Signer


class LogSigner:
    """Signs snapshots with the key of a log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def sign(self, data: bytes) -> tuple[str, bytes]:
        key = self._log.signing_key()
        if key is None:
            raise no_key(self._log.identity.origin)
        return key.public.origin, key.sign(data)

    def is_right(self, key: str, data: bytes, signature: bytes) -> bool:
        return is_key(key) and self._log.identity.made(key) and key_of(key).has_signed(data, signature)


def signer_of(log: Log) -> Signer | None:
    """Return what signs the snapshots of a log; None if the log is not signed."""
    return LogSigner(log) if is_key(log.identity.origin) else None
