"""The file beside a log that holds what views keep: whatever becomes of it, the answers are right."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.views.conftest import ByActor, Said
from tests.views.said import from_nothing, say

from everlog import Draft
from everlog.errors import Damaged, EverlogError
from everlog.log.log import Log
from everlog.views.builds.build import active_build
from everlog.views.fold import fold_all
from everlog.views.view import View

VIEWS: tuple[type[View], ...] = (Said, ByActor)


@pytest.fixture(params=["jsonl", "segments"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "log"


def _fill(log: Log, count: int = 60) -> None:
    log.append_batch(
        [
            Draft(
                type="thing.said",
                stream=f"thing/{number % 40}",
                payload={"value": f"word {number} " * 5},
                actor=f"user:a{number % 7}",
            )
            for number in range(count)
        ]
    )


def _file(place: Path) -> Path:
    return next(place.rglob("views.db"))


def _all_right(log: Log) -> bool:
    for view in VIEWS:
        true = fold_all(view(), log._store.read())
        handle = log.view(view)
        some = random.Random(1).sample(sorted(true), 3)
        if {key: handle.get(key).state for key in some} != {key: true[key] for key in some}:
            return False
        if dict(handle.items()) != true or handle.digest() != from_nothing(log, view):
            return False
    return True


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def _cut_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x7f" * 5000)


def _garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 3000)


def _no_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE derived")
    connection.close()


def _another_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE derived")
        connection.execute("CREATE TABLE derived (something)")
    connection.close()


def _zeroed_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[2 * 4096 : 3 * 4096] = bytes(4096)
    path.write_bytes(data)


def _without_its_rows(path: Path) -> None:
    """The beginning is readable, and nothing else."""
    data = path.read_bytes()
    path.write_bytes(data[:7168] + bytes(len(data) - 7168))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": lambda path: path.unlink(),
    "cut": _cut,
    "cut to nothing": _cut_to_nothing,
    "lengthened": _lengthen,
    "garbage": _garbage,
    "no table": _no_table,
    "another table": _another_table,
    "a page of zeros": _zeroed_page,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_made_again(
    kind: str, place: Path, make_log: Callable[..., Log], damage: Callable[[Path], None]
) -> None:
    with make_log(kind, place) as log:
        _fill(log)
        assert _all_right(log)
    damage(_file(place))
    with make_log(kind, place) as log:
        log.views.overviews()
        assert _all_right(log)
    with make_log(kind, place) as log:
        assert all(log.view(view).audit().ok for view in VIEWS)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_file_that_is_damaged_while_it_is_open_gives_no_wrong_answer(
    kind: str, place: Path, make_log: Callable[..., Log], damage: Callable[[Path], None]
) -> None:
    with make_log(kind, place) as log:
        _fill(log)
        assert _all_right(log)
        small_state: Any = log.views.small_state
        small_state.derived._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        damage(_file(place))
        say(log, "after", stream="thing/3")
        assert _all_right(log)
        say(log, "more", stream="thing/4")
        assert _all_right(log)
    with make_log(kind, place) as log:
        assert _all_right(log)


def test_no_flipped_bit_gives_a_wrong_answer(
    kind: str, place: Path, make_log: Callable[..., Log], pytestconfig: pytest.Config
) -> None:
    with make_log(kind, place) as log:
        _fill(log)
        assert _all_right(log)
    file = _file(place)
    whole = file.read_bytes()
    rng = random.Random(15)
    for _ in range(2000 if pytestconfig.getoption("--full") else 60):
        data, at = bytearray(whole), rng.randrange(len(whole))
        data[at] ^= 1 << rng.randrange(8)
        for ending in ("-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)
        file.write_bytes(data)
        with make_log(kind, place) as log:
            assert _all_right(log), f"a bit of byte {at}"


@pytest.mark.parametrize("bit", [1, 5, 6])
def test_a_row_that_only_a_scan_meets_is_not_missing(
    kind: str, place: Path, make_log: Callable[..., Log], bit: int
) -> None:
    """The name of the space is damaged in a row that others hang from: a search for its key takes the wrong way."""
    with make_log(kind, place) as log:
        _fill(log)
        assert _all_right(log)
        true = fold_all(ByActor(), log._store.read())
    file = _file(place)
    whole = file.read_bytes()
    for key in true:
        data = bytearray(whole)
        data[whole.index(f"by-actor#1{key}".encode())] ^= 1 << bit
        for ending in ("-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)
        file.write_bytes(data)
        with make_log(kind, place) as log:
            assert log.view(ByActor).get(key).state == true[key], key


def test_a_key_in_a_database_that_is_no_text_is_damage(place: Path, make_log: Callable[..., Log]) -> None:
    with make_log("sqlite", place) as log:
        _fill(log)
        assert _all_right(log)
    data = bytearray(place.read_bytes())
    data[data.index(b"said#1thing/3") + len(b"said#1")] ^= 0x80
    place.write_bytes(data)
    with make_log("sqlite", place) as log, pytest.raises(Damaged, match="not UTF-8"):
        list(log.view(Said).items())


def test_an_older_copy_catches_up(kind: str, place: Path, make_log: Callable[..., Log]) -> None:
    with make_log(kind, place) as log:
        _fill(log)
        assert _all_right(log)
        numbers = [getattr(active_build(log.views.small_state, view.name), "number") for view in VIEWS]  # noqa: B009
    file = _file(place)
    older = file.read_bytes()
    with make_log(kind, place) as log:
        _fill(log, 30)
        log.purge("thing/5", reason="asked for")
        assert _all_right(log)
    file.write_bytes(older)
    with make_log(kind, place) as log:
        assert _all_right(log)
        assert not log.view(Said).get("thing/5").found
        assert [getattr(active_build(log.views.small_state, view.name), "number") for view in VIEWS] == numbers  # noqa: B009


def test_a_file_of_another_log_is_not_believed(kind: str, tmp_path: Path, make_log: Callable[..., Log]) -> None:
    for name in ("one", "two"):
        with make_log(kind, tmp_path / name) as log:
            say(log, f"only in {name}", stream=f"thing/{name}")
            _fill(log)
            assert _all_right(log)
    shutil.copy(_file(tmp_path / "one"), _file(tmp_path / "two"))
    with make_log(kind, tmp_path / "two") as log:
        assert _all_right(log)
        assert not log.view(Said).get("thing/one").found


READER = """
import sys, time
from pathlib import Path
from tests.conftest import CATALOG
from tests.views.conftest import Said
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.stores.jsonl.store import JsonlStore
from everlog.views.registry import Views

