"""A backup that was put back by hand, on every store: the log takes a new origin, no reader skips an event, and the
lost events can be imported.

The short form plays ten random histories per store, the long form (--full) 300.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from tests.support.put_back import KINDS, Place, places

from everlog.consumers.group import Group
from everlog.core.event import whole
from everlog.core.query import Cursor
from everlog.errors import EverlogError, HistoryChanged, IdConflict
from everlog.event_store import EventStore
from everlog.log.log import Log
from everlog.pipeline.session.failures import CarriedError
from everlog.pipeline.source.source import SourceOptions
from everlog.pipeline.source.stream import EverlogStream
from everlog.stores.contract import CanBeOlder, Indexed
from everlog.transfer.exporting import Export, Format
from everlog.transfer.import_pass import Source
from everlog.transfer.importing import Imported, import_files
from everlog.views.builtin import Streams

SHORT, LONG = 10, 300


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres" and shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed: a PostgreSQL log cannot be backed up here")
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from places(kind, tmp_path, request)


def say(log: Log, text: str, stream: str = "thing/1") -> str:
    return str(log.append("thing.said", stream=stream, payload={"value": text}).event.id)


def exported(log: Log) -> bytes:
    return b"".join(Export(log.stored, Format.EVERLOG).pieces())


def imported(log: Log, data: bytes, aside: list[bytes] | None = None) -> Imported:
    source = Source("lost.jsonl", len(data), lambda size, at: data[at : at + size])
    return import_files(log, [source], set_aside=None if aside is None else aside.extend)


def ids(log: Log) -> list[str]:
    return [str(recorded.event.id) for recorded in log.read()]


def missing(log: Log) -> int:
    assert isinstance(log.stored, CanBeOlder)
    return log.stored.missing_own_events()


# ---- one history


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_until_the_next_write_a_log_whose_lock_file_stayed_counts_what_is_missing(kind: str, tmp_path: Path) -> None:
    place, backup = Place(kind, tmp_path), tmp_path / "backup"
    with closing(place.open()) as log:
        say(log, "shared")
    shutil.copytree(place.folder, backup)
    with closing(place.open()) as log:
        for _ in range(2):
            say(log, "lost")
        assert missing(log) == 0
    shutil.copytree(backup, place.folder, ignore=shutil.ignore_patterns("*lock"), dirs_exist_ok=True)
    with closing(place.open()) as log, closing(place.open()) as other:
        assert (missing(log), missing(other)) == (2, 2)
        say(other, "more")
        assert (missing(log), missing(other)) == (0, 0)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_the_first_request_of_a_copy_is_answered_by_the_handles_that_were_open(
    kind: str, rebuilt: bool, tmp_path: Path
) -> None:
    """The copy takes a new origin with it, which the other handles have not heard of."""
    place = Place(kind, tmp_path)
    with closing(place.open()) as log:
        say(log, "before")
    place.back_up("cp -r")
    place.put_back("cp -r")
    with closing(place.open()) as log, closing(place.open()) as other, closing(place.open()) as third:
        asked: dict[str, Any] = {"stream": "thing/1", "payload": {"value": "asked"}, "key": "k"}
        answers = [log.append("thing.said", **asked).event.id]
        if rebuilt and isinstance(other.stored, Indexed):
            other.stored.rebuild_index()
        answers += [each.append("thing.said", **asked).event.id for each in (other, log, third)]
        assert len(set(answers)) == 1
        assert len(ids(third)) == 2


def test_a_log_that_was_put_back_continues_under_a_new_origin_and_takes_in_what_was_lost(place: Place) -> None:
    for way in place.ways:
        with closing(place.open()) as log:
            say(log, "shared")
            first = log.identity
        place.back_up(way)
        with closing(place.open()) as log:
            assert log.identity == first, "it was only closed"
            lost = [say(log, "lost") for _ in range(3)]
            assert log.identity == first
            tail = exported(log)
        place.put_back(way)
        with closing(place.open()) as log, closing(place.open()) as other:
            before = ids(log)
            new = [say(log, "new")]
            made = log.identity
            assert (made.log_id, made.epoch, made.created_us) == (first.log_id, first.epoch, first.created_us)
            assert made.origin != first.origin
            assert set(made.former) == {*first.former, first.origin}
            if place.kind != "segments":  # which has one writer at a time
                new.append(say(other, "of another handle"))
                assert other.identity == made
            assert imported(log, tail).new == 3
            assert ids(log) == [*before, *new, *lost]
            assert log.verify().problems == ()
        with closing(place.open()) as log:
            assert log.identity == made
            say(log, "after all")
            assert log.identity == made, "a restart alone is no restore"
            assert log.verify().problems == ()


def test_what_was_lost_may_come_before_the_first_new_event(place: Place) -> None:
    way = place.ways[0]
    with closing(place.open()) as log:
        say(log, "shared")
    place.back_up(way)
    with closing(place.open()) as log:
        lost = say(log, "lost")
        tail = exported(log)
    place.put_back(way)
    with closing(place.open()) as log:
        first = log.identity
        assert imported(log, tail).new == 1
        new = say(log, "new")
        assert log.identity.former == (first.origin,)
        assert ids(log)[1:] == [lost, new]
        assert log.verify().problems == ()


def test_an_empty_log_that_was_put_back_takes_a_new_origin(place: Place) -> None:
    way = place.ways[0]
    place.open().close()
    place.back_up(way)
    with closing(place.open()) as log:
        lost = say(log, "lost")
        tail = exported(log)
    place.put_back(way)
    with closing(place.open()) as log:
        new = say(log, "new")
        imported(log, tail)
        assert ids(log) == [new, lost]
        assert log.verify().problems == ()


def test_reading_a_log_that_was_put_back_changes_nothing(place: Place) -> None:
    way = place.ways[0]
    with closing(place.open()) as log:
        say(log, "shared")
    place.back_up(way)
    place.put_back(way)
    with closing(place.open()) as log:
        first = log.identity
        ids(log)
        log.verify()
        assert log.identity == first
    with closing(place.open()) as log:
        assert log.identity == first


def test_a_new_owner_or_mode_of_the_files_is_no_restore(place: Place) -> None:
    if place.kind == "postgres":
        return  # it has no files here
    with closing(place.open()) as log:
        say(log, "one")
        first = log.identity
    for path in place.folder.rglob("*"):
        path.chmod(0o750 if path.is_dir() else 0o600)
    place.folder.rename(place.folder.with_name("moved"))
    place.folder.with_name("moved").rename(place.folder)
    with closing(place.open()) as log:
        say(log, "two")
        assert log.identity == first


def test_two_events_with_one_number_are_not_both_admitted(place: Place) -> None:
    """The log could not know that it was put back, and wrote under the same origin."""
    with closing(place.open()) as log:
        say(log, "shared")
        say(log, "of this log")
        _, mine = (whole(recorded.event) for recorded in log.read())
        lost = msgspec.structs.replace(mine, id=mine.id[:-1] + ("1" if mine.id[-1] != "1" else "2"))
        with pytest.raises(IdConflict, match="claims to be of this log"):
            log.admit([lost])
        tail = exported(log)
    place.back_up(place.ways[0])
    with closing(place.open()) as log:
        say(log, "not in the backup")
    place.put_back(place.ways[0])
    with closing(place.open()) as log:
        say(log, "under a new origin")
        with pytest.raises(IdConflict, match=f"has the number 2 of origin {mine.origin}, as another event"):
            log.admit([lost])
        third = msgspec.structs.replace(lost, origin_seq=3, previous=b"x" * 32)
        with pytest.raises(IdConflict, match="does not follow event 2 of origin"):
            log.admit([third])
        assert log.verify().problems == ()
        aside: list[bytes] = []
        assert imported(log, tail, aside).new == 0
        forked = tail.replace(mine.id.encode(), lost.id.encode())
        forked = forked.splitlines(keepends=True)[0] + forked.splitlines(keepends=True)[2]
        assert imported(log, forked, aside).set_aside >= 1
        assert any(b"has the number 2 of origin" in line for line in aside)


# ---- random histories


class History:
    """One random history with all that keeps a cursor, and what was acknowledged."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.chance = random.Random(seed)
        self.log = place.open()
        self.acked: dict[str, tuple[str, int]] = {}  # every event ever acknowledged: its origin and number
        self.purged: set[str] = set()  # in the history that counts
        self.readers: list[tuple[str, frozenset[str]]] = []  # a cursor, and what was read up to it
        self.snapshots: list[tuple[str, frozenset[str]]] = []
        self.offsets: list[tuple[dict[str, Any], frozenset[str]]] = []
        self.delivered: set[str] = set()
        self.resets = 0
        self.spark = EverlogStream(SourceOptions({"url": place.url}, StructType([])), {})

    @property
    def store(self) -> EventStore:
        return EventStore(self.log, snapshots=self.place.folder.with_name("snapshots"))

    def write(self, most: int) -> None:
        other = self.place.open() if self.place.kind != "segments" and self.chance.random() < 0.4 else None
        for _ in range(self.chance.randint(0, most)):
            log = self.log if other is None or self.chance.random() < 0.5 else other
            self._write_once(log)
            if self.chance.random() < 0.3:
                self.take()
        if other is not None:
            other.close()

    def _write_once(self, log: Log) -> None:
        stream = f"thing/{self.chance.randint(1, 3)}"
        if self.chance.random() < 0.08 and any(one.event.stream == stream for one in log.read()):
            self.purged |= {str(one.event.id) for one in log.read() if one.event.stream == stream}
            log.purge(stream, reason="by chance")
            return
        made = log.append("thing.said", stream=stream, payload={"value": self.chance.random()}).event
        self.acked[str(made.id)] = (made.origin, made.origin_seq)

    def take(self) -> None:
        """Take a cursor of each kind, at this moment."""
        upto = self.chance.randint(0, self.log.head())
        page = self.log.page_after(0, limit=max(upto, 1))
        self.readers.append((str(page.next_cursor), self.history(page.next_cursor.position)))
        if self.chance.random() < 0.5:
            here = self.history(self.log.head())
            name = asyncio.run(self.store.create_snapshot(sorted(here)))
            self.snapshots.append((name, here))
        if self.chance.random() < 0.5:
            self.offsets.append((self.spark.reportLatestOffset() or {}, self.history(self.log.head())))
        if self.chance.random() < 0.5:
            self.consume(self.chance.randint(1, 4))
        if self.chance.random() < 0.5:
            self.log.view(Streams()).get("thing/1")

    def history(self, upto: int) -> frozenset[str]:
        """Every id up to a position, purged or not: what somebody who holds a cursor there has gone through."""
        found = [str(one.event.id) for one in self.log.read(upto=upto)]
        gone = [
            str(slot.id) for slot in self.log.stored.slots() if not hasattr(slot, "header") and slot.position <= upto
        ]
        return frozenset(found + gone)

    def consume(self, most: int) -> None:
        with Group(self.log, "g", partitions=1).member("one") as member:
            for _ in range(most):
                delivery = member.take()
                if delivery is None:
                    return
                self.delivered.add(str(delivery.event.id))
                delivery.ack()

    # ---- a restore

    def restore(self) -> None:
        way = self.place.way(self.chance)
        hot = way in ("dump", "moved", "overwritten") and self.chance.random() < 0.5
        if not hot:
            self.log.close()
        self.place.back_up(way)
        if not hot:
            self.log = self.place.open()
        purged = set(self.purged)
        self.write(10)
        tail = exported(self.log)
        self.log.close()
        self.place.put_back(way)
        lost, self.purged = self.purged - purged, purged  # a purge after the backup is lost with it
        self.log = self.place.open()
        self.write(14)
        self.check_readers()
        known = set(ids(self.log)) | self.purged
        aside: list[bytes] = []
        imported(self.log, tail, aside)
        assert all(b"already_purged" in line for line in aside), aside
        live = ids(self.log)
        assert len(live) == len(set(live))
        assert set(live) | self.purged | (lost - known) == set(self.acked)
        assert set(live).isdisjoint(self.purged)
        assert len(set(self.acked.values())) == len(self.acked), "two events have one number"
        for gone in lost - known:  # never exported: gone with the history in which they were purged
            del self.acked[gone]
        report = self.log.verify()
        assert report.problems == ()

    def check_readers(self) -> None:
        live = set(ids(self.log))
        for cursor, held in self.readers:
            self._check_reader(cursor, held, live)
        for name, held in self.snapshots:
            try:
                found = asyncio.run(self.store.restore_from_snapshot(name))
            except EverlogError:
                self.resets += 1
                continue
            assert held == self.history(found.position)
        for offset, held in self.offsets:
            try:
                self.spark.latestOffset(offset, ReadAllAvailable())
            except CarriedError as error:
                if not isinstance(error.__cause__, HistoryChanged):
                    raise
                self.resets += 1
                continue
            assert held == self.history(offset["position"])
        view = self.log.view(Streams())
        for number in (1, 2, 3):
            name = f"thing/{number}"
            assert view.get(name).state == view.get(name, as_of=self.log.head()).state
        self.consume(1_000)
        assert live <= self.delivered, "a consumer skipped events"

    def _check_reader(self, cursor: str, held: frozenset[str], live: set[str]) -> None:
        seen = set(held)
        while True:
            page = self.log.page_after(cursor, limit=5)
            if page.reset is not None:
                self.resets += 1
                # After a restore a reader has nothing; after a purge it computes its state up to there again.
                restored = page.reset.reason == "restored"
                seen = set() if restored else set(self.history(page.reset.cursor.position))
            elif not page.events and Cursor.of(cursor).position == page.next_cursor.position:
                break
            seen |= {str(one.event.id) for one in page.events}
            cursor = str(page.next_cursor)
        assert live <= seen, f"{len(live - seen)} events skipped"
        assert seen <= self.history(self.log.head()), "a reader holds events that are not in the log"


def test_random_histories(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    events = resets = 0
    for seed in range(LONG if request.config.getoption("--full") else SHORT):
        for place in places(kind, tmp_path / str(seed), request):
            history = History(place, seed)
            try:
                history.write(8)
                for _ in range(history.chance.randint(1, 2)):
                    history.restore()
                history.check_readers()
            except BaseException as error:
                error.add_note(f"{kind}, seed {seed}")
                raise
            finally:
                history.log.close()
            events, resets = events + len(history.acked), resets + history.resets
        shutil.rmtree(tmp_path / str(seed))
    with capsys.disabled():
        print(f"\n{kind}: {events} events acknowledged, {resets} resets")
    assert resets
