"""Dead letters: events that a group of consumers could not take, kept with the reason until somebody acts.

    failed     it was tried as often as it may be; in a group that holds, its key waits for it
    waiting    it comes after a failed one of the same key, and waits so that the order stays
    retrying   somebody asked for it to be tried again
    done       it was tried again and taken
    skipped    somebody decided that the group does without it, and said why

They are notes beside the events. What was decided is kept for 90 days. A purge of the stream takes its letters along:
a reason may hold words of the payload.
"""

from __future__ import annotations

import msgspec

from everlog.core.event import Recorded
from everlog.stores.contract import Reader, Writer

KEPT_US = 90 * 24 * 60 * 60 * 1_000_000
FAILED, WAITING, RETRYING, DONE, SKIPPED = "failed", "waiting", "retrying", "done", "skipped"
OPEN = frozenset({FAILED, WAITING, RETRYING})

_PREFIX = "dead-letter/"
_REASON_CHARS_MAX = 2_000


class Letter(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event that a group could not take."""

    group: str
    partition: int
    position: int
    id: str
    type: str
    stream: str
    key: str
    what: str
    holds: bool = True  # its key waits for it
    reason: str = ""
    attempts: int = 0
    at_us: int = 0
    not_before_us: int = 0
    decided_by: str = ""
    decided_because: str = ""
    decided_us: int = 0


def letter_of(
    recorded: Recorded, what: str, *, group: str, partition: int, key: str, holds: bool, reason: str, attempts: int
) -> Letter:
    event = recorded.event
    return Letter(
        group=group,
        partition=partition,
        position=recorded.position,
        id=event.id,
        type=event.type,
        stream=event.stream,
        key=key,
        what=what,
        holds=holds,
        reason=reason[:_REASON_CHARS_MAX].encode(errors="backslashreplace").decode(),
        attempts=attempts,
    )


def keep_letter(writer: Writer, letter: Letter) -> None:
    """Write a letter down; one that somebody decided about goes by itself in time."""
    if not letter.at_us:
        letter = msgspec.structs.replace(letter, at_us=writer.now_us)
    expires_us = None if letter.what in OPEN else writer.now_us + KEPT_US
    writer.note(_key(letter), msgspec.json.encode(letter).decode(), expires_us=expires_us)


def read_letters(reader: Reader, group: str, partition: int | None = None) -> list[Letter]:
    """The letters of a group, in order of partition and position; or those of one partition."""
    prefix = f"{_PREFIX}{group}/" if partition is None else f"{_PREFIX}{group}/{partition:05}/"
    return [_decode(text) for text in reader.notes(prefix).values()]


def remove_letter(writer: Writer, letter: Letter) -> None:
    writer.note(_key(letter), None)


def forget_letters(writer: Writer, stream: str) -> None:
    """Remove the letters about a stream that is being purged."""
    for key, text in writer.notes(_PREFIX).items():
        if _decode(text).stream == stream:
            writer.note(key, None)


def _key(letter: Letter) -> str:
    return f"{_PREFIX}{letter.group}/{letter.partition:05}/{letter.position:016}"


_decode = msgspec.json.Decoder(Letter).decode
