"""Where a view's states are: builds on a shelf.

A build is one derivation of a view from the beginning: its rows, its cursor, its dead letters and which positions it
has applied, all changed together. A view has one active build, which answers; a rebuild makes another beside it and
then moves the name `active` over, in one change; the one before is kept for a way back.

    views             NAME -> which builds there are, and which is active
    builds            NAME#N -> version, cursor, counts, where it stopped
    NAME#N            KEY -> a row: state, count, order, sources, checksum
    NAME#N places     block of 1024 positions -> a bit for each that was applied
    NAME#N letters    position -> a dead letter

Rows and records carry checksums (`everlog.views.checksums`). What is read here matches its checksum, or DamagedRows
or DamagedRecord is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.core.words import words
from everlog.errors import EverlogError
from everlog.stores import texts
from everlog.stores.shelf import Shelf, ShelfReader, ShelfWriter
from everlog.views.checksums import (
    DamagedRecord,
    DamagedRows,
    LostRows,
    all_match,
    begin,
    is_sealed,
    record_matches,
    row_matches,
    seal_record,
    seal_row,
)
from everlog.views.fingerprint import code_fingerprint
from everlog.views.letters import Letter
from everlog.views.rows import UNREADABLE, Row, kept_state, row_of
from everlog.views.view import View, digest_of_bytes

_logger = logging.getLogger("everlog")

VIEWS, BUILDS = "views", "builds"
SEVERAL = "several"
BLOCK = 1024
CHECKED_AT_ONCE = 1000
SEALED_AT_ONCE = 10_000
"""Rows of an earlier everlog that get their checksums in one change."""


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
    sealed: bool = False  # every row has a checksum; False for a build of an earlier everlog
    keys: int = -1  # how many rows it has; -1 where that was not counted, by an earlier everlog
    mended: int = 0  # rows that did not match their checksums and were folded again
    mended_us: int = 0  # when that was noticed last

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
    def spaces(self) -> tuple[str, str, str]:
        return self.rows, self.places, self.letters

    @property
    def reached(self) -> Cursor:
        return Cursor.of(self.cursor) if self.cursor else Cursor()

    @property
    def position(self) -> Position:
        return self.reached.position


_names = msgspec.json.Decoder(Names)
_build = msgspec.json.Decoder(Build)
_letter = msgspec.json.Decoder(Letter)
_encode = msgspec.json.Encoder().encode

_EARLIER: dict[Any, tuple[bytes, ...]] = {
    Names: (b'{"active":',),
    Build: (b'{"name":',),
    Letter: (b'{"position":', b'{"at_us":', b'{"id":'),
}
"""How records without a checksum begin, that an earlier everlog wrote."""

_Record = TypeVar("_Record")


def _record(decoder: msgspec.json.Decoder[_Record], space: str, key: str, data: bytes, what: str) -> _Record:
    if record_matches(space, key, data, earlier=_EARLIER[decoder.type]):
        try:
            return decoder.decode(data)
        except UNREADABLE:  # one without a checksum, of an earlier everlog
            pass
    name = key if space == VIEWS else (key if space == BUILDS else space).rpartition("#")[0]
    raise DamagedRecord(name, what)


@lru_cache(maxsize=256)  # every answer asks for these two records, which rarely change between answers
def _names_of(name: str, data: bytes) -> Names:
    return _record(_names, VIEWS, name, data, "the list of builds")


@lru_cache(maxsize=256)
def _build_of(key: str, data: bytes) -> Build:
    build = _record(_build, BUILDS, key, data, "the record of a build")
    if not build.sealed and not _can_be_of(build, key):
        raise DamagedRecord(key.rpartition("#")[0], "the record of a build")
    return build


def _can_be_of(build: Build, key: str) -> bool:
    """Whether a record without a checksum says what it can say."""
    try:
        return build.rows == key and build.position >= 0
    except EverlogError:  # the cursor is none
        return False


# ---- names and builds


def read_names(shelf: ShelfReader, name: str) -> Names:
    found = shelf.get(VIEWS, name)
    return Names() if found is None else _names_of(name, found)


def put_names(change: ShelfWriter, name: str, names: Names) -> None:
    change.put(VIEWS, {name: seal_record(VIEWS, name, _encode(names))})


def read_build(shelf: ShelfReader, name: str, number: int) -> Build | None:
    key = f"{name}#{number}"
    found = shelf.get(BUILDS, key)
    return None if found is None else _build_of(key, found)


def put_build(change: ShelfWriter, build: Build) -> None:
    change.put(BUILDS, {build.rows: seal_record(BUILDS, build.rows, _encode(build))})


def every_name(shelf: Shelf) -> list[str]:
    """Every view that has ever kept anything here."""
    return [name for name, _ in shelf.scan(VIEWS)]


def builds_of(shelf: Shelf, name: str) -> list[Build]:
    found = (_build_of(key, data) for key, data in shelf.scan(BUILDS, after=name + "#") if key.startswith(name + "#"))
    return sorted(found, key=lambda build: build.number)


def active_build(shelf: ShelfReader, name: str) -> Build | None:
    names = read_names(shelf, name)
    while names.active:
        build = read_build(shelf, name, names.active)
        if build is not None:
            return build
        before, names = names, read_names(shelf, name)  # another one may have become active between the two reads
        if names == before:
            break
    return None


def begin_build(change: ShelfWriter, view: View) -> Build:
    """A new, empty build of a view; nobody is told of it yet."""
    names = read_names(change, view.name)
    build = Build(
        name=view.name,
        number=names.last + 1,
        version=view.version,
        code=code_fingerprint(view),
        by_stream=view.by_stream,
        sealed=True,
        keys=0,
    )
    for space in build.spaces:
        change.clear(space)  # of a build of this number whose record was lost
    put_names(change, view.name, msgspec.structs.replace(names, last=build.number))
    put_build(change, build)
    return build


def several(build: Build) -> str:
    """Whose the states of a build are when other code goes on with them; where it is not known, it stays unknown."""
    return build.code and SEVERAL


def drop_build(change: ShelfWriter, build: Build) -> None:
    change.put(BUILDS, {build.rows: None})
    for space in build.spaces:
        change.clear(space)


def forget_view(shelf: Shelf, name: str) -> None:
    """Remove all that a view keeps, because a record of it cannot be read; it is derived again when it is run."""
    with shelf.change() as change:
        change.scrub = True
        last = 0
        for key in [key for key, _ in shelf.scan(BUILDS, after=name + "#") if key.startswith(name + "#")]:
            number = key.rpartition("#")[2]
            last = max(last, int(number) if number.isascii() and number.isdigit() else 0)
            change.put(BUILDS, {key: None})
            for space in (key, key + " places", key + " letters"):
                change.clear(space)
        put_names(change, name, Names(last=last))


# ---- what is in a build


def put_rows(change: ShelfWriter, view: View, build: Build, rows: Mapping[str, bytes | None]) -> None:
    """Set rows, None removes one; and with them their checksums and what they are found by."""
    begun = begin(build.rows)
    sealed = {key: None if data is None else seal_row(begun, key, data) for key, data in rows.items()}
    change.put(build.rows, sealed)
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
    return {key: row_of(data) for key, data in _all_matching(build, list(shelf.get_many(build.rows, keys).items()))}


def page_of_rows(shelf: Shelf, build: Build, *, after: str, limit: int) -> list[tuple[str, bytes]]:
    """Rows as they are kept, in order of their keys."""
    return _all_matching(build, list(shelf.scan(build.rows, after=after, limit=limit)))


def scan_rows(shelf: Shelf, build: Build, *, after: str = "", limit: int | None = None) -> Iterator[tuple[str, Row]]:
    for key, data in scan_kept(shelf, build, after=after, limit=limit):
        yield key, row_of(data)


def scan_kept(
    shelf: Shelf, build: Build, *, after: str = "", limit: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Rows as they are kept, in order of their keys. Those that do not match are all named at the end."""
    return _matching(build, shelf.scan(build.rows, after=after, limit=limit))


