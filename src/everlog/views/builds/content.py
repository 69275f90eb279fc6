"""What is in a build: its rows, its dead letters, and the positions that it has applied.

Rows are read only if they match their checksums; otherwise DamagedRows names the keys of those that do not.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from everlog.core.text import words
from everlog.stores import texts
from everlog.stores.small_state import SmallState, StateChanges, StateReader
from everlog.views.builds.build import Build, decode_record, put_build, read_build, seal_record
from everlog.views.builds.rows import (
    UNREADABLE,
    DamagedRows,
    LostRows,
    Row,
    all_match,
    begin,
    is_sealed,
    kept_state,
    row_matches,
    row_of,
    seal_row,
)
from everlog.views.dead_letters import ViewLetter
from everlog.views.view import View, digest_of_bytes

BLOCK = 1024
CHECKED_AT_ONCE = 1000
SEALED_AT_ONCE = 10_000
"""Rows of an earlier version that get their checksums in one change."""

_letter = msgspec.json.Decoder(ViewLetter)
_encode = msgspec.json.Encoder().encode
_logger = logging.getLogger("everlog")


def put_rows(change: StateChanges, view: View, build: Build, rows: Mapping[str, bytes | None]) -> None:
    """Set rows with their checksums and search texts; None removes a row."""
    begun = begin(build.rows)
    sealed = {key: None if data is None else seal_row(begun, key, data) for key, data in rows.items()}
    change.put(build.rows, sealed)
    if view.has_text:
        found = {key: None if data is None else _text(view, key, data) for key, data in rows.items()}
        change.put_texts(build.rows, found)


def _text(view: View, key: str, data: bytes) -> texts.Text | None:
    try:
        text = view.text(row_of(data).state)
    except Exception:  # the state is right and must be stored; only a search does not find it
        _logger.exception("text() of the view %s failed for %s; a search does not find it", view.name, key)
        return None
    return None if text is None else texts.Text(text.part, words(text.title), words(text.body))


def load_rows(small_state: StateReader, build: Build, keys: Collection[str]) -> dict[str, Row]:
    return {key: row_of(data) for key, data in _all_matching(build, list(small_state.rows(build.rows, keys).items()))}


def page_of_rows(small_state: SmallState, build: Build, *, after: str, limit: int) -> list[tuple[str, bytes]]:
    """Return rows as they are stored, in order of their keys."""
    return _all_matching(build, list(small_state.scan(build.rows, after=after, limit=limit)))


def scan_rows(
    small_state: SmallState, build: Build, *, after: str = "", limit: int | None = None
) -> Iterator[tuple[str, Row]]:
    for key, data in scan_kept(small_state, build, after=after, limit=limit):
        yield key, row_of(data)


def scan_kept(
    small_state: SmallState, build: Build, *, after: str = "", limit: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield rows as they are stored, in order of their keys. DamagedRows at the end names all that do not match."""
    return _matching(build, small_state.scan(build.rows, after=after, limit=limit))


