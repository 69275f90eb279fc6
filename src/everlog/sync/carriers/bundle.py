"""A file that carries events from one node to another, and back.

    {"everlog":"bundle 1","heads":{…}}      what the node that wrote the file has
    {"community_id":…,"events":[…],…}       batches, one per line
    {"end":3}                               how many batches there are

A node that reads the file takes in its events. Then it writes the file again: its own heads, and what the node that
wrote the file lacks. So a file that goes back and forth has only what the other side still needs. A file that was
never read by anyone has everything.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from everlog.errors import BadFile
from everlog.files import DiskFiles, Files, replace_file_by
from everlog.sync.exchange import Node, Synced
from everlog.sync.heads import proven_equal
from everlog.sync.wire import MESSAGE_BYTES_MAX, Events, Heads, Rejected, decode, encode

MAGIC = "bundle 1"
_CHUNK = 1024 * 1024


class _First(msgspec.Struct):
    everlog: str
    heads: Heads


class _Last(msgspec.Struct):
    end: int


def sync_file(node: Node, path: Path, *, peer: str, files: Files | None = None) -> Synced:
    """Take in the events of a file, if it is there, and write what the other side lacks."""
    files = files or DiskFiles()
    began = time.monotonic()
    received, held = 0, 0
    rejected: list[Rejected] = []
    theirs: Heads | None = None
    if files.exists(path):
        for part in _read(files, path):
            if isinstance(part, Heads):
                node.require_same(part.community_id)
                theirs = part
                node.take_forks(part, peer=peer)
                continue
            node.require_same(part.community_id)
            taken = node.take(part, peer=peer)
            received += taken.recorded
            held += taken.held
            rejected += taken.rejected[: 100 - len(rejected)]
    ours = node.heads()
    spans, whole = node.all_spans(), theirs is None
    if theirs is not None:
        _, _, gives, unclear = node.plan(theirs, peer=peer)
        spans = spans if unclear else gives
        whole = unclear
    sent = 0

    def lines() -> Iterator[bytes]:
        nonlocal sent
        yield msgspec.json.encode(_First(MAGIC, ours)) + b"\n"
        count = 0
        for batch in node.batches(spans):
            yield encode(batch) + b"\n"
            count += 1
            sent += len(batch.events)
        yield msgspec.json.encode(_Last(count)) + b"\n"

    replace_file_by(files, path, lines())
    return Synced(
        sent_count=sent,
        received_count=received,
        duration_ms=int((time.monotonic() - began) * 1000),
        round_trips=0,
        equal=theirs is not None and not whole and proven_equal(ours, theirs),
        held=held,
        rejected=rejected,
    )


def _read(files: Files, path: Path) -> Iterator[Heads | Events]:
    """Return the heads and the batches of a file; refuse one that is not whole."""
    count, ended = 0, False
    for number, line in enumerate(_lines(files, path), 1):
        if number == 1:
            first = _decoded(line, _First, path)
            if first.everlog != MAGIC:
                raise _bad(path, f"it is of the kind {first.everlog[:40]!r}, and {MAGIC!r} is read here")
            yield first.heads
        elif line.startswith(b'{"end":'):
            ended = _decoded(line, _Last, path).end == count
        else:
            yield decode(line, Events)
            count += 1
    if not ended:
        raise _bad(path, "it ends too early; what is before that was taken in, and the file was not changed")


def _decoded(line: bytes, shape: type[_First] | type[_Last], path: Path) -> Any:
    try:
        return msgspec.json.decode(line, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _bad(path, str(error)[:200]) from error


def _lines(files: Files, path: Path) -> Iterator[bytes]:
    handle = files.open(path)
    try:
        at, rest = 0, b""
        while piece := files.read(handle, _CHUNK, at=at):
            at += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
            if len(rest) > MESSAGE_BYTES_MAX:
                raise _bad(path, "it has a line that is longer than any batch")
        if rest:
            raise _bad(path, "it ends in the middle of a line; what is before that was taken in")
    finally:
        files.close(handle)


def _bad(path: Path, why: str) -> BadFile:
    return BadFile(
        f"{path} is not a file of everlog sync, or not all of it",
        why=why,
        hint=f"on the other side, type: everlog sync {path.name}; or name a new file here",
        path=str(path),
    )
