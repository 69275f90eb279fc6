"""Follow what other nodes forgot: when the record of a forget arrives, this node forgets, too, and records it.

A record is followed if it is signed, counts, and its author may remove what is here, as with the record of a purge.
Anything else, and what failed, stays for `everlog forget --follow RECORD`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from everlog.application.trust.forget import Receipt, follow, status
from everlog.application.trust.owned_bytes import Owned
from everlog.core.ids import EventId
from everlog.errors import EverlogError
from everlog.log.forget import find_listed
from everlog.log.log import Log
from everlog.trust.keys import is_key

_logger = logging.getLogger("everlog")


def follow_pending(log: Log, owned: Callable[[], Owned]) -> list[Receipt]:
    """Forget what other nodes have forgotten and asked for, as far as they may; return the receipts."""
    done: list[Receipt] = []
    for one in status(log):
        if one.here and (one.receipt or not _was_put_back(log, one.record)):
            continue
        if not is_key(one.origin) or not _may_be_followed(log, one.record):
            continue
        try:
            done += follow(log, one.record, owned=owned())
        except EverlogError as error:  # such as busy: the next sync tries again
            _logger.warning(
                "another node has forgotten somebody, and this node could not follow: %s; everlog forget --follow %s",
                error,
                one.record,
            )
    return done


def _was_put_back(log: Log, record_id: str) -> bool:
    """Return whether this log has something again that it forgot once: it was put back from an older copy."""
    record = log.stored.get(EventId(record_id)) if log.identity.former else None
    if record is None or log.sealing is None:
        return False
    concerned = find_listed(log, record)
    return bool(concerned.open or log.sealing.ring.held(concerned.keys))


def _may_be_followed(log: Log, record_id: str) -> bool:
    record = log.stored.get(EventId(record_id))
    return record is not None and log.writer.write(lambda write: log.writer.may_remove(write, record.event))


class Follower:
    """Follows in its own thread: a node that listens answers its peers meanwhile."""

    def __init__(self, log: Log, owned: Callable[[], Owned]) -> None:
        self._log = log
        self._owned = owned
        self._asked = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="everlog-sync-forget", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have it look for records that came."""
        self._asked.set()

    def close(self) -> None:
        self._closed = True
        self._asked.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._asked.wait()
            self._asked.clear()
            if not self._closed:
                try:
                    follow_pending(self._log, self._owned)
                except Exception:
                    _logger.exception("what other nodes have forgotten was not followed; the next sync tries again")
