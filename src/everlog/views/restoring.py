"""From a build to a body and back: what a snapshot takes off the shelf, and what a restore puts there."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from everlog.core.canonical import canonical
from everlog.stores.shelf import MemoryShelf, Shelf, ShelfWriter
from everlog.views.builder import Builder
from everlog.views.checksums import DamagedRows
from everlog.views.incremental import Body
from everlog.views.letters import SKIPPED, Letter, parked_by
from everlog.views.rows import CausalOrder, Row, parsed_row, row_json, row_of, row_of_json
from everlog.views.snapshot_file import Header
from everlog.views.states import (
    Build,
    begin_build,
    letter_key,
    letters_of,
    put_build,
    put_letters,
    put_rows,
    read_build,
    scan_kept,
)
from everlog.views.view import View, digest_of_bytes

if TYPE_CHECKING:
    from everlog.log.log import Log

_TRIES = 5

_decode = msgspec.json.Decoder().decode
_letter = msgspec.json.Decoder(Letter).decode


def take(shelf: Shelf, builder: Builder) -> tuple[Build, Body]:
    """A build and all that is in it, as of one moment."""
    with builder.lock:
        builder.save()
        for _ in range(_TRIES):
            build = _current(shelf, builder)
            try:
                body = _collect(shelf, build)
            except DamagedRows as damaged:
                builder.mend(damaged.keys)
                continue
            if _current(shelf, builder).revision == build.revision:
                return build, body
        # Another process moves it on all the time: nobody may, for as long as this takes.
        with shelf.change():
            build = _current(shelf, builder)
            return build, _collect(shelf, build)


def _current(shelf: Shelf, builder: Builder) -> Build:
    return read_build(shelf, builder.build.name, builder.build.number) or builder.build


def _collect(shelf: Shelf, build: Build) -> Body:
    return {
        "rows": {key: row_json(data) for key, data in scan_kept(shelf, build)},
        "places": {key: b'"%b"' % data.hex().encode() for key, data in shelf.scan(build.places)},
        "letters": {
            letter_key(letter.position): canonical(msgspec.to_builtins(letter)) for letter in letters_of(shelf, build)
        },
    }


def put(change: ShelfWriter, view: View, header: Header, body: Body) -> Build:
    """A new build that stands where the snapshot stood; nobody is told of it yet."""
    begun = begin_build(change, view)
    build = replace(begun, cursor=header.cursor, applied=header.applied, stopped_at=header.stopped_at)
    build = replace(build, keys=len(body["rows"]))
    put_rows(change, view, build, {key: row_of_json(text) for key, text in body["rows"].items()})
    change.put(build.places, {key: bytes.fromhex(_decode(text)) for key, text in body["places"].items()})
    put_letters(change, build, letters_in(body))
    put_build(change, build)
    return build


def in_memory(log: Log, view: View, header: Header, body: Body) -> tuple[MemoryShelf, Builder]:
    """The same on a shelf that nobody else sees, to try out where a snapshot leads."""
    shelf = MemoryShelf()
    with shelf.change() as change:
        build = put(change, view, header, body)
    return shelf, Builder(log, shelf, view, build, live=False)


# ---- what a body says


def body_digest(body: Body) -> str:
    """The digest of all its states, as of a build."""
    return digest_of_bytes((key, bytes(parsed_row(text).state)) for key, text in sorted(body["rows"].items()))


def rows_of(body: Body, keys: Collection[str] | None = None) -> dict[str, Row]:
    rows = body["rows"]
    return {key: row_of(row_of_json(rows[key])) for key in (rows if keys is None else keys) if key in rows}


def letters_in(body: Body) -> list[Letter]:
    return [_letter(text) for _, text in sorted(body["letters"].items())]


def parked_in(body: Body) -> dict[str, CausalOrder]:
    return parked_by(letters_in(body))


def skipped_in(body: Body) -> set[int]:
    return {letter.position for letter in letters_in(body) if letter.what == SKIPPED}


def holds_any(body: Body, streams: Collection[str], *, by_stream: bool) -> bool:
    """Whether anything in a body came from one of these streams, or may have."""
    if any(letter.stream in streams for letter in letters_in(body)):
        return True
    if by_stream:
        return any(stream in body["rows"] for stream in streams)
    for text in body["rows"].values():
        sources = parsed_row(text).sources
        if sources is None or not streams_apart(sources, streams):
            return True
    return False


def streams_apart(some: Collection[str], others: Collection[str]) -> bool:
    return set(some).isdisjoint(others)
