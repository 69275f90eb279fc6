"""A small log in files, as it was at two moments, and every way of reading it.

The log has work packages, notes, an issue, a purge, kept views, a snapshot and a group of consumers. It has several
day files, or several segment files of which some are packed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from everlog import aio, wiring
from everlog.cli.main import main
from everlog.consumers.group import Group
from everlog.core.event import Position, Recorded
from everlog.core.query import EVERYTHING, Query
from everlog.log.log import Log
from everlog.programs.perform import perform
from everlog.programs.workpackages.commands import Create
from everlog.programs.workpackages.views import Board
from everlog.stores.contract import Block, Scanning, Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.views.registry import Views

KINDS = ("sqlite", "sqlite with a journal", "jsonl", "segments")
DAY_US = 24 * 3_600_000_000
START_US = 1_750_000_000_000_000

IDS = "ids.json"

Answer = Any


class Clock:
    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        self.now_us += 1000
        return self.now_us


@dataclass
class World:
    """`folder` holds the log as it is, `older` the files as they were before the last third of the events."""

    kind: str
    folder: Path
    older: Path
    expected: dict[str, Answer] = field(default_factory=dict)
    older_expected: dict[str, Answer] = field(default_factory=dict)

    def files(self) -> list[str]:
        """Every file of the store, relative to the folder; locks hold nothing."""
        root = self.folder / ".everlog"
        return sorted(
            str(path.relative_to(self.folder))
            for path in root.rglob("*")
            if path.is_file() and "lock" not in path.name and path.suffix != ".toml" and path.name[0] != "."
        )


def make_world(kind: str, folder: Path) -> World:
    work = folder / "work"
    work.mkdir(parents=True)
    url = {"jsonl": "jsonl:data", "segments": "segments:data"}.get(kind, "sqlite:log.db")
    code, _, err = run(work, "init", "--store", url)
    assert code == 0, err
    clock = Clock()
    for number in range(6):
        _write_some(work, kind, clock, number)
        clock.now_us += DAY_US
        if number == 3:
            _read_once(work)
            shutil.copytree(work, folder / "older")
    _archive(work, kind, clock)
    _read_once(work)
    if kind == "sqlite with a journal":
        work = _killed(work, folder / "killed")
    with wiring.open_folder(work / ".everlog") as log:
        ids = json.dumps([one.event.id for one in log.read()][::7])
    for place in (work, folder / "older"):
        (place / IDS).write_text(ids)
    world = World(kind, work, folder / "older")
    world.expected = {name: path(copied(world.folder, folder / "scratch")) for name, path in PATHS.items()}
    world.older_expected = {name: path(copied(world.older, folder / "scratch")) for name, path in PATHS.items()}
    return world


def _open(work: Path, kind: str, clock: Callable[[], int]) -> Store:
    place = work / ".everlog"
    if kind.startswith("sqlite"):
        return SqliteStore(place / "log.db", now_us=clock)
    if kind == "jsonl":
        return JsonlStore(place / "data", now_us=clock)
    return SegmentsStore(place / "data", now_us=clock, segment_hours_max=20)


def _write_some(work: Path, kind: str, clock: Callable[[], int], number: int) -> None:
    with wiring.open_folder(work / ".everlog") as wired:
        catalog = wired.catalog
    with Log(_open(work, kind, clock), catalog, actor="user:ada", now_us=clock, make_views=Views) as log:
        for count in range(3):
            perform(log, Create(id=f"WP{number}{count}", title="A package"))
        for count in range(4):
            log.append("note.added", stream=f"note/{count}", payload={"text": f"note {number}-{count}"}, scope="acme")
        if number == 2:
            log.purge("note/3", reason="test")


def _archive(work: Path, kind: str, clock: Clock) -> None:
    if kind == "segments":
        store = SegmentsStore(work / ".everlog" / "data", now_us=clock)
        assert store.archive(days=3)
        store.close()


def _killed(work: Path, to: Path) -> Path:
    """The log as a writer leaves it that ended without closing it: the newest events are in the journal."""
    with wiring.open_folder(work / ".everlog") as log:
        for count in range(3):
            perform(log, Create(id=f"WP9{count}", title="A package"))
        return Path(shutil.copytree(work, to))


def _read_once(work: Path) -> None:
    """Let views, a snapshot and a group keep what they derive."""
    with wiring.open_folder(work / ".everlog") as log:
        list(log.view(Board).items())
        log.view(Board).snapshot()
        group = Group(log, "readers", Query(kind="note"))
        with group.member("one") as member:
            for count, delivery in enumerate(member.deliveries(to_end=True)):
                delivery.ack()
                if count == 5:
                    break


def copied(source: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)
    return to


def run(work: Path, *arguments: str) -> tuple[int, str, str]:
    """A command in a folder, in this process."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["-C", str(work), *arguments])
        out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


