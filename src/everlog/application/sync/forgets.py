"""Follow what other nodes forgot: when the record of a forget arrives, this node forgets, too, and records it.

A record is followed if it is signed, counts, and its author may remove what is here, as with the record of a purge.
Anything else, and what failed, stays for `everlog forget --follow RECORD`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from everlog.application.trust.forget import Receipt, follow, record_again, status
from everlog.application.trust.owned_bytes import Owned
from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Recorded
from everlog.core.ids import EventId
from everlog.errors import EverlogError, InvalidSettings, NoKey
from everlog.log.log import Log
from everlog.log.records import events_listed, forgotten_in
from everlog.stores.small_state import NOTES, read_note
from everlog.trust.keys import is_key

_CHECKED = "forgets-checked"  # the position up to which the records of others were looked at

_logger = logging.getLogger("everlog")


def follow_pending(log: Log, owned: Callable[[], Owned], *, joined: bool = False) -> list[Receipt]:
    """Forget what other nodes have forgotten and asked for, as far as they may; return the receipts. What was
    forgotten here, and of which an older copy of this log has no record, is recorded again.

    Each record is looked at once. A node that has just `joined` follows only those of which it has something.
    """
    done: list[Receipt] = []
    try:
        done += record_again(log, owned=owned())
    except InvalidSettings as error:  # the next sync tries again
        _logger.warning("what was forgotten here could not be recorded again: %s; %s", error, error.hint)
    asked = status(log)
    records = {one.record: found for one in asked if (found := log.stored.get(EventId(one.record))) is not None}
    checked = int(read_note(log.writer.small_state, _CHECKED) or 0)
    again = _with_keys_here(log, records)
    wanted = [one for one in asked if one.record in records and (one.position > checked or one.record in again)]
    wanted = [one for one in wanted if not (one.here and one.receipt and one.record not in again)]
    known = [one for one in wanted if one.here or joined]
    needed = again | (_with_payloads_here(log, [records[one.record] for one in known]) if known else set())
    left: list[int] = []  # the positions of records that must be looked at once more
    for one in wanted:
        if one in known and one.record not in needed:
            continue
        if not is_key(one.origin) or not one.counts:
            left.append(one.position)  # its author may get the right to it
            continue
        try:
            done += follow(log, one.record, owned=owned())
        except EverlogError as error:  # such as busy: the next sync tries again
            left.append(one.position)
            _logger.warning(
                "another node has forgotten somebody, and this node could not follow: %s; everlog forget --follow %s",
                error,
                one.record,
            )
    upto = min(left, default=max((one.position for one in asked), default=0) + 1) - 1
    if upto > checked:
        row = str(upto).encode()
        log.writer.write(lambda write: write.put(NOTES, {_CHECKED: row}, may_be_lost=True))
    return done


def _with_keys_here(log: Log, records: Mapping[str, Recorded]) -> set[str]:
    """Return the records that list a key which is in the ring: not destroyed yet, or back with an older ring."""
    if log.sealing is None or not records:
        return set()
    keys = {name: set(forgotten_in(one.event).keys) for name, one in records.items()}
    try:
        held = set(log.sealing.ring.held(set().union(*keys.values())))
    except NoKey:  # there is no place for a ring
        return set()
    return {name for name, some in keys.items() if some & held}


def _with_payloads_here(log: Log, records: Sequence[Recorded]) -> set[str]:
    """Return the records that list an event whose payload is here: it came from a node that has not followed, or with
    an older copy of this log."""
    listed = {place: str(one.event.id) for one in records for place in events_listed(one.event)}
    if not listed:
        return set()
    numbers = {(origin, number) for origin, number, _ in listed}
    events = (one.event for one in log.stored.read())
    here = [event for event in events if event.salt and (event.origin, event.origin_seq) in numbers]
    places = ((event.origin, event.origin_seq, header_hash(header_bytes(event))) for event in here)
    return {listed[place] for place in places if place in listed}


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
