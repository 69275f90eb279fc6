"""From a stored build to the body of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from everlog.core.canonical import canonical
from everlog.log.dead_letters import SKIPPED
from everlog.stores.small_state import MemoryState, SmallState, StateChanges
from everlog.views.advance import ENDS, Advance
from everlog.views.builds.build import Build, begin_build, put_build, read_build
from everlog.views.builds.content import (
    BLOCK,
    blocks_of,
    dead_letters_of,
    letter_key,
    put_letters,
    put_rows,
    scan_kept,
)
from everlog.views.builds.open_build import OpenBuild
from everlog.views.builds.rows import CausalOrder, DamagedRows, Row, parsed_row, row_json, row_of, row_of_json
from everlog.views.dead_letters import ViewLetter, parked_by
from everlog.views.snapshots.file import SnapshotHeader
from everlog.views.snapshots.patch import Body
from everlog.views.view import View, digest_of_bytes

if TYPE_CHECKING:
    from everlog.log.log import Log

_TRIES = 5

_decode = msgspec.json.Decoder().decode
_letter = msgspec.json.Decoder(ViewLetter).decode


def take(small_state: SmallState, opened: OpenBuild) -> tuple[Build, Body] | Advance:
    """Return a build and everything in it, as of one moment; or REBUILD or GONE if it cannot be read."""
    with opened.lock:
        saved = opened.save()
        if saved in ENDS:
            return saved
        for _ in range(_TRIES):
            build = _current(small_state, opened)
            try:
                body = _collect(small_state, build)
            except DamagedRows as damaged:
                mended = opened.mend(damaged.keys)
                if mended in ENDS:
                    return mended
                continue
            if _current(small_state, opened).revision == build.revision:
                return build, body
        # Another process changes it all the time: nobody may, for as long as this takes.
        with small_state.change():
            build = _current(small_state, opened)
            return build, _collect(small_state, build)


def _current(small_state: SmallState, opened: OpenBuild) -> Build:
    return read_build(small_state, opened.build.name, opened.build.number) or opened.build


def _collect(small_state: SmallState, build: Build) -> Body:
    return {
        "rows": {key: row_json(data) for key, data in scan_kept(small_state, build)},
        "places": {key: b'"%b"' % data.hex().encode() for key, data in small_state.scan(build.places)},
        "letters": {
            letter_key(letter.position): canonical(msgspec.to_builtins(letter))
            for letter in dead_letters_of(small_state, build)
        },
    }


def places_of(positions: Sequence[int]) -> dict[str, bytes]:
    """Return the section for applied positions, which are given in order."""
    blocks = {key: found.to_bytes(BLOCK // 8) for key, found in blocks_of(positions).items()}
    return {key: b'"%b"' % data.hex().encode() for key, data in blocks.items()}


def put(change: StateChanges, view: View, header: SnapshotHeader, body: Body) -> Build:
    """Store a new build with the content of a snapshot, and return it. It is not active."""
    begun = begin_build(change, view, header.standing, header.forgets)
    build = replace(begun, cursor=header.cursor, applied=header.applied, stopped_at=header.stopped_at)
    build = replace(build, keys=len(body["rows"]))
    put_rows(change, view, build, {key: row_of_json(text) for key, text in body["rows"].items()})
    change.put(build.places, {key: bytes.fromhex(_decode(text)) for key, text in body["places"].items()})
    put_letters(change, build, letters_in(body))
    put_build(change, build)
    return build


def in_memory(log: Log, view: View, header: SnapshotHeader, body: Body) -> tuple[MemoryState, OpenBuild]:
    """Open such a build in memory only, to see where a snapshot leads."""
    small_state = MemoryState()
    with small_state.change() as change:
        build = put(change, view, header, body)
    return small_state, OpenBuild(log, small_state, view, build, live=False)


# ---- the content of a body


def body_digest(body: Body) -> str:
    """Return the digest of all states of a body, equal to that of its build."""
    return digest_of_bytes((key, bytes(parsed_row(text).state)) for key, text in sorted(body["rows"].items()))


def rows_of(body: Body, keys: Collection[str] | None = None) -> dict[str, Row]:
    rows = body["rows"]
    return {key: row_of(row_of_json(rows[key])) for key in (rows if keys is None else keys) if key in rows}


def letters_in(body: Body) -> list[ViewLetter]:
    return [_letter(text) for _, text in sorted(body["letters"].items())]


def parked_in(body: Body) -> dict[str, CausalOrder]:
    return parked_by(letters_in(body))


def skipped_in(body: Body) -> set[int]:
    return {letter.position for letter in letters_in(body) if letter.what == SKIPPED}


def holds_any(body: Body, streams: Collection[str], *, by_stream: bool) -> bool:
    """Return whether anything in a body came, or may have come, from one of these streams."""
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
