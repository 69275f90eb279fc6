"""Where a view's states are: builds on a shelf.

A build is one derivation of a view from the beginning: its rows, its cursor, its dead letters and which positions it
has applied, all changed together. A view has one active build, which answers; a rebuild makes another beside it and
then moves the name `active` over, in one change; the one before is kept for a way back.

    views             NAME -> which builds there are, and which is active
    builds            NAME#N -> version, cursor, counts, where it stopped
    NAME#N            KEY -> a row: state, count, order, sources
    NAME#N places     block of 1024 positions -> a bit for each that was applied
    NAME#N letters    position -> a dead letter
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.core.words import words
from everlog.stores import texts
from everlog.stores.shelf import Shelf, ShelfReader, ShelfWriter
from everlog.views.fingerprint import code_fingerprint
from everlog.views.letters import Letter
from everlog.views.rows import Row, kept_state, row_of
from everlog.views.view import View, digest_of_bytes

_logger = logging.getLogger("everlog")

VIEWS, BUILDS = "views", "builds"
SEVERAL = "several"
BLOCK = 1024


class Names(msgspec.Struct, frozen=True):
    """The builds of one view."""

    active: int = 0  # 0: none yet
    previous: int = 0  # what `rollback` goes back to
    last: int = 0  # the greatest number that was given


class Build(msgspec.Struct, kw_only=True, frozen=True):
    """One derivation of a view. `revision` grows with every change, so that a runner notices another one's."""

    name: str
    number: int
    version: int
    code: str = ""  # a fingerprint of the code that made its states, or SEVERAL; empty where that was not noted yet
    by_stream: bool = False  # its keys are streams: so a purge needs no code to follow
    cursor: str = ""
    revision: int = 0
    applied: int = 0
    changed_us: int = 0
    stopped_at: int = 0  # the event that it cannot get past, because not even its key can be told
    complete: bool = False  # it has been at the head once, and may answer

    def is_of(self, view: View) -> bool:
        """Whether its states are of this very code, as far as that is known."""
        return self.version == view.version and self.code in ("", code_fingerprint(view))

    @property
    def rows(self) -> str:
        return f"{self.name}#{self.number}"

    @property
    def places(self) -> str:
        return self.rows + " places"

    @property
    def letters(self) -> str:
        return self.rows + " letters"

    @property
    def reached(self) -> Cursor:
        return Cursor.of(self.cursor) if self.cursor else Cursor()

    @property
    def position(self) -> Position:
        return self.reached.position


_names = msgspec.json.Decoder(Names).decode
_build = msgspec.json.Decoder(Build).decode
_letter = msgspec.json.Decoder(Letter).decode
_encode = msgspec.json.Encoder().encode


# ---- names and builds


def read_names(shelf: ShelfReader, name: str) -> Names:
    found = shelf.get(VIEWS, name)
    return Names() if found is None else _names(found)


def put_names(change: ShelfWriter, name: str, names: Names) -> None:
    change.put(VIEWS, {name: _encode(names)})


def read_build(shelf: ShelfReader, name: str, number: int) -> Build | None:
    found = shelf.get(BUILDS, f"{name}#{number}")
    return None if found is None else _build(found)


def put_build(change: ShelfWriter, build: Build) -> None:
    change.put(BUILDS, {build.rows: _encode(build)})


def every_name(shelf: Shelf) -> list[str]:
    """Every view that has ever kept anything here."""
    return [name for name, _ in shelf.scan(VIEWS)]


def builds_of(shelf: Shelf, name: str) -> list[Build]:
    found = (_build(data) for key, data in shelf.scan(BUILDS, after=name + "#") if key.startswith(name + "#"))
    return sorted(found, key=lambda build: build.number)


def active_build(shelf: ShelfReader, name: str) -> Build | None:
    names = read_names(shelf, name)
    return read_build(shelf, name, names.active) if names.active else None


def begin_build(change: ShelfWriter, view: View) -> Build:
    """A new, empty build of a view; nobody is told of it yet."""
    names = read_names(change, view.name)
    build = Build(
        name=view.name,
        number=names.last + 1,
        version=view.version,
        code=code_fingerprint(view),
        by_stream=view.by_stream,
    )
    put_names(change, view.name, msgspec.structs.replace(names, last=build.number))
    put_build(change, build)
    return build


def several(build: Build) -> str:
    """Whose the states of a build are when other code goes on with them; where it is not known, it stays unknown."""
    return build.code and SEVERAL


def drop_build(change: ShelfWriter, build: Build) -> None:
    change.put(BUILDS, {build.rows: None})
    for space in (build.rows, build.places, build.letters):
        change.clear(space)


# ---- what is in a build


def put_rows(change: ShelfWriter, view: View, build: Build, rows: Mapping[str, bytes | None]) -> None:
    """Set rows, None removes one; and with them what they are found by."""
    change.put(build.rows, rows)
    if view.has_text:
        found = {key: None if data is None else _text(view, key, data) for key, data in rows.items()}
        change.put_texts(build.rows, found)


def _text(view: View, key: str, data: bytes) -> texts.Text | None:
    try:
        text = view.text(row_of(data).state)
    except Exception:  # the state is right, and must be kept; it is only not found
        _logger.exception("the view %s cannot say what %s is found by", view.name, key)
        return None
    return None if text is None else texts.Text(text.part, words(text.title), words(text.body))


def load_rows(shelf: ShelfReader, build: Build, keys: Collection[str]) -> dict[str, Row]:
    return {key: row_of(data) for key, data in shelf.get_many(build.rows, keys).items()}


def scan_rows(shelf: Shelf, build: Build) -> Iterator[tuple[str, Row]]:
    for key, data in shelf.scan(build.rows):
        yield key, row_of(data)


def build_digest(shelf: Shelf, build: Build) -> str:
    """The digest of all states of a build."""
    return digest_of_bytes((key, kept_state(data)) for key, data in shelf.scan(build.rows))


def letters_of(shelf: Shelf, build: Build) -> list[Letter]:
    """The dead letters of a build, in order of position."""
    return [_letter(data) for _, data in shelf.scan(build.letters)]


def put_letters(change: ShelfWriter, build: Build, letters: Iterable[Letter], gone: Iterable[int] = ()) -> None:
    rows: dict[str, bytes | None] = {letter_key(position): None for position in gone}
    rows.update({letter_key(letter.position): _encode(letter) for letter in letters})
    change.put(build.letters, rows)


def letter_key(position: int) -> str:
    return f"{position:016}"


def mark_places(change: ShelfWriter, build: Build, positions: Collection[int]) -> int:
    """Remember that positions were applied, and return how many of them are new.

    One bit each, so that an audit can name every one that was not.
    """
    # Each once: a run without a gap is told by its length.
    ordered = positions if isinstance(positions, range) else sorted(set(positions))
    bits: dict[str, int] = {f"{block:016}": found for block, found in _bits(ordered).items()}
    kept = change.get_many(build.places, bits.keys())
    before = {key: int.from_bytes(kept.get(key, b"")) for key in bits}
    after = {key: found | before[key] for key, found in bits.items()}
    change.put(build.places, {key: found.to_bytes(BLOCK // 8) for key, found in after.items()})
    return sum(found.bit_count() - before[key].bit_count() for key, found in after.items())


def _bits(positions: Sequence[int]) -> dict[int, int]:
    """The bits of positions in order, by block. Mostly they are a run without a gap, which is one shift a block."""
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


def places_of(shelf: Shelf, build: Build) -> Mapping[int, int]:
    """The bits of every block, by its number."""
    return {int(key): int.from_bytes(data) for key, data in shelf.scan(build.places)}
