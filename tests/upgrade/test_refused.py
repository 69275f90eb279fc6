"""An upgrade that cannot be made changes nothing, and nobody writes into old files after one."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.upgrade.test_format1 import LOGS, content, expected, opened
from tests.upgrade.test_kills import files_of, fresh, has_draft
from tests.upgrade.writing import CATALOG, STORES

from everlog.errors import Busy, Damaged, EverlogError, OlderFormat
from everlog.files import DiskFiles, Handle
from everlog.log.log import Log
from everlog.transfer.upgrade import swap as swapping
from everlog.upgrading import forget_old, upgrade
from everlog.wiring import open_store

IN_FILES = ("sqlite", "segments", "jsonl")
UPGRADE = "import sys; from pathlib import Path; from everlog.upgrading import upgrade;"
UPGRADE += "print(upgrade(sys.argv[1], base=Path(sys.argv[2])).done)"


def unchanged(name: str, base: Path) -> bool:
    with closing(opened(name, base)) as log:
        return content(log) == expected(name) and files_of(base) == files_of(LOGS / name) and not has_draft(base)


@pytest.mark.parametrize("name", IN_FILES)
def test_of_two_upgrades_at_once_one_does_it(name: str, tmp_path: Path) -> None:
    base = fresh(name, tmp_path / "log")
    both = [
        subprocess.Popen([sys.executable, "-c", UPGRADE, STORES[name], str(base)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sorted(process.communicate(timeout=120)[0].strip() for process in both) == ["False", "True"]
    with closing(open_store(STORES[name], base=base, create=False)) as store:
        assert Log(store, CATALOG).verify().ok


@pytest.mark.parametrize("name", IN_FILES)
def test_a_program_that_opens_the_log_meanwhile_is_refused(name: str, tmp_path: Path) -> None:
    base = fresh(name, tmp_path / "log")
    seen: list[int] = []

    class Watched(DiskFiles):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            self.look()

        def fsync(self, handle: Handle) -> None:
            super().fsync(handle)
            self.look()

        def look(self) -> None:
            try:
                with closing(open_store(STORES[name], base=base, create=True)) as store:
                    seen.append(store.head())
            except OlderFormat:
                seen.append(0)

    upgrade(STORES[name], base=base, files=Watched())
    assert seen
    with closing(open_store(STORES[name], base=base, create=False)) as store:
        assert set(seen) <= {0, store.head()}
        assert seen == sorted(seen)  # never the old one again


def test_a_database_that_is_open_elsewhere_is_not_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = fresh("sqlite", tmp_path / "log")
    monkeypatch.setattr(swapping, "_ALONE_S", 0.1)
    with closing(sqlite3.connect(base / "log.db")) as other:
        other.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(Busy, match="open in another program"):
            upgrade("sqlite:log.db", base=base)
        assert not has_draft(base)
        assert not (base / "log.db.format1").exists()
    upgrade("sqlite:log.db", base=base)


def test_a_program_that_waits_for_the_database_does_not_write_into_the_old_file(tmp_path: Path) -> None:
    """It opens the file during the swap, as the version that wrote it would, and goes on when the lock is free."""
    base = fresh("sqlite", tmp_path / "log")
    waiting: list[sqlite3.Connection] = []

    class Opened(DiskFiles):
        def fsync_dir(self, path: Path) -> None:
            super().fsync_dir(path)
            if not waiting and (base / "log.db.format1").exists():
                waiting.append(sqlite3.connect(base / "log.db", isolation_level=None, check_same_thread=False))

    upgrade("sqlite:log.db", base=base, files=Opened())
    (connection,) = waiting
    with closing(connection), pytest.raises(sqlite3.DatabaseError, match="readonly"):
        connection.execute("INSERT INTO notes (key, value) VALUES ('late', 'x')")
    with closing(sqlite3.connect(base / "log.db.format1")) as old:
        assert old.execute("SELECT count(*) FROM notes WHERE key = 'late'").fetchone() == (0,)


def _damage_sqlite(base: Path) -> list[str]:
    with closing(sqlite3.connect(base / "log.db")) as connection, connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (trigger,) in triggers:
            connection.execute(f'DROP TRIGGER "{trigger}"')
        connection.execute('UPDATE events SET payload = \'{"text":"other"}\' WHERE position IN (2, 5)')
        connection.execute("UPDATE events SET sequence = 99 WHERE position = 10")
    return ["position 2", "position 5", "position 10"]


def _damage_segments(base: Path) -> list[str]:
    path = base / "log" / "segments" / "00000001.seg.gz"
    data = bytearray(gzip.decompress(path.read_bytes()))
    data[300] ^= 1
    path.write_bytes(gzip.compress(bytes(data)))
    live = base / "log" / "segments" / "00000003.seg"
    data = bytearray(live.read_bytes())
    data[900] ^= 1
    live.write_bytes(data)
    return ["00000001.seg.gz", "00000003.seg"]


def _damage_jsonl(base: Path) -> list[str]:
    (path,) = (base / "log" / "events").iterdir()
    lines = path.read_bytes().split(b"\n")
    at = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    for number in (3, 11):
        lines[number] = lines[number].replace(b"note", b"nose", 1)
    path.write_bytes(b"\n".join(lines))
    return [f"byte {at[3]}", f"byte {at[11]}"]


@pytest.mark.parametrize(
    ("name", "damage"), [("sqlite", _damage_sqlite), ("segments", _damage_segments), ("jsonl", _damage_jsonl)]
)
def test_every_bad_row_is_named_and_nothing_changes(
    name: str, damage: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    base = fresh(name, tmp_path / "log")
    places = damage(base)
    before = files_of(base)
    with pytest.raises(Damaged) as refused:
        upgrade(STORES[name], base=base)
    for place in places:
        assert place in refused.value.why, refused.value.why
    assert files_of(base) == before
    assert not has_draft(base)


def test_a_database_without_its_tables_is_named(tmp_path: Path) -> None:
    base = fresh("sqlite", tmp_path / "log")
    with closing(sqlite3.connect(base / "log.db")) as connection, connection:
        connection.execute("DROP TABLE identity")
    with pytest.raises(EverlogError, match=r"log\.db"):
        upgrade("sqlite:log.db", base=base)
    assert not has_draft(base)


def test_a_live_segment_that_was_cut_between_frames_is_named(tmp_path: Path) -> None:
    base = fresh("segments", tmp_path / "log")
    live = base / "log" / "segments" / "00000003.seg"
    whole = live.read_bytes()
    ends, at = [], 8
    while length := int.from_bytes(whole[at : at + 4], "big"):
        ends.append(at)
        at += length + 36
    live.write_bytes(whole[: ends[-2]] + bytes(len(whole) - ends[-2]))
    with pytest.raises(Damaged) as refused:
        upgrade("segments:log", base=base)
    assert "00000003.seg: it lost its end" in refused.value.why
    assert "position 47" in refused.value.why
    live.write_bytes(whole[: ends[-1]] + bytes(len(whole) - ends[-1]))  # only the mark of a clean end is lost
    assert upgrade("segments:log", base=base).done


FULL = """
ROOM = {}
import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))
write = os.pwrite
def full(*arguments):
    try:
        return write(*arguments)
    except OSError as error:
        raise OSError(28, "No space left on device") from error
