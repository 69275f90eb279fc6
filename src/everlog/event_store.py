"""The event store of seed 001 for asyncio, over any log.

    store = everlog.aio.EventStore(log, snapshots=Path("snapshots"))
    await store.append(Draft(type="note.added", stream="note/1", payload={"text": "hello"}))
    async for recorded in store.get_events_by_type("note.added"): ...
    name = await store.create_snapshot({"notes": 1})
    snapshot = await store.restore_from_snapshot(name)
    async for recorded in store.replay_from(snapshot): ...

An event is a Draft, or a dict with its fields or with the names of the seed; both may be mixed:

    {"event_type": "note.added", "event_id": "0196…", "timestamp": 1737700000000000000, "schema_version": 1,
     "payload": {…}, "metadata": {"source": "agent:a", "correlation_id": "…", "causation_id": "…", "tags": {…}}}

A seed's event has no stream. Its sequence counts per source, so that the stream is `source/SOURCE` if none is given.
The log computes sequence and checksum itself. A time is a datetime with a time zone or, as in the seed, a whole
number of nanoseconds since 1970.

A snapshot is a state that the caller has folded, the position that it has reached, and a checksum over both. Pass it
to `replay_from` to continue from there. After a purge, an older snapshot may contain purged data: it is removed when
it is requested, when the next snapshot is created, or at once by `remove_stale_snapshots`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from everlog import aio
from everlog.core.canonical import canonical, parse_json
from everlog.core.event import START, Position, Recorded
from everlog.core.ids import IdSource, parse_id
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset, proof_of
from everlog.errors import Damaged, EverlogError, HistoryChanged, InvalidField, NotFound
from everlog.files import DiskFiles, Files, replace_file
from everlog.log.log import Log
from everlog.log.read.resets import proof_at
from everlog.log.write.draft import Draft
from everlog.views.snapshots.file import FORMAT, decompress, pack, proved_lines

_logger = logging.getLogger("everlog")

_SNAPSHOT_NAME = re.compile(r"[0-9A-Z]{26}")
_SUFFIX = ".snapshot.gz"
_PAGE = 500
_NAMES = {"event_type": "type", "event_id": "id", "timestamp": "occurred_at", "source": "actor"}
_COMPUTED = frozenset(("schema_version", "sequence", "checksum"))
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Snapshot(msgspec.Struct, frozen=True):
    """A state that was folded up to a position of one copy of a log."""

    state: Any
    position: Position
    epoch: str
    log_id: str = ""
    proof: str = ""  # of the position: see `everlog.core.query.Cursor`


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the file; see `everlog.views.snapshots.file`."""

    format: int = FORMAT
    id: str
    log_id: str
    epoch: str
    position: Position
    proof: str = ""


_header_of = msgspec.json.Decoder(_Header).decode


