"""The builds of a view, stored in the small state of a log.

A build is one derivation of a view from the beginning: its rows, its cursor, its dead letters and the positions that
it has applied, all changed together. A view has one active build, which answers. A rebuild makes another build beside
it and activates that one in one change; the build before is kept for `rollback`.

    views             NAME -> which builds there are, and which one is active
    builds            NAME#N -> version, cursor, counts, where it stopped
    NAME#N            KEY -> a row: state, count, order, sources, checksum
    NAME#N places     block of 1024 positions -> a bit for each that was applied
    NAME#N letters    position -> a dead letter

A record (the first two, and a dead letter) is JSON that begins with a checksum: `{"sum":"0123abcd", …}`, the CRC-32
of the space, the key and the bytes after it. If it does not match, DamagedRecord is raised, and everything that is
stored for the view is removed and derived again, because the record says how far the view is. The checksums of rows
are described in `everlog.views.builds.rows`.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import Damaged, EverlogError
from everlog.stores.small_state import SmallState, StateChanges, StateReader
from everlog.views.builds.fingerprint import code_fingerprint, is_code_of
from everlog.views.builds.rows import UNREADABLE
from everlog.views.dead_letters import ViewLetter
from everlog.views.view import View

_logger = logging.getLogger("everlog")

VIEWS, BUILDS = "views", "builds"
SEVERAL = "several"


class Names(msgspec.Struct, frozen=True):
    """The builds of one view."""

    active: int = 0  # 0: none yet
    previous: int = 0  # what `rollback` goes back to
    last: int = 0  # the greatest number that was given


class Build(msgspec.Struct, kw_only=True, frozen=True):
    """One stored derivation of a view. `revision` grows with every change, so that other processes notice it."""

    name: str
    number: int
    version: int
    code: str = ""  # the fingerprint of the code that made its states, or SEVERAL; empty in an old build
    by_stream: bool = False  # its keys are streams, so a purge can be followed without the view's code
    cursor: str = ""
    revision: int = 0
    applied: int = 0
    changed_us: int = 0
    stopped_at: int = 0  # the event at which it waits, because its key cannot be determined
    complete: bool = False  # it has reached the head once, and may answer
    sealed: bool = False  # every row has a checksum; False in a build of an earlier version
    keys: int = -1  # the number of rows; -1 if an earlier version did not count them
    mended: int = 0  # rows that did not match their checksums and were folded again
    mended_us: int = 0  # when that last happened
    standing: str = ""  # the verdicts on chains (`Log.verdicts`) that its states follow
    forgets: int = 0  # how often somebody was forgotten (`Log.forgets`), as far as its states follow

    def is_of(self, view: View) -> bool:
        """Return whether its states were made by this code, as far as that is known."""
        return self.version == view.version and (not self.code or is_code_of(view, self.code))

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
        return _cursor_of(self.cursor) if self.cursor else Cursor()

    @property
    def position(self) -> Position:
        return self.reached.position


_cursor_of = lru_cache(maxsize=256)(Cursor.of)  # every answer reads the same cursor several times
_names = msgspec.json.Decoder(Names)
_build = msgspec.json.Decoder(Build)
_encode = msgspec.json.Encoder().encode

_EARLIER: dict[Any, tuple[bytes, ...]] = {
    Names: (b'{"active":',),
    Build: (b'{"name":',),
    ViewLetter: (b'{"position":', b'{"at_us":', b'{"id":'),
}
"""How records of an earlier version begin, which have no checksum."""

_Record = TypeVar("_Record")
_SUM = b'{"sum":"'
_BODY = len(_SUM) + 8 + len(b'",')


class DamagedRecord(Damaged):
    """A record of a view, such as which build answers, that cannot be read."""

    def __init__(self, view: str, what: str) -> None:
        super().__init__(
            f"{what} of the view {view} is damaged",
            why="what the view stores was changed or damaged on disk; the events are not affected",
            hint=f"everlog views rebuild {view}",
            view=view,
        )


def decode_record(decoder: msgspec.json.Decoder[_Record], space: str, key: str, data: bytes, what: str) -> _Record:
    if record_matches(space, key, data, earlier=_EARLIER[decoder.type]):
        try:
            return decoder.decode(data)
        except UNREADABLE:  # a record of an earlier version, without a checksum
            pass
    name = key if space == VIEWS else (key if space == BUILDS else space).rpartition("#")[0]
    raise DamagedRecord(name, what)


@lru_cache(maxsize=256)  # every answer needs these two records, which rarely change between answers
def _names_of(name: str, data: bytes) -> Names:
    return decode_record(_names, VIEWS, name, data, "the list of builds")


@lru_cache(maxsize=256)
def _build_of(key: str, data: bytes) -> Build:
    build = decode_record(_build, BUILDS, key, data, "the record of a build")
    if not build.sealed and not _can_be_of(build, key):
        raise DamagedRecord(key.rpartition("#")[0], "the record of a build")
    return build


def _can_be_of(build: Build, key: str) -> bool:
    """Return whether a record without a checksum is plausible."""
    try:
        return build.rows == key and build.position >= 0
    except EverlogError:  # its cursor is not a cursor
        return False


def seal_record(space: str, key: str, record: bytes) -> bytes:
    """Add its checksum to a JSON object."""
    body = record[1:]
    return b'{"sum":"%08x",%b' % (_sum(space, key, body), body)


def record_matches(space: str, key: str, data: object, *, earlier: tuple[bytes, ...]) -> bool:
    """Return whether the bytes of a record are those that were stored. A record of an earlier version has no
    checksum, and begins with one of `earlier`."""
    if type(data) is not bytes:
        return False
    if not data.startswith(_SUM):
        return data.startswith(earlier)
    return data[len(_SUM) : _BODY] == b'%08x",' % _sum(space, key, data[_BODY:])


def _sum(space: str, key: str, body: bytes) -> int:
    return crc32(body, crc32(f"{space}\n{key}\n".encode()))


# ---- names and builds


def read_names(small_state: StateReader, name: str) -> Names:
    found = small_state.get(VIEWS, name)
    return Names() if found is None else _names_of(name, found)


def put_names(change: StateChanges, name: str, names: Names) -> None:
    change.put(VIEWS, {name: seal_record(VIEWS, name, _encode(names))})


def read_build(small_state: StateReader, name: str, number: int) -> Build | None:
    key = f"{name}#{number}"
    found = small_state.get(BUILDS, key)
    return None if found is None else _build_of(key, found)


def put_build(change: StateChanges, build: Build) -> None:
    change.put(BUILDS, {build.rows: seal_record(BUILDS, build.rows, _encode(build))})


def every_name(small_state: SmallState) -> list[str]:
    """Return the names of all views that have ever stored anything here."""
    return [name for name, _ in small_state.scan(VIEWS)]


def builds_of(small_state: SmallState, name: str) -> list[Build]:
    found = (
        _build_of(key, data) for key, data in small_state.scan(BUILDS, after=name + "#") if key.startswith(name + "#")
    )
    return sorted(found, key=lambda build: build.number)


def active_build(small_state: StateReader, name: str) -> Build | None:
    names = read_names(small_state, name)
    while names.active:
        build = read_build(small_state, name, names.active)
        if build is not None:
            return build
        before = names
        names = read_names(small_state, name)  # another build may have been activated between the two reads
        if names == before:
            break
    return None


def begin_build(change: StateChanges, view: View, standing: str = "", forgets: int = 0) -> Build:
    """Store a new, empty build of a view, and return it. It is not active."""
    names = read_names(change, view.name)
    build = Build(
        name=view.name,
        number=names.last + 1,
        version=view.version,
        code=code_fingerprint(view),
        by_stream=view.by_stream,
        sealed=True,
        keys=0,
        standing=standing,
        forgets=forgets,
    )
    for space in build.spaces:
        change.clear(space)  # of a build of this number whose record was lost
    put_names(change, view.name, msgspec.structs.replace(names, last=build.number))
    put_build(change, build)
    return build


def several(build: Build) -> str:
    """Return the `code` of a build that other code continues; if it was unknown, it stays unknown."""
    return build.code and SEVERAL


def drop_build(change: StateChanges, build: Build) -> None:
    change.put(BUILDS, {build.rows: None})
    for space in build.spaces:
        change.clear(space)


def forget_view(small_state: SmallState, name: str) -> None:
    """Remove everything that is stored for a view. It is derived again when it runs."""
    with small_state.change() as change:
        change.scrub = True
        last = 0
        for key in [key for key, _ in small_state.scan(BUILDS, after=name + "#") if key.startswith(name + "#")]:
            number = key.rpartition("#")[2]
            last = max(last, int(number) if number.isascii() and number.isdigit() else 0)
            change.put(BUILDS, {key: None})
            for space in (key, key + " places", key + " letters"):
                change.clear(space)
        put_names(change, name, Names(last=last))
