"""A file that carries events from one node to another, and back.

    {"everlog":"bundle 1","heads":{…}}      what the node that wrote the file has
    {"community_id":…,"events":[…],…}       batches, one per line
    {"end":3}                               how many batches there are

A node that reads the file takes in its events. Then it writes the file again: its own heads, and what the node that
wrote the file lacks. So a file that goes back and forth has only what the other side still needs. A file that was
never read by anyone has everything. In a folder that several nodes share, each node writes one file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from everlog.errors import BadFile
from everlog.files import DiskFiles, Files, replace_file_by
from everlog.sync.exchange import Node, Synced
from everlog.sync.heads import proven_equal
from everlog.sync.wire import MESSAGE_BYTES_MAX, Events, Heads, Rejected, decode, encode

MAGIC = "bundle 1"
SUFFIX = ".everlog-sync"
"""How the names of the files in a shared folder end."""

_CHUNK = 1024 * 1024


class _First(msgspec.Struct):
    everlog: str
    heads: Heads


class _Last(msgspec.Struct):
    end: int


def sync_file(node: Node, path: Path, *, peer: str, files: Files | None = None) -> Synced:
    """Take in the events of a file, if it is there, and write what the other side lacks."""
    files = files or DiskFiles()
    read = read_files(node, [path] if files.exists(path) else [], peer=peer, files=files)
    return write_file(node, path, read, peer=peer, files=files)


def sync_folder(node: Node, folder: Path, *, peer: str, files: Files | None = None) -> Synced:
    """Exchange events by a folder that several nodes share: each writes one file, and reads those of the others."""
    files = files or DiskFiles()
    own = folder / f"{node.log.identity.origin}{SUFFIX}"
    others = [folder / name for name in sorted(files.names(folder)) if name.endswith(SUFFIX) and name != own.name]
    read = read_files(node, others, peer=peer, files=files)
    return write_file(node, own, read, peer=peer, files=files)


class Read:
    """What was taken in from files, and the heads of the nodes that wrote them."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.heads: list[Heads] = []
        self.received = 0
        self.held = 0
        self.rejected: list[Rejected] = []


def read_files(node: Node, paths: Sequence[Path], *, peer: str, files: Files) -> Read:
    """Take in the events of files."""
    found = Read()
    for path in paths:
        for part in _read(files, path):
            node.require_same(part.community_id)
            if isinstance(part, Heads):
                found.heads.append(part)
                node.take_forks(part, peer=peer)
                continue
            taken = node.take(part, peer=peer)
            found.received += taken.recorded
            found.held += taken.held
            found.rejected += taken.rejected[: 100 - len(found.rejected)]
    if found.received:
        node.follow_forgets()  # what came may be sealed with a key that was destroyed here
    return found


def write_file(node: Node, path: Path, read: Read, *, peer: str, files: Files) -> Synced:
    """Write what at least one of the nodes lacks whose heads were read; all events if there are none."""
    ours = node.heads()
    spans, whole = node.all_spans(), not read.heads
    if read.heads:
        plans = [node.plan(theirs, peer=peer) for theirs in read.heads]
        whole = any(unclear for _, _, _, unclear in plans)
        spans = spans if whole else list(dict.fromkeys(span for _, _, gives, _ in plans for span in gives))
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
        received_count=read.received,
        duration_ms=int((time.monotonic() - read.began) * 1000),
        round_trips=0,
        equal=not whole and all(proven_equal(ours, theirs) for theirs in read.heads),
        held=read.held,
        rejected=read.rejected,
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