class EventStore:
    """Appends and reads, with the names of seed 001. The order is that of positions, never that of clocks."""

    def __init__(self, log: Log, *, snapshots: Path | None = None, files: Files | None = None) -> None:
        self.log = log
        self._folder = snapshots
        self._files = files or DiskFiles()
        self._names = IdSource()

    async def append(self, event: Draft | Mapping[str, Any], *, key: str = "") -> Recorded:
        """Record one event. When it returns, the event is on the disk."""
        draft = draft_of(event)
        return (await aio.append_batch(self.log, [draft], key=key, operation=draft.type))[0]

    async def append_batch(self, events: Sequence[Draft | Mapping[str, Any]], *, key: str = "") -> Sequence[Recorded]:
        """Record all of them or none."""
        return await aio.append_batch(self.log, [draft_of(event) for event in events], key=key)

    def get_events(self, start_time: datetime | int, end_time: datetime | int) -> AsyncIterator[Recorded]:
        """Return the events that arrived from `start_time` on and before `end_time`, in order."""
        since, until = time_of(start_time, "start_time"), time_of(end_time, "end_time")
        return self._pages(Query(since=since, until=until), Cursor())

    def get_events_by_type(self, event_type: str) -> AsyncIterator[Recorded]:
        return self._pages(Query(types=frozenset([event_type])), Cursor())

    async def replay_from(self, start_event_id: str | Position | Snapshot = START) -> AsyncIterator[Recorded]:
        """Yield every event from an id on, with the event itself; or after a position; or after a snapshot."""
        start = start_event_id
        if isinstance(start, str):
            identity = await asyncio.to_thread(lambda: self.log.identity)
            first = await asyncio.to_thread(self.log.get, start)
            if first is None:
                raise NotFound(
                    f"there is no event {start}",
                    why="it was never recorded here, or it was purged",
                    hint="everlog log",
                )
            yield first
            proof = proof_of(first.event.id, identity.life_at(first.position))
            after = Cursor(first.position, START, identity.epoch, proof)
        elif isinstance(start, Snapshot):
            await asyncio.to_thread(self._require_fit, start, "given")
            after = _cursor_of(start)
        else:
            after = Cursor.of(start)
        async for recorded in self._pages(EVERYTHING, after):
            yield recorded

    async def create_snapshot(self, state: Any = None, *, position: Position | None = None) -> str:
        """Save a state that was folded up to a position, or up to the head, and return the name of the snapshot.

        A Snapshot has both. Without a state, the snapshot is only a place to replay from.
        """
        if isinstance(state, Snapshot):
            position = state.position if position is None else position
            state = state.state
        return await asyncio.to_thread(self._write, state, position)

    async def restore_from_snapshot(self, snapshot_id: str | Snapshot) -> Snapshot:
        """Return the state and its position. A snapshot that does not fit this log any more is refused."""
        if isinstance(snapshot_id, Snapshot):
            await asyncio.to_thread(self._require_fit, snapshot_id, "given")
            return snapshot_id
        return await asyncio.to_thread(self._read, snapshot_id)

    async def remove_stale_snapshots(self) -> list[str]:
        """Remove every snapshot that a purge or a restored copy has made invalid, and return their names."""
        return await asyncio.to_thread(self._remove_stale)

    # ---- internal

    async def _pages(self, query: Query, after: Cursor) -> AsyncIterator[Recorded]:
        upto = await asyncio.to_thread(self.log.head)  # up to the present head: it does not follow
        if not after.epoch and after.position >= upto:
            return
        cursor = after
        while True:
            page = await asyncio.to_thread(self._page, query, cursor)
            for recorded in page.events:
                if recorded.position > upto:
                    return
                yield recorded
            cursor = page.next_cursor
            if cursor.position >= upto:
                return

    def _page(self, query: Query, cursor: Cursor) -> Page:
        """Return the next page. A replay reads what is there, so a purge is no reset for it; another history is."""
        page = self.log.page_after(cursor, query, limit=_PAGE)
        while page.reset is not None and page.reset.reason == "purged":
            page = self.log.page_after(replace(cursor, knows=page.reset.cursor.position), query, limit=_PAGE)
        # Once more after it was read: another branch may have been checked out meanwhile.
        if page.reset is not None or page.next_cursor.epoch != self.log.identity.epoch:
            raise HistoryChanged(
                f"the log has another history than when this replay began, which is at position {cursor.position}",
                why="another branch of git was checked out, or another copy was put in its place",
                hint="replay again, from the beginning",
                reason="restored",
                cursor=str(cursor),
            )
        return page

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise InvalidField(
                "there is no folder for snapshots",
                why="the event store was created without one",
                hint="EventStore(log, snapshots=Path('snapshots'))",
                field="snapshots",
            )
        if _SNAPSHOT_NAME.fullmatch(name) is None:
            raise InvalidField(
                f"{name[:60]!r} is not the name of a snapshot",
                why="names of create_snapshot have 26 letters and digits",
                hint="use the name that create_snapshot returned",
                field="snapshot",
            )
        return self._folder / f"{name}{_SUFFIX}"

    def _write(self, state: Any, position: Position | None) -> str:
        (name,) = self._names.take(1)
        path = self._path(name)
        head = self.log.head()
        if position is None:
            position = head
        elif not 0 <= position <= head:
            raise InvalidField(
                f"the position is {position}",
                why=f"the log is at {head}",
                hint="give the position of the last event in the state",
                field="position",
            )
        identity = self.log.identity
        proof = proof_at(self.log.stored, Position(position))
        header = _Header(id=name, log_id=identity.log_id, epoch=identity.epoch, position=position, proof=proof)
        self._files.make_dir(path.parent)
        if self.log.stored.purges():
            self._remove_stale()
        replace_file(self._files, path, pack(header, canonical(state)))
        return name

    def _read(self, name: str) -> Snapshot:
        found = self._load(self._path(name), name)
        self._require_fit(found, name)
        return found

    def _require_fit(self, found: Snapshot, name: str) -> None:
        reason = self._stale(found)
        if reason:
            removed = "the snapshot is removed"
            if found.log_id != self.log.identity.log_id:
                removed = "it is of another log"
            try:
                self._remove_stale()
            except (OSError, EverlogError) as error:  # it is refused nevertheless
                removed = f"the snapshot could not be removed: {error}"
            raise NotFound(
                f"the snapshot {name} does not fit this log any more",
                why=f"history below position {found.position} was {reason}; {removed}",
                hint="fold the log from its start, and create a new snapshot",
            )

    def _remove_stale(self) -> list[str]:
        folder = self._folder
        if folder is None or not self._files.exists(folder):
            return []
        gone = []
        for file in self._files.names(folder):
            name = file.removesuffix(_SUFFIX)
            if name == file or _SNAPSHOT_NAME.fullmatch(name) is None:
                continue  # not a snapshot
            path = folder / file
            try:
                found = self._load(path, name)
                if found.log_id != self.log.identity.log_id:
                    continue  # of another log with snapshots in the same folder
                stale = self._stale(found)
            except Damaged as error:  # Restoring it reports the damage. The file is kept for inspection.
                _logger.warning("%s", error)
                continue
            except NotFound:
                continue  # another process has removed it
            if stale:
                with suppress(FileNotFoundError):  # likewise
                    self._files.unlink(path)
                    gone.append(name)
        if gone:
            self._files.fsync_dir(folder)
        return gone

    def _load(self, path: Path, name: str) -> Snapshot:
        try:
            data = decompress(self._files.read_all(path))
            if hashlib.sha256(data[32:]).digest() == data[:32]:
                return msgspec.convert(parse_json(data[32:]), Snapshot)  # the form of the first version
            line, content, _ = proved_lines(data)
            header = _header_of(line)
            if header.format != FORMAT:
                raise Damaged("it has another format", why=f"its format is {header.format}, not {FORMAT}")
        except FileNotFoundError as error:
            raise NotFound(
                f"there is no snapshot {name}", why=f"{path} is not there", hint="fold the log from its start"
            ) from error
        except (OSError, Damaged, msgspec.MsgspecError) as error:
            raise self._damaged(path, str(error)) from error
        return Snapshot(parse_json(content), header.position, header.epoch, header.log_id, header.proof)

    def _stale(self, found: Snapshot) -> str:
        """Return why it no longer fits: a purge or a restored copy changes the events of the state (G8)."""
        page = self.log.page_after(_cursor_of(found), limit=1)
        return str(page.reset.reason) if isinstance(page.reset, Reset) else ""

    @staticmethod
    def _damaged(path: Path, why: str) -> Damaged:
        return Damaged(f"{path} is damaged", why=why, hint="fold the log from its start, and create a new snapshot")