place, seconds, count = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
until, asked, refused = time.monotonic() + seconds, 0, 0
with Log(JsonlStore(place), catalog=CATALOG, make_views=Views) as log:
    while time.monotonic() < until:
        try:
            states = dict(log.view(Said).items())
            one = log.view(Said).get("thing/3").state
        except EverlogError as error:
            refused += 1
            continue
        assert len(states) == 40, len(states)
        assert sum(state["count"] for state in states.values()) == count, states
        assert one == states["thing/3"], one
        asked += 1
print(asked, refused)
"""


def _harm(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Change one row in some way, as no program should."""
    key = f"thing/{rng.randrange(40)}"
    match rng.randrange(4):
        case 0:
            sql, values = "UPDATE derived SET value = x'ff00' WHERE space LIKE 'said#_' AND key = ?", (key,)
        case 1:
            sql = "UPDATE derived SET value = (SELECT value FROM derived WHERE key = 'thing/1' LIMIT 1) WHERE key = ?"
            values = (key,)
        case 2:
            sql, values = "DELETE FROM derived WHERE space LIKE 'said#_' AND key = ?", (key,)
        case _:
            sql, values = "UPDATE derived SET value = x'7b7d' WHERE space = ?", (rng.choice(["views", "builds"]),)
    connection.execute(sql, values)


def _harmed(file: Path, rng: random.Random) -> bool:
    """False if a reader has the lock, makes the file again just now, or the row is gone."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=rw", timeout=5, uri=True)) as connection, connection:
            _harm(connection, rng)
    except sqlite3.Error:
        return False
    return True


def test_two_processes_read_while_a_third_damages_rows(
    place: Path, make_log: Callable[..., Log], pytestconfig: pytest.Config
) -> None:
    seconds = 20 if pytestconfig.getoption("--full") else 3
    with make_log("jsonl", place) as log:
        _fill(log, 120)
        log.view(Said).catch_up()
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(place), str(seconds), "120"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    rng, tried, harmed, file = random.Random(15), 0, 0, _file(place)
    try:
        while any(reader.poll() is None for reader in readers):
            tried += 1
            harmed += _harmed(file, rng)
            time.sleep(0.02)
    except BaseException:
        for reader in readers:
            reader.kill()
            reader.communicate()
        raise
    assert harmed > tried / 2
    for reader in readers:
        out, err = reader.communicate(timeout=60)
        assert reader.returncode == 0, err
        asked, refused = map(int, out.split())
        assert asked > 5 * refused, (asked, refused, err[-2000:])
        assert "checksum" in err
    with make_log("jsonl", place) as log:
        assert _all_right(log)
        assert log.view(Said).audit().ok


def test_a_file_that_cannot_be_repaired_is_reported(
    place: Path, make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_log("jsonl", place) as log:
        _fill(log)
        log.view(Said).catch_up()
    _garbage(_file(place))
    with make_log("jsonl", place) as log:
        small_state: Any = log.views.small_state
        monkeypatch.setattr(small_state.derived, "_remove", lambda error: None)
        with pytest.raises(EverlogError, match=r"views\.db"):
            log.view(Said).get("thing/1")


@pytest.mark.parametrize("damage", [*DAMAGES.values(), _without_its_rows], ids=[*DAMAGES, "without its rows"])
@pytest.mark.parametrize("first", ["rebuild", "as of"])
def test_the_first_question_after_damage_may_be_any(
    make_log: Callable[..., Log], kind: str, place: Path, damage: Callable[[Path], None], first: str
) -> None:
    """The file is removed while it is asked, and the question begins again."""
    log = make_log(kind, place)
    _fill(log)
    for view in VIEWS:
        log.view(view).catch_up()
    log.close()
    damage(_file(place))
    log = make_log(kind, place)
    true = fold_all(Said(), log._store.read())
    key = next(iter(true))
    if first == "rebuild":
        log.view(Said).rebuild()
    else:
        assert log.view(Said).get(key, as_of=log.head()).state == true[key]
    assert dict(log.view(Said).items()) == true
