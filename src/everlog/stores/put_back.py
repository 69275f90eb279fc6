"""Whether a log was put back: somebody copied its files, it was written to, and the copy took its place.

If it continued under the same origin, it would give the numbers of the lost events to other ones, and the chain would
fork. So it takes a new origin before it records its next own event (docs/decisions/0037). Two things show it:

- The log records in itself which lock file it lives beside (`Lock.place`). A copy of a folder lives beside another.
- The lock file keeps the end of the log's own chain. A copy that replaced the log beside it is shorter, or is under
  an origin that the lock file does not expect.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from everlog.core.event import Link, Position
from everlog.files import Files, Lock
from everlog.stores.contract import Identity
from everlog.stores.identity import Origins, continued

_NOTE_BYTES = 256
_logger = logging.getLogger("everlog")


class OwnEnd(NamedTuple):
    """The end of a log's own chain, as its lock file remembers it."""

    origin: str
    origin_seq: int


def remember_end(lock: Lock, origin: str, origin_seq: int) -> None:
    """Keep the end of the own chain. The events are on the disk, so a failure is only logged."""
    text = f"{origin} {origin_seq:016}"
    try:
        lock.remember(f"{text} {zlib.crc32(text.encode()):08x}\n".encode())
    except OSError as error:
        _logger.warning("the last number of origin %s could not be kept in the lock file: %s", origin, error)


def remembered_end(lock: Lock) -> OwnEnd | None:
    """Return the end of the own chain, or None if it is not known: a new lock file, or one that a crash left torn."""
    return _end_in(lock.remembered(_NOTE_BYTES))


def end_beside(files: Files, path: Path) -> OwnEnd | None:
    """Return the same to a reader, who has the path of the lock file and does not take the lock."""
    return _end_in(files.read_all(path)[:_NOTE_BYTES]) if files.exists(path) else None


def missing_own_events(files: Files, path: Path, origin: str, end: Callable[[], int]) -> int:
    """Return how many own events the lock file at `path` knows of after the one at the `end` of the chain."""
    written = end_beside(files, path)  # before the chain, which may grow meanwhile
    return max(0, written.origin_seq - end()) if written is not None and written.origin == origin else 0


def _end_in(note: bytes) -> OwnEnd | None:
    words = note.decode(errors="replace").partition("\n")[0].split(" ")
    if len(words) != 3 or words[2] != f"{zlib.crc32(' '.join(words[:2]).encode()):08x}":
        return None
    return OwnEnd(words[0], int(words[1]))


def was_put_back(identity: Identity, link: Link, *, place: str, here: str, remembered: OwnEnd | None) -> bool:
    """Return whether a log was put back: it recorded `place`, it is `here`, and its chain ends with `link`.

    A log that `copy` or `upgrade` made has recorded no place until it makes its first event.
    """
    if place and place != here:
        return True
    if remembered is None or remembered.origin in identity.former:
        return False
    if remembered.origin == identity.origin:
        return remembered.origin_seq > link.origin_seq
    return bool(place or link.origin_seq)  # else a new log, beside the lock file of one that was removed


def settle(
    lock: Lock, identity: Identity, place: str, *, link: Link, head: Position, now_us: int, origins: Origins
) -> tuple[Identity, str]:
    """Return the identity and the place with which a log may record own events: new ones if it was put back."""
    here = lock.place()
    if here and was_put_back(identity, link, place=place, here=here, remembered=remembered_end(lock)):
        identity = continued(identity, origins.new(now_us, before=identity.origin), head=head)
    return identity, here