# ---- the ways of reading: each gives something that can be compared, or raises


def _facts(records: Any) -> list[tuple[int, str]]:
    return [(one.position, one.event.stream) for one in records]


def _with_log(read: Callable[[Log], Answer]) -> Callable[[Path], Answer]:
    def opened(work: Path) -> Answer:
        with wiring.open_folder(work / ".everlog") as log:
            return read(log)

    return opened


class Refused(Exception):
    """A command ended with a code of everlog's."""


def _command(*arguments: str, shows: str) -> Callable[[Path], Answer]:
    """A command, and what of its output says which events it is about."""

    def ask(work: Path) -> Answer:
        code, out, err = run(work, *arguments)
        if code == 1 or "Traceback" in err:
            raise AssertionError(f"{arguments} failed in a way it should not: {err}")
        if code:
            raise Refused(f"{code}: {err}")
        return re.findall(shows, out)

    return ask


_POSITIONS = r'"position":(\d+)'


def _pages(log: Log) -> Answer:
    found: list[Recorded] = []
    cursor: Any = 0
    while True:
        page = log.page_after(cursor, limit=5)
        found += page.events
        cursor = page.next_cursor
        if page.at_head:
            return _facts(found)


def _async(log: Log) -> Answer:
    async def follow() -> Answer:
        return _facts([one async for one in aio.subscribe(log, 0, to_end=True)])

    return asyncio.run(follow())


def _slabs(log: Log) -> Answer:
    def rows(block: Block) -> Iterator[int]:
        return iter(block.positions)

    store = log._store
    assert isinstance(store, Scanning)
    return [position for block in store.blocks(EVERYTHING) for position in rows(block)]


def _ids(work: Path) -> Answer:
    with wiring.open_folder(work / ".everlog") as log:
        found = [log.get(name) for name in json.loads((work / IDS).read_text())]
    return [None if one is None else one.position for one in found]


def _consumer(log: Log) -> Answer:
    group = Group(log, "others", Query(kind="note"))
    with group.member("one") as member:
        found = []
        for delivery in member.deliveries(to_end=True):
            found.append(delivery.recorded)
            delivery.ack()
        return sorted(_facts(found))


def _board(log: Log) -> Answer:
    return [key for key, _ in log.view(Board).items()]


def _rebuilt(log: Log) -> Answer:
    log.view(Board).rebuild()
    return _board(log)


def _as_of(log: Log) -> Answer:
    head = log.head()
    return [log.view(Board).get(f"workpackage/WP{number}1", as_of=head).found for number in range(6)]


def _as_of_fields(log: Log) -> Answer:
    return [log.view("fields").get(f"note/{count}", as_of=log.head()).found for count in range(4)]


def _query(query: Query, **how: Any) -> Callable[[Log], Answer]:
    return lambda log: _facts(log.read(query, **how))


PATHS: dict[str, Callable[[Path], Answer]] = {
    "read": _with_log(_query(EVERYTHING)),
    "read backwards": _with_log(_query(EVERYTHING, newest_first=True)),
    "read a type": _with_log(_query(Query(types=frozenset(["note.added"])))),
    "read a stream": _with_log(_query(Query(stream="note/1"))),
    "read a scope": _with_log(_query(Query(scope="acme"))),
    "read a kind": _with_log(_query(Query(kind="workpackage"))),
    "read a part": _with_log(_query(EVERYTHING, after=Position(20), limit=10)),
    "pages": _with_log(_pages),
    "subscribe": _with_log(lambda log: _facts(log.subscribe(0, to_end=True))),
    "asyncio": _with_log(_async),
    "blocks": _with_log(_slabs),
    "get": _ids,
    "view": _with_log(_board),
    "rebuild": _with_log(_rebuilt),
    "as of": _with_log(_as_of),
    "fields as of": _with_log(_as_of_fields),
    "consumer": _with_log(_consumer),
    "log": _command("log", "--after", "0", "--limit", "1000", "--json", shows=_POSITIONS),
    "log to end": _command("log", "--to-end", "--json", shows=_POSITIONS),
    "tail": _command("tail", "--no-follow", "-n", "1000", shows=r"(?m)^(\d+)\t"),
    "show": _command("show", "#9", "--json", shows=_POSITIONS),
    "state": _command("state", "note/1", "--json", shows=r'"events":\d+'),
    "board": _command("wp", "board", shows=r"WP\d\d\tA"),
    "board in JSON": _command("wp", "board", "--json", shows=r'"id":"WP\d\d"'),
    "export": _command("export", "-q", shows=_POSITIONS),
}


def in_a_clean_place(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Nothing of this machine steers the commands."""
    for name in list(os.environ):
        if name.startswith(("EVERLOG_", "XDG_")) or name in ("NO_COLOR", "COLUMNS"):
            patch.delenv(name)
    patch.setenv("HOME", str(home))
