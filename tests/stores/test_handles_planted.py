"""Defects that two handles met, put back: the machine must find each of them, or it means nothing.

The handles of this process have the defect, and the process beside them has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace
from tests.stores.handle_logs import make_small
from tests.stores.test_handles import JsonlMachine, SegmentsMachine, SqliteMachine, nursery
from tests.support.handles import Nursery
from tests.support.handles_machine import HandlesMachine

from everlog.errors import LogClosed, WriterStopped
from everlog.files import Files
from everlog.log.read import follow as following
from everlog.stores.jsonl.day_files import OpenDayFile
from everlog.stores.jsonl.index.pending import Pending
from everlog.stores.jsonl.index.rows import Rows
from everlog.stores.jsonl.index.update import IndexUpdater
from everlog.stores.jsonl.lines import EventLine, Line
from everlog.stores.segments.format.frames import Walk
from everlog.stores.segments.state import LogState
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.connection import Registry

__all__ = ["nursery"]

SEQUENCES, SEQUENCES_WITHOUT = 600, 5
NEVER: Any = None
"""In the place of a rule: these plans are about few of them, and the others would only take time."""


class FewJsonlRules(JsonlMachine):
    copy = kill = kill_while_it_writes = fail_a_flush = race = maintain = live_view = follow_and_close = NEVER
    page = read = view = append_keyed = lose_the_clock_file = NEVER


class ClockRules(JsonlMachine):
    copy = kill = kill_while_it_writes = fail_a_flush = live_view = follow_and_close = page = read = view = NEVER
    append_keyed = append_as_expected = head = look = race = reopen = NEVER


class FewSegmentsRules(SegmentsMachine):
    copy = kill = kill_while_it_writes = race = live_view = follow_and_close = page = read = append_keyed = NEVER


class FewSqliteRules(SqliteMachine):
    copy = kill = kill_while_it_writes = race = live_view = page = read = view = append_keyed = append = NEVER
    follow_and_close = NEVER


class Followed(SqliteMachine):
    copy = kill = kill_while_it_writes = race = live_view = page = read = view = append_keyed = NEVER


def unlinked_file(patch: pytest.MonkeyPatch) -> None:
    real = OpenDayFile.open

    def by_name(self: OpenDayFile, name: str) -> bool:
        return False if self._handle is not None and self.name == name else real(self, name)

    patch.setattr(OpenDayFile, "open", by_name)


def stale_positions(patch: pytest.MonkeyPatch) -> None:
    """What is remembered is dropped only if the write itself notices that somebody wrote."""
    real = IndexUpdater.begin_write

    def begin_write(self: Any) -> None:
        changed = self._index is None or self._fingerprint() != self._seen
        real(self)
        self.rounds = getattr(self, "rounds", 0) + changed

    patch.setattr(IndexUpdater, "begin_write", begin_write)
    patch.setattr(IndexUpdater, "seen", property(lambda self: getattr(self, "rounds", 0)))


def no_catching_up(patch: pytest.MonkeyPatch) -> None:
    """A write goes on from what it remembers, whatever others have appended."""
    real = IndexUpdater._may_go_on

    def may_go_on(self: Any) -> bool:
        return real(self) or (self._checked_branch is not None and self._seen is not None)

    patch.setattr(IndexUpdater, "_may_go_on", may_go_on)


def pending_lines_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def forgotten(self: Any, purged: Any = ()) -> bool:
        self._pending.forget()
        return self._index is not None

    patch.setattr(IndexUpdater, "_record_pending", forgotten)


def pending_lines_count_twice(patch: pytest.MonkeyPatch) -> None:
    """Lines that another handle has recorded already take a second position."""
    real = Pending.record

    def record(self: Pending, index: Any, connection: Any, *, own: Any) -> bool:
        recorded = real(self, index, connection, own=own)
        connection.execute(
            "UPDATE events SET position = position + 1 WHERE position = (SELECT max(position) FROM events)"
        )
        return recorded

    patch.setattr(Pending, "record", record)


def purged_events_do_not_count_for_the_clock(patch: pytest.MonkeyPatch) -> None:
    real = Rows.add

    def add(self: Rows, file: int, at: int, size: int, line: Line, *, digest: bytes = b"") -> None:
        real(self, file, at, size, line if isinstance(line, EventLine) else replace(line, lamport=0), digest=digest)

    patch.setattr(Rows, "add", add)


def failed_opening_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = SegmentsStore._stop

    def stop(self: SegmentsStore, error: BaseException) -> None:
        if self._writing or not isinstance(error, WriterStopped):
            real(self, error)

    patch.setattr(SegmentsStore, "_stop", stop)


def negative_read(patch: pytest.MonkeyPatch) -> None:
    def take_in(self: Any) -> bool:
        with closing(self._open(self.live)) as source:
            grown = self._walk_on(self.live, source)
        if self._files.exists(self._layout.segment(self.live.number + 1)):
            self.load()
            return True
        if grown:
            self.changed()
            self._add_state()
        return bool(grown)

    def read(self: Any, at: int, size: int) -> bytes:
        if self._limit is not None:
            size = max(0, min(size, self._limit - at))
        return bytes(self._source.read(at, size))

    patch.setattr(LogState, "_take_in_growth", take_in)
    patch.setattr(Walk, "_read", read)


def closing_passes_for_the_end(patch: pytest.MonkeyPatch) -> None:
    real = following.follow

    def follow(*how: Any, **more: Any) -> Iterator[Any]:
        try:
            yield from real(*how, **more)
        except LogClosed:
            return

    patch.setattr(following, "follow", follow)


def every_opening_reads_the_file(patch: pytest.MonkeyPatch) -> None:
    real = Registry.enter

    def enter(self: Registry, files: Files, path: Path) -> tuple[int, int] | None:
        files.close(files.open(path))
        return real(self, files, path)

    patch.setattr(Registry, "enter", enter)


PLANTED: list[tuple[str, Callable[[pytest.MonkeyPatch], None], type[HandlesMachine]]] = [
    ("jsonl: appends go to the file that a purge has replaced", unlinked_file, FewJsonlRules),
    ("jsonl: a read between two writes hides what another handle wrote", stale_positions, FewJsonlRules),
    ("jsonl: a write does not look for what another handle has appended", no_catching_up, FewJsonlRules),
    ("jsonl: what the index lacks is forgotten", pending_lines_are_forgotten, FewJsonlRules),
    ("jsonl: what the index lacks is counted twice", pending_lines_count_twice, FewJsonlRules),
    (
        "jsonl: a clock value that only purged events have is used again",
        purged_events_do_not_count_for_the_clock,
        ClockRules,
    ),
    (
        "segments: a flush that fails while the writer opens is forgotten",
        failed_opening_is_forgotten,
        FewSegmentsRules,
    ),
    ("segments: a file that became shorter is read with a negative size", negative_read, FewSegmentsRules),
    ("a log that is closed passes for one that was read to its end", closing_passes_for_the_end, Followed),
    ("sqlite: a second handle takes the locks of the first away", every_opening_reads_the_file, FewSqliteRules),
]


@pytest.mark.parametrize(
    ("plant", "machine"), [pytest.param(plant, machine, id=name) for name, plant, machine in PLANTED]
)
def test_the_machine_finds_a_planted_defect(
    plant: Callable[[pytest.MonkeyPatch], None],
    machine: type[HandlesMachine],
    nursery: Nursery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    HandlesMachine.nursery = nursery
    make_small(monkeypatch)
    plant(monkeypatch)
    with pytest.raises(BaseException) as found:
        run(machine, SEQUENCES)
    assert isinstance(found.value, Exception), found.value


@pytest.mark.parametrize("machine", dict.fromkeys(machine for _, _, machine in PLANTED))
def test_without_a_planted_defect_the_same_machine_finds_nothing(
    machine: type[HandlesMachine], nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what it finds might be a rule that is missing."""
    HandlesMachine.nursery = nursery
    make_small(monkeypatch)
    run(machine, SEQUENCES_WITHOUT)


def run(machine: type[HandlesMachine], sequences: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=12,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