def _all_matching(build: Build, rows: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """These rows, if all of them match."""
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


def seal_build(shelf: Shelf, build: Build) -> None:
    """Give checksums to the rows of a build that an earlier everlog made. A row that cannot be read gets none."""
    space, after, more, count = build.rows, "", True, 0
    begun = begin(space)
    while more:
        with shelf.change() as change:
            current = read_build(change, build.name, build.number)
            if current is None or current.sealed:
                return
            rows = list(shelf.scan(space, after=after, limit=SEALED_AT_ONCE))
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
                # Others may have kept new rows behind the ones that were counted here.
                count = count if current.revision == build.revision else shelf.count(space)
                put_build(change, replace(current, sealed=True, keys=count, revision=current.revision + 1))


def build_digest(shelf: Shelf, build: Build) -> str:
    """The digest of all states of a build."""
    return digest_of_bytes((key, kept_state(data)) for key, data in _all_kept(shelf, build))


def _all_kept(shelf: Shelf, build: Build) -> Iterator[tuple[str, bytes]]:
    found = 0
    for found, row in enumerate(scan_kept(shelf, build), 1):  # noqa: B007 - counted
        yield row
    require_all(build, found)


def require_all(build: Build, found: int) -> None:
    """Refuse the rows of a build if there are not as many as were kept. Only of use while nobody changes them."""
    if 0 <= build.keys != found:
        raise LostRows(build.name, found, build.keys)


def letters_of(shelf: Shelf, build: Build) -> list[Letter]:
    """The dead letters of a build, in order of position."""
    space = build.letters
    return [_record(_letter, space, key, data, "a dead letter") for key, data in shelf.scan(space)]


def put_letters(change: ShelfWriter, build: Build, letters: Iterable[Letter], gone: Iterable[int] = ()) -> None:
    space = build.letters
    rows: dict[str, bytes | None] = {letter_key(position): None for position in gone}
    for letter in letters:
        key = letter_key(letter.position)
        rows[key] = seal_record(space, key, _encode(letter))
    change.put(space, rows)


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
    before = {key: _bits_of(kept.get(key, b"")) for key in bits}
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
    return {int(key): _bits_of(data) for key, data in shelf.scan(build.places) if key.isascii() and key.isdigit()}


def _bits_of(data: object) -> int:
    """The bits of a block; none of one that is damaged, so that the audit names its positions."""
    return int.from_bytes(data) if type(data) is bytes and len(data) == BLOCK // 8 else 0
