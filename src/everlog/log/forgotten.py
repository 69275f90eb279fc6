"""Who was forgotten, as far as others beside the log must know: which streams, when, and which keys. Never who.

One note per time (`forget/NUMBER`), in the write that erases. What a view or a snapshot derived before is followed by
its number: the process that reads on next derives the keys of these streams again. A note without keys and records is
about values that can be read from now on, because their keys came from another node.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader

_PREFIX = "forget/"


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """One time that somebody was forgotten."""

    number: int  # counts from 1 in this log
    request: str  # so that it is recorded once
    at_us: int
    keys: tuple[str, ...]
    streams: tuple[str, ...]
    records: tuple[str, ...]  # the ids of the events `subject.forgotten`
    erased: int = 0
    receipt: str = ""  # once it is finished


_decode = msgspec.json.Decoder(Forget).decode


def forgets_in(state: RowReader, after: int = 0) -> list[Forget]:
    """Return every time that somebody was forgotten, after a number."""
    return [_decode(text) for key, text in state.scan(NOTES, prefix=_PREFIX) if key > _key(after)]


def count_forgets(state: RowReader) -> int:
    """Return the number of the last time that somebody was forgotten, 0 if nobody was."""
    return max((one.number for one in forgets_in(state)), default=0)


def put_forget(write: OpenWrite, forget: Forget) -> None:
    write.put(NOTES, {_key(forget.number): msgspec.json.encode(forget)})


def derive_again(write: OpenWrite, streams: Iterable[str], *, request: str) -> None:
    """Have views derive streams again, because values in them can be read that could not be read before."""
    number = 1 + count_forgets(write)
    put_forget(
        write,
        Forget(
            number=number, request=request, at_us=write.now_us, keys=(), streams=tuple(sorted(streams)), records=()
        ),
    )


def streams_of(forgets: list[Forget]) -> set[str]:
    return {stream for forget in forgets for stream in forget.streams}


def _key(number: int) -> str:
    return f"{_PREFIX}{number:08}"