def _cursor_of(snapshot: Snapshot) -> Cursor:
    return Cursor(Position(snapshot.position), START, snapshot.epoch, snapshot.proof)


def draft_of(event: Draft | Mapping[str, Any]) -> Draft:
    """Return the draft of an event that is given as a draft or as a dict."""
    if isinstance(event, Draft):
        return event
    if not isinstance(event, Mapping):
        raise _unusable(f"an event cannot be a {type(event).__name__}")
    metadata = event.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise _unusable(f"the metadata of an event cannot be a {type(metadata).__name__}")
    fields: dict[str, Any] = {}
    for given in (metadata, event):  # the event itself comes last: its time and its source count
        for name, value in given.items():
            if name == "metadata" or name in _COMPUTED or value is None:
                continue
            own = _NAMES.get(name, name)
            if own not in Draft.__struct_fields__:
                raise _unusable(f"an event has no field {name!r}")
            fields[own] = value
    if "type" not in fields:
        raise _unusable("the event has no type")
    if "stream" not in fields:
        if not fields.get("actor"):
            raise _unusable("the event has neither a stream nor a source")
        fields["stream"] = f"source/{fields['actor']}"
    if "occurred_at" in fields:
        fields["occurred_at"] = time_of(fields["occurred_at"], "timestamp")
    for name in ("id", "causation_id"):
        if isinstance(fields.get(name), str) and _UUID.fullmatch(fields[name]):
            fields[name] = parse_id(fields[name])
    return Draft(**fields)


def time_of(value: object, field: str) -> datetime:
    """Return a time that is given as a datetime, or as a whole number of nanoseconds since 1970."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if type(value) is int:
        try:
            return _EPOCH + timedelta(microseconds=-(-value // 1000))  # up: an event just before it is not in it
        except OverflowError:
            pass
    raise InvalidField(
        f"{field} is {str(value)[:60]!r}",
        why="a time is a datetime with a time zone, or a whole number of nanoseconds since 1970",
        hint="datetime.now(UTC), or time.time_ns()",
        field=field,
    )


def _unusable(what: str) -> InvalidField:
    return InvalidField(
        what,
        why="an event is a Draft, or a dict with type, stream and payload, or with the names of the seed",
        hint='{"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}',
        field="event",
    )
