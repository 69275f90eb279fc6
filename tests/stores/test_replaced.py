"""A log whose files are replaced while a reader has it open: the reader gets a reset, or an error that names the
cure, and never goes on with the files that are gone."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.conftest import CATALOG

from everlog.core.event import START
from everlog.core.query import Cursor, Page
from everlog.errors import LogClosed
from everlog.log.log import Log
from everlog.stores.sqlite.store import SqliteStore
from everlog.views.registry import Views
from everlog.wiring import open_store

KINDS = ["sqlite", "jsonl", "segments"]
WAYS = {
    "removed": "rm -rf here && cp -a backup here",
    "moved": "mv here aside && cp -a backup here",
    "file moved over it": "cp backup/log here/copy && rm -f here/log-wal here/log-shm && mv here/copy here/log",
}
SHARED, LOST, NEW = 3, 4, 9


class Place:
    def __init__(self, kind: str, folder: Path) -> None:
        self.url = f"{kind}:{folder / 'here' / 'log'}"
        self.folder = folder
        (folder / "here").mkdir()

    def open(self) -> Log:
        return Log(open_store(self.url, base=Path()), CATALOG, actor="user:ada", make_views=Views)

    def say(self, count: int, text: str) -> None:
        with closing(self.open()) as log:
            for _ in range(count):
                log.append("thing.said", stream="thing/1", payload={"value": text})

    def run(self, command: str) -> None:
        subprocess.run(command, shell=True, check=True, cwd=self.folder)

    @contextmanager
    def reader(self) -> Iterator[Log]:
        """Open a log of which a backup was made before its last events."""
        self.say(SHARED, "shared")
        self.run("cp -a here backup")
        self.say(LOST, "lost")
        with closing(self.open()) as log:
            yield log


def cases() -> list[tuple[str, str]]:
    return [(kind, way) for kind in KINDS for way in WAYS if kind == "sqlite" or way != "file moved over it"]


@pytest.mark.parametrize(("kind", "way"), cases())
def test_no_reader_goes_on_with_files_that_were_replaced(kind: str, way: str, tmp_path: Path) -> None:
    place = Place(kind, tmp_path)
    with place.reader() as log:
        cursor = log.page_after(Cursor(START)).next_cursor
        assert cursor.position == SHARED + LOST
        place.run(WAYS[way])
        assert _reset(place, log, cursor), "the restored log is shorter"
        place.say(NEW, "new")
        assert _reset(place, log, cursor), "the restored log has grown past the cursor"
    with closing(place.open()) as log:
        assert _reset(place, log, cursor, again=True)
        texts = [recorded.event.payload["value"] for recorded in log.read()]
        assert texts == ["shared"] * SHARED + ["new"] * NEW


def _reset(place: Place, log: Log, cursor: Cursor, *, again: bool = False) -> bool:
    if place.url.startswith("sqlite:") and not again:
        with pytest.raises(LogClosed) as refused:  # the others read on by themselves
            log.page_after(cursor)
        return "open the log again" in refused.value.hint
    page = log.page_after(cursor)
    assert page.events == ()
    return page.reset is not None and page.reset.reason == "restored"


def test_every_read_of_a_replaced_database_is_refused(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    with place.reader() as log:
        event = next(iter(log.read())).event
        store = log.stored
        place.run(WAYS["moved"])
        for read in (
            store.head,
            store.purges,
            store.chains,
            lambda: store.get(event.id),
            lambda: list(store.read()),
            lambda: list(store.slots()),
            lambda: list(store.check()),
            lambda: log.writer.small_state.get("note", "x"),
        ):
            with pytest.raises(LogClosed, match="replaced while it was open"):
                read()


def test_a_read_that_was_begun_never_mixes_two_files(tmp_path: Path) -> None:
    """The pool of readers may be empty, and a new one would open the other file."""
    place = Place("sqlite", tmp_path)
    place.say(1, "first")
    with closing(SqliteStore(tmp_path / "here" / "log")) as store:
        pieces = store.read()
        shutil.copytree(tmp_path / "here", tmp_path / "backup")
        place.run(WAYS["moved"])
        while store._idle_readers:
            store._idle_readers.pop().close()
        with pytest.raises(LogClosed, match="replaced while it was open"):
            list(pieces)


def test_a_follower_of_a_replaced_database_gets_the_error(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    got: list[BaseException] = []
    reached = threading.Event()
    with place.reader() as log:

        def follow() -> None:
            try:
                for item in log.subscribe(Cursor(START)):
                    if getattr(item, "position", 0) == SHARED + LOST:
                        reached.set()
            except LogClosed as error:
                got.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        assert reached.wait(10)
        place.run(WAYS["moved"])
        thread.join(10)
        assert [type(error) for error in got] == [LogClosed]


def test_a_database_that_is_away_for_a_moment_is_read_on(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    with place.reader() as log:
        place.run("mv here/log here/away")
        page: Page = log.page_after(Cursor(START))
        assert len(page.events) == SHARED + LOST
        place.run("mv here/away here/log")
        assert log.head() == SHARED + LOST