def _all_matching(build: Build, rows: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return these rows if all of them match their checksums."""
    if build.sealed and all_match(begin(build.rows), rows):
        return rows
    return list(_matching(build, rows))


def _matching(build: Build, rows: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    begun, sealed = begin(build.rows), build.sealed
    damaged: list[str] = []
    waiting = iter(rows)
    while some := list(islice(waiting, CHECKED_AT_ONCE)):
        if sealed and all_match(begun, some):
            yield from some
            continue
        for row in some:
            if row_matches(begun, *row, sealed=sealed) and (sealed or _is_readable(row[1])):
                yield row
            else:
                damaged.append(row[0])
    if damaged:
        raise DamagedRows(build.name, damaged)


def _is_readable(data: bytes) -> bool:
    try:
        row_of(data)
    except UNREADABLE:
        return False
    return True


def seal_build(small_state: SmallState, build: Build) -> None:
    """Add checksums to the rows of a build that an earlier version made. A row that cannot be read gets none."""
    space, after, more, count = build.rows, "", True, 0
    begun = begin(space)
    while more:
        with small_state.change() as change:
            current = read_build(change, build.name, build.number)
            if current is None or current.sealed:
                return
            rows = list(small_state.scan(space, after=after, limit=SEALED_AT_ONCE))
            bare = {
                key: data
                for key, data in rows
                if row_matches(begun, key, data, sealed=False) and not is_sealed(data) and _is_readable(data)
            }
            change.put(space, {key: seal_row(begun, key, data) for key, data in bare.items()})
            more, count = len(rows) == SEALED_AT_ONCE, count + len(rows)
            if more:
                after = rows[-1][0]
            else:
                # Other processes may have stored new rows after those that were counted here.
                count = count if current.revision == build.revision else small_state.count(space)
                put_build(change, replace(current, sealed=True, keys=count, revision=current.revision + 1))


def build_digest(small_state: SmallState, build: Build) -> str:
    """Return the digest of all states of a build."""
    return digest_of_bytes((key, kept_state(data)) for key, data in _all_kept(small_state, build))


def _all_kept(small_state: SmallState, build: Build) -> Iterator[tuple[str, bytes]]:
    found = 0
    for found, row in enumerate(scan_kept(small_state, build), 1):  # noqa: B007 - counted
        yield row
    require_all(build, found)


def require_all(build: Build, found: int) -> None:
    """Raise LostRows if a build has another number of rows than it recorded. The rows must not change meanwhile."""
    if 0 <= build.keys != found:
        raise LostRows(build.name, found, build.keys)


def dead_letters_of(small_state: SmallState, build: Build) -> list[ViewLetter]:
    """Return the dead letters of a build, in order of position."""
    space = build.letters
    return [decode_record(_letter, space, key, data, "a dead letter") for key, data in small_state.scan(space)]


def put_letters(change: StateChanges, build: Build, letters: Iterable[ViewLetter], gone: Iterable[int] = ()) -> None:
    space = build.letters
    rows: dict[str, bytes | None] = {letter_key(position): None for position in gone}
    for letter in letters:
        key = letter_key(letter.position)
        rows[key] = seal_record(space, key, _encode(letter))
    change.put(space, rows)


def letter_key(position: int) -> str:
    return f"{position:016}"


def mark_applied(change: StateChanges, build: Build, positions: Collection[int]) -> int:
    """Record that positions were applied, and return how many of them are new.

    Each has one bit, so that an audit can name every position that was not applied.
    """
    # Each position once: a run without a gap is recognised by its length.
    ordered = positions if isinstance(positions, range) else sorted(set(positions))
    bits = blocks_of(ordered)
    kept = change.rows(build.places, bits.keys())
    before = {key: _bits_of(kept.get(key, b"")) for key in bits}
    after = {key: found | before[key] for key, found in bits.items()}
    change.put(build.places, {key: found.to_bytes(BLOCK // 8) for key, found in after.items()})
    return sum(found.bit_count() - before[key].bit_count() for key, found in after.items())


def blocks_of(positions: Sequence[int]) -> dict[str, int]:
    """Return the bits of ascending positions, by the keys under which their blocks are stored."""
    return {f"{block:016}": found for block, found in _bits(positions).items()}


def _bits(positions: Sequence[int]) -> dict[int, int]:
    """Return the bits of ascending positions, by block. A run without a gap needs one shift per block."""
    found: dict[int, int] = {}
    if positions and positions[-1] - positions[0] + 1 == len(positions):
        first, last = positions[0], positions[-1]
        for block in range(first // BLOCK, last // BLOCK + 1):
            begin, end = max(first, block * BLOCK), min(last, block * BLOCK + BLOCK - 1)
            found[block] = ((1 << end - begin + 1) - 1) << begin % BLOCK
        return found
    for position in positions:
        block, place = divmod(position, BLOCK)
        found[block] = found.get(block, 0) | 1 << place
    return found


def applied_blocks(small_state: SmallState, build: Build) -> Mapping[int, int]:
    """Return the bits of every block, by its number."""
    return {
        int(key): _bits_of(data) for key, data in small_state.scan(build.places) if key.isascii() and key.isdigit()
    }


def _bits_of(data: object) -> int:
    """Return the bits of a block; none if it is damaged, so that the audit names its positions."""
    return int.from_bytes(data) if type(data) is bytes and len(data) == BLOCK // 8 else 0
