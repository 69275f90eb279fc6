"""What was decided on chains, as it is kept beside the events.

    fork/ORIGIN    the proof of its lowest fork (`everlog.trust.forks`)
    standing       the chains of which more was recorded than counts, and up to where they count; if a branch of one
                   was named, also the events that are on another one

An event that lost its standing stays at its position. Views leave it out, and sync does not compare it. The row is
missing as long as every recorded event counts, which is so in nearly every log. Both begin with a checksum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from everlog.core.event import Event, Recorded
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import (
    NOTES,
    RowReader,
    StoreState,
    read_note,
    read_notes,
    with_checksum,
    without_checksum,
)
from everlog.trust.forks import ForkProof
from everlog.trust.keys import is_key
from everlog.trust.standing import Limit

_FORKS, _STANDING = "fork/", "standing"


class Verdicts(msgspec.Struct, frozen=True):
    """The chains of which not every recorded event counts, with the last number that does."""

    limits: Mapping[str, Limit] = {}
    lost: frozenset[str] = frozenset()  # the ids of events on branches that were not named

    def counts(self, event: Event) -> bool:
        """Return whether an event counts."""
        limit = self.limits.get(event.origin)
        return limit is None or (event.origin_seq <= limit.upto and event.id not in self.lost)

    def counted(self, records: Iterable[Recorded]) -> Iterator[Recorded]:
        """Return the records that count."""
        return (one for one in records if self.counts(one.event)) if self.limits else iter(records)

    def __bool__(self) -> bool:
        return bool(self.limits)

    def __str__(self) -> str:
        """The same text for the same verdicts."""
        if not self.limits:
            return ""
        limits = msgspec.json.encode(self.limits, order="sorted").decode()
        return f"{limits} {' '.join(sorted(self.lost))}" if self.lost else limits


EVERYTHING_COUNTS = Verdicts()

_fork = msgspec.json.Decoder(ForkProof)
_limits = msgspec.json.Decoder(dict[str, Limit])


def verdicts_of(text: str) -> Verdicts:
    """Return the verdicts with this text."""
    limits, _, lost = text.partition(" ")
    return Verdicts(_limits.decode(limits), frozenset(lost.split())) if text else EVERYTHING_COUNTS


def verdicts_in(state: RowReader) -> Verdicts:
    """Return what was decided last. Raise Damaged if it cannot be read."""
    text = read_note(state, _STANDING)
    return verdicts_of("" if text is None else without_checksum(_STANDING, text).decode())


def put_verdicts(write: OpenWrite, verdicts: Verdicts) -> None:
    """Put what is decided now, if it is not there or cannot be read."""
    row = with_checksum(str(verdicts).encode()) if verdicts else None
    if write.rows(NOTES, (_STANDING,)).get(_STANDING) != row:
        write.put(NOTES, {_STANDING: row})


def forks_in(state: RowReader) -> dict[str, ForkProof]:
    """Return the proofs of forks, by origin. Raise Damaged if one cannot be read."""
    found = [_fork.decode(without_checksum(key, text)) for key, text in read_notes(state, _FORKS).items()]
    return {fork.origin: fork for fork in found}


def put_fork(write: OpenWrite, fork: ForkProof) -> None:
    write.put(NOTES, {_FORKS + fork.origin: with_checksum(msgspec.json.encode(fork))})


def refuse_lost_verdicts(state: StoreState) -> None:
    """Raise Damaged if a verdict may be among the notes that cannot be read: then a key is among the origins."""
    lost = state.lost_notes()
    if lost is not None and any(map(is_key, lost.origins)):
        raise lost.error