os.pwrite = full
"""


@pytest.mark.parametrize("name", IN_FILES)
def test_a_full_disk_ends_it_and_nothing_changes(name: str, tmp_path: Path) -> None:
    base = fresh(name, tmp_path / "log")
    room = 40 * 1024 if name == "sqlite" else 8 * 1024  # SQLite needs 32 KiB beside a database to read it
    done = subprocess.run(
        [sys.executable, "-c", FULL.format(room) + UPGRADE, STORES[name], str(base)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "everlog.errors." in done.stderr, done.stderr
    assert unchanged(name, base)
    assert upgrade(STORES[name], base=base).done


@pytest.mark.parametrize("name", IN_FILES)
def test_a_read_only_folder_ends_it(name: str) -> None:
    with TemporaryDirectory(prefix="everlog-upgrade-") as place:  # not below a folder of root alone
        Path(place).chmod(0o755)
        base = fresh(name, Path(place) / "log")
        upgrade(STORES[name], base=fresh(name, Path(place) / "other"))  # everything is imported
        folders = [base, *(path for path in base.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        user = os.geteuid()
        if not user:
            os.seteuid(65534)  # root may write anywhere
        try:
            with pytest.raises(EverlogError):
                upgrade(STORES[name], base=base)
        finally:
            os.seteuid(user)
            for folder in folders:
                folder.chmod(0o755)
        assert unchanged(name, base)


@pytest.mark.parametrize("name", IN_FILES)
def test_only_what_the_upgrade_kept_is_forgotten(name: str, tmp_path: Path) -> None:
    base = fresh(name, tmp_path / "log")
    upgrade(STORES[name], base=base)
    beside = [base / "log.db.format1.mine", base / "format1", base / "log.db.upgrading.mine"]
    for path in beside:
        path.write_bytes(b"mine")
    before = {path for path in base.rglob("*") if path.is_file()}
    kept, freed = forget_old(STORES[name], base=base)
    gone = before - {path for path in base.rglob("*") if path.is_file()}
    assert freed > 0
    assert gone
    assert all(str(path).startswith(kept) for path in gone)
    assert all(path.read_bytes() == b"mine" for path in beside)
    with closing(open_store(STORES[name], base=base, create=False)) as store:
        assert Log(store, CATALOG).verify().ok


WAITING = {"sqlite": "log.db-refusals", "segments": "log/refusals.jsonl", "jsonl": "log/local/refusals.jsonl"}


@pytest.mark.parametrize("name", IN_FILES)
def test_refusals_that_wait_beside_the_log_come_with_it(name: str, tmp_path: Path) -> None:
    other, base = fresh(name, tmp_path / "other"), fresh(name, tmp_path / "log")
    upgrade(STORES[name], base=other)
    with closing(Log(open_store(STORES[name], base=other, create=False), CATALOG, actor="user:ada")) as log:
        with pytest.raises(EverlogError):
            log.append("no.such_type", stream="note/2", payload={"text": "x"})
        refused = log.refusals(limit=100)
    shutil.copy(other / WAITING[name], base / WAITING[name])
    upgrade(STORES[name], base=base)
    for _ in range(2):
        with closing(Log(open_store(STORES[name], base=base, create=False), CATALOG, actor="user:ada")) as log:
            assert log.refusals(limit=100) == refused
            log.append("note.added", stream="note/2", payload={"text": "x"})
