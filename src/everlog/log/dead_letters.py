"""Dead letters: events that could not be applied, stored with the reason until somebody acts.

A view and a consumer group store the same form, which `DeadLetter` describes. Each adds what only it needs.

    failed     the event could not be applied; in a view, and in a group that holds, its key waits for it
    waiting    it comes after a failed event of the same key, and waits so that the order stays
    stopped    view only: the key of the event cannot be determined, so the whole view waits
    retrying   group only: somebody requested another attempt
    done       group only: another attempt succeeded
    skipped    somebody decided that the event is left out, and gave a reason

The letters of a group are notes beside the events. A letter that was decided is kept for 90 days. A purge of the
stream removes its letters: a reason may contain text of the payload.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from everlog.core.event import Recorded
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader, read_notes

KEPT_US = 90 * 24 * 60 * 60 * 1_000_000
FAILED, WAITING, STOPPED, SKIPPED = "failed", "waiting", "stopped", "skipped"
RETRYING, DONE = "retrying", "done"
OPEN = frozenset({FAILED, WAITING, RETRYING})

WITHHELD = "(withheld: somebody was forgotten)"
"""In place of a reason that may quote a value."""

_PREFIX = "dead-letter/"
_REASON_CHARS_MAX = 2_000


class DeadLetter(Protocol):
    """An event that could not be applied, and why."""

    @property
    def position(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def stream(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def what(self) -> str: ...  # one of the words above
    @property
    def reason(self) -> str: ...
    @property
    def at_us(self) -> int: ...
    @property
    def decided_by(self) -> str: ...
    @property
    def decided_because(self) -> str: ...


def explanation(letter: DeadLetter) -> str:
    """Return why somebody decided about a letter, or else why the event could not be applied."""
    return letter.decided_because or letter.reason


class GroupLetter(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A dead letter of a consumer group."""

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
) -> GroupLetter:
    event = recorded.event
    return GroupLetter(
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


def keep_letter(writer: OpenWrite, letter: GroupLetter) -> None:
    """Store a letter. One that was decided expires."""
    if not letter.at_us:
        letter = msgspec.structs.replace(letter, at_us=writer.now_us)
    expires_us = None if letter.what in OPEN else writer.now_us + KEPT_US
    writer.put(NOTES, {_key(letter): msgspec.json.encode(letter)}, expires_us=expires_us)


def read_letters(state: RowReader, group: str, partition: int | None = None) -> list[GroupLetter]:
    """Return the letters of a group, or of one of its partitions, in order of partition and position."""
    prefix = f"{_PREFIX}{group}/" if partition is None else f"{_PREFIX}{group}/{partition:05}/"
    return [_decode(text) for text in read_notes(state, prefix).values()]


def remove_letter(writer: OpenWrite, letter: GroupLetter) -> None:
    writer.put(NOTES, {_key(letter): None})


def forget_letters(writer: OpenWrite, stream: str) -> None:
    """Remove the letters of a stream that is being purged."""
    for key, text in read_notes(writer, _PREFIX).items():
        if _decode(text).stream == stream:
            writer.put(NOTES, {key: None})


def blank_letters(writer: OpenWrite, streams: Collection[str]) -> None:
    """Remove the reasons from the letters of streams, because they may quote a payload. The letters stay."""
    for text in read_notes(writer, _PREFIX).values():
        letter = _decode(text)
        if letter.stream in streams and letter.reason:
            keep_letter(writer, msgspec.structs.replace(letter, reason=WITHHELD))


def _key(letter: GroupLetter) -> str:
    return f"{_PREFIX}{letter.group}/{letter.partition:05}/{letter.position:016}"


_decode = msgspec.json.Decoder(GroupLetter).decode
