"""A small log in files, as it was at two moments; `paths` has the ways of reading it.

The log has work packages, notes, events of other nodes (`others`), a purge, kept views, a snapshot, a tree and a
group of consumers. It has several day files, or several segment files of which some are packed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.damage import others
from tests.damage.paths import IDS, PATHS, Answer, run

from everlog import wiring
from everlog.application.trust.checkpoints import make_checkpoint
from everlog.consumers.group import Group
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.programs.perform import perform
from everlog.programs.workpackages.commands import Create
from everlog.programs.workpackages.views import Board
from everlog.stores.contract import Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.views.registry import Views

KINDS = ("sqlite", "sqlite with a journal", "jsonl", "segments")
DAY_US = 24 * 3_600_000_000
START_US = 1_750_000_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        self.now_us += 1000
        return self.now_us


@dataclass
class World:
    """`folder` holds the log as it is, `older` the files as they were before the last third of the events.

    `moments` has the answers of each moment that a log without a part of its journal may go back to.
    """

    kind: str
    folder: Path
    older: Path
    expected: dict[str, Answer] = field(default_factory=dict)
    older_expected: dict[str, Answer] = field(default_factory=dict)
    moments: list[dict[str, Answer]] = field(default_factory=list)

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
    moments: list[Path] = []
    if kind == "sqlite with a journal":
        *moments, work = _killed(work, folder / "killed")
    with wiring.open_folder(work / ".everlog") as log:
        ids = json.dumps([one.event.id for one in log.read()][::7])
    for place in (work, folder / "older", *moments):
        (place / IDS).write_text(ids)
    world = World(kind, work, folder / "older")
    world.expected, world.older_expected, *world.moments = (
        {name: path(copied(place, folder / "scratch")) for name, path in PATHS.items()}
        for place in (work, folder / "older", *moments)
    )
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
        if number == 1:
            others.send_first(log)
        if number == 2:
            log.purge(others.PURGED, reason="test")
        if number == 4:
            others.send_last(log)


def _archive(work: Path, kind: str, clock: Clock) -> None:
    if kind == "segments":
        store = SegmentsStore(work / ".everlog" / "data", now_us=clock)
        assert store.archive(days=3)
        store.close()


def _killed(work: Path, to: Path) -> list[Path]:
    """The log as a writer leaves it that ended without closing it: the newest events are in the journal. Before that,
    the log as it was before each of these events."""
    moments = [Path(shutil.copytree(work, to / "0"))]
    with wiring.open_folder(work / ".everlog") as log:
        for count in range(3):
            perform(log, Create(id=f"WP9{count}", title="A package"))
            moments.append(Path(shutil.copytree(work, to / f"{count + 1}")))
    return moments


def _read_once(work: Path) -> None:
    """Let views, a snapshot, the tree and a group keep what they derive."""
    with wiring.open_folder(work / ".everlog") as log:
        make_checkpoint(log, None)
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


def in_a_clean_place(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Nothing of this machine steers the commands."""
    for name in list(os.environ):
        if name.startswith(("EVERLOG_", "XDG_")) or name in ("NO_COLOR", "COLUMNS"):
            patch.delenv(name)
    patch.setenv("HOME", str(home))
