"""verify, doctor and purge: what keeps a log sound, and the one way out of it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.test_process import on_terminal
from tests.conftest import Clock
from tests.support.sqlite_edits import edit

from everlog.application.checks import doctor
from everlog.catalog.builtin import BUILT_IN
from everlog.errors import Damaged, UnknownType
from everlog.log.log import Log
from everlog.stores.sqlite.store import SqliteStore

LOG = Path(".everlog/log.db")


def damage(statement: str) -> None:
    """Change the log behind its back, as a broken disk or a foreign program would."""
    edit(LOG, statement)


# ---- verify


def test_of_a_line_that_cannot_be_read_the_file_is_told_first(everlog: Run, place: Path) -> None:
    everlog("init", "--store", "jsonl:log")
    for number in range(3):
        everlog("append", "note.added", "-s", "note/1", f"text={number}")
    (day,) = (place / ".everlog" / "log" / "events").glob("*.jsonl")
    first, _, *rest = day.read_bytes().splitlines(keepends=True)
    day.write_bytes(b"".join([first, b"not a line\n", *rest]))
    problems = [words for name, words in everlog("verify").rows if name == "problem"]
    assert problems[0].startswith(f"line_unreadable: events/{day.name} line 2: ")
    assert [words.split(":")[0] for words in problems[1:]] == [
        "#2 log_cut_off",
        f"#3 sequence_gap in events/{day.name}",
        f"#3 chain_broken in events/{day.name}",
    ]
    _, shown = on_terminal(place, "verify", "--no-color")
    assert f"  line_unreadable: events/{day.name} line 2: " in shown
    assert "  #2 log_cut_off: " in shown
    (structure,) = (row for row in everlog("doctor").rows if row[1] == "structure")
    assert "problems: line_unreadable: events/" in structure[2]


def test_a_sound_log_verifies_with_its_digest(notes: Run) -> None:
    found = notes("verify", "--json")
    assert found.code == 0
    assert found.err == ""
    assert (found.data["ok"], found.data["events"], found.data["problems"]) == (True, 5, [])
    assert notes("verify", "-q").out.strip() == found.data["digest"]
    assert ["digest", found.data["digest"]] in notes("verify").rows


def test_a_changed_payload_exits_8_and_is_named(notes: Run) -> None:
    damage('UPDATE events SET payload = \'{"text":"forged","topic":""}\' WHERE position = 3')
    found = notes("verify", "--json")
    assert found.code == 8
    assert (3, "group_changed") in [(problem["position"], problem["code"]) for problem in found.data["problems"]]
    assert notes("show", "3", "--raw").code == 8
    assert any(row[0] == "problem" and "#3 group_changed" in row[1] for row in notes("verify").rows)
    assert "ITEM position=3 code=group_changed" in notes("verify", "--agent").out


def test_a_header_that_cannot_be_read_is_damage(notes: Run) -> None:
    damage("UPDATE events SET header = substr(header, 1, 60) WHERE position = 3")
    assert notes("verify").code == 8
    found = notes("log")
    assert found.code == 8
    assert "error: the log is damaged at position 3" in found.err
    assert notes("show", "3", "--raw").code == 8


# ---- doctor


def test_every_check_of_a_sound_log_is_ok(notes: Run) -> None:
    notes("schema", "lock")
    found = notes("doctor", "--json")
    assert found.code == 0
    assert {check["status"] for check in found.data} == {"ok"}
    assert [check["id"] for check in found.data] == [
        *("runtime", "folder", "settings", "log", "format", "journal", "modes", "disk"),
        *("structure", "clock", "refusals", "views", "snapshots", "actor", "catalog", "schema"),
    ]


def test_a_warning_is_no_failure(notes: Run) -> None:
    LOG.chmod(0o666)
    found = notes("doctor", "--json")
    assert found.code == 0
    warned = {check["id"]: check["fix"] for check in found.data if check["status"] == "warn"}
    assert set(warned) == {"modes", "schema"}
    assert warned["modes"].startswith("chmod 640 ")
    assert warned["schema"] == "everlog schema lock"


def test_many_refusals_are_pointed_out(notes: Run) -> None:
    for _ in range(10):
        notes("append", "note.added", "-s", "note/1")
    assert ["warn", "refusals", "10 in the last day", "everlog errors --stats"] in notes("doctor").rows


def test_a_damaged_snapshot_is_pointed_out(notes: Run, place: Path) -> None:
    notes("snapshot", "create", "streams")
    (path,) = (place / ".everlog").rglob("streams@*.gz")
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes(12) + data[-8:])
    (found,) = [row for row in notes("doctor").rows if row[1] == "snapshots"]
    assert found[0] == "warn"
    assert path.name in found[2]
    assert notes(*found[3].split()[1:]).code == 0


def test_a_damaged_structure_fails_with_8(notes: Run) -> None:
    damage("UPDATE events SET sequence = 9 WHERE position = 5")
    found = notes("doctor")
    assert found.code == 8
    assert any(row[:2] == ["fail", "structure"] and "trigger_missing" in row[2] for row in found.rows)
    assert notes("doctor", "-q").out == "structure\n"


def test_a_full_disk_fails(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES_FAIL", 2**60)
    found = notes("doctor")
    assert found.code == 8
    assert any(row[:2] == ["fail", "disk"] for row in found.rows)


def test_another_journal_mode_fails(notes: Run) -> None:
    with sqlite3.connect(LOG) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    connection.close()
    found = notes("doctor")
    assert found.code == 8
    assert any(row[:2] == ["fail", "journal"] for row in found.rows)


def test_an_event_from_the_future_points_at_the_clock(log: Run) -> None:
    def in_an_hour() -> int:
        return time.time_ns() // 1000 + 3_600_000_000

    with Log(SqliteStore(LOG, now_us=in_an_hour), BUILT_IN, now_us=in_an_hour) as opened:
        opened.append("note.added", stream="note/1", payload={"text": "tomorrow"})
    assert any(row[:2] == ["warn", "clock"] and "in the future" in row[2] for row in log("doctor").rows)


def test_without_a_log_the_doctor_says_what_to_do(everlog: Run) -> None:
    found = everlog("doctor")
    assert found.code == 8
    assert any(row[:2] == ["fail", "folder"] and row[3] == "everlog init" for row in found.rows)


def test_broken_settings_are_one_failed_check(notes: Run) -> None:
    Path(".everlog/everlog.toml").write_text("stor = 'sqlite:log.db'\n")
    found = notes("doctor", "--json")
    assert found.code == 8
    failed = [check for check in found.data if check["status"] == "fail"]
    assert [check["id"] for check in failed] == ["settings"]
    assert failed[0]["fix"] == "did you mean store?"


def test_the_doctor_changes_nothing(notes: Run) -> None:
    before = {path.name: path.read_bytes() for path in Path(".everlog").iterdir() if path.is_file()}
    notes("doctor")
    after = {path.name: path.read_bytes() for path in Path(".everlog").iterdir() if path.is_file()}
    assert after["log.db"] == before["log.db"]
    assert set(after) - set(before) <= {"log.db-wal", "log.db-shm"}


def test_leftover_temporary_files_are_pointed_out(notes: Run) -> None:
    Path(".everlog/.x.1.0.everlog-tmp").touch()
    assert any(row[:2] == ["warn", "folder"] for row in notes("doctor").rows)


# ---- purge


def test_without_the_exact_words_nothing_is_removed(notes: Run) -> None:
    found = notes("purge", "note/1", "--reason", "r", "--json")
    assert found.code == 6
    assert found.error["details"] == {"confirm": "purge note/1", "events": 4}
    assert notes("purge", "note/1", "--reason", "r", "--confirm", "purge note/2").code == 6
    assert notes("purge", "note/1", "--reason", "r", "--confirm", "purge").code == 6
    assert len(notes("log").rows) == 5


def test_a_dry_run_counts_and_removes_nothing(notes: Run) -> None:
    data = notes("purge", "note/1", "--reason", "r", "--dry-run", "--json").data
    assert data == {
        "stream": "note/1",
        "events": 4,
        "first": 1,
        "last": 4,
        "payload_bytes": 4 * len('{"text":"note 1","topic":""}'),
        "scopes": [],
        "dry_run": True,
    }
    assert len(notes("log").rows) == 5


def test_a_purge_removes_the_stream_and_the_log_still_verifies(notes: Run) -> None:
    digest = notes("verify", "-q").out
    data = notes("purge", "note/1", "--reason", "r", "--confirm", "purge note/1", "--json").data
    assert (data["events"], data["reserved"]) == (4, 6)
    assert [row[0] for row in notes("log").rows] == ["5"]
    found = notes("verify", "--json").data
    assert (found["ok"], found["events"], found["purged"]) == (True, 1, 4)
    assert notes("verify", "-q").out == digest
    assert b"note 1" not in LOG.read_bytes()


def test_a_stream_without_events_exits_4(notes: Run) -> None:
    assert notes("purge", "note/9", "--reason", "r", "--confirm", "purge note/9").code == 4


def test_a_purge_needs_a_reason(notes: Run) -> None:
    assert notes("purge", "note/1").code == 2
    assert notes("purge", "note/1", "--reason", "x" * 300, "--confirm", "purge note/1").code == 3


# ---- a log that cannot be used


def test_a_file_that_is_no_log_exits_4_and_stays_as_it_is(log: Run) -> None:
    for content in (b"", b"hello, I am a text file", b"SQLite format 3\x00" + b"\x00" * 100):
        LOG.write_bytes(content)
        found = log("log", "--json")
        assert found.code in (4, 8), content
        assert LOG.read_bytes() == content


def test_a_foreign_database_exits_4(everlog: Run, place: Path) -> None:
    with sqlite3.connect(place / "other.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    found = everlog("--log", "sqlite:other.db", "log", "--json")
    assert found.code == 4
    assert found.error["code"] == "not_a_log"


def test_a_log_of_a_newer_format_exits_4_and_is_not_touched(notes: Run) -> None:
    with sqlite3.connect(LOG) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for command in (["log"], ["verify"], ["append", "note.added", "-s", "note/1", "text=x"]):
        found = notes(*command, "--json")
        assert found.code == 4
        assert found.error["code"] == "newer_format"
        assert found.error["details"]["format"] == 99


def test_a_log_whose_lock_is_held_exits_7_and_names_the_holder(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.lock_file import LockFile
    from everlog.stores.sqlite import connection

    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 50)
    holder = LockFile(Path(".everlog/log.db-lock").resolve())
    holder.acquire()
    try:
        found = notes("append", "note.added", "-s", "note/1", "text=x", "--json")
    finally:
        holder.close()
    assert found.code == 7
    assert found.error["code"] == "busy"
    assert found.error["retryable"] is True
    assert found.error["details"]["pid"] == os.getpid()
    assert notes("append", "note.added", "-s", "note/1", "text=x").code == 0


def without_privilege(*arguments: str) -> int:
    """The exit code of a command that file modes bind, also when the tests run as root."""
    command = [sys.executable, "-m", "everlog", *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and setpriv (util-linux), which takes that from it, is missing")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_a_folder_that_cannot_be_written_exits_7_and_can_still_be_read(notes: Run) -> None:
    folder = Path(".everlog")
    assert notes("append", "note.added", "-s", "note/1", "text=x").code == 0
    folder.chmod(0o550)
    LOG.chmod(0o440)
    try:
        assert without_privilege("append", "note.added", "-s", "note/1", "text=x") == 7
        assert without_privilege("log") == 0
        assert without_privilege("verify") == 0
        assert without_privilege("config", "set", "actor", "user:ada") == 7
    finally:
        folder.chmod(0o750)


def test_a_disk_that_refuses_writes_exits_7(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from everlog.files import DiskFiles
    from everlog.os_errors import explained

    def refuse(self: DiskFiles, *args: object, **kwargs: object) -> None:
        told = explained(OSError(errno.EROFS, os.strerror(errno.EROFS)), "cannot write")
        assert told is not None
        raise told

    monkeypatch.setattr(DiskFiles, "write", refuse)
    found = notes("config", "set", "actor", "user:ada", "--json")
    assert found.code == 7
    assert found.error["code"] == "read_only"


# ---- what cannot be read


def test_a_directory_in_the_place_of_a_file_is_named(notes: Run, place: Path) -> None:
    for words, code in (
        (["log", "--log", "sqlite:."], 4),
        (["log", "--log", f"sqlite:{place}"], 4),
        (["import", "."], 3),
        (["import", ".everlog"], 3),
    ):
        found = notes(*words, "--json")
        assert found.code == code, words
        assert found.error["message"].endswith("is a directory")
        assert found.error["message"].startswith((".", str(place)))
    assert notes("copy", "sqlite:.everlog/log.db", "sqlite:.").code == 5


def test_a_log_that_was_cut_off_is_told_to_be_restored_and_not_to_be_verified_again(notes: Run, place: Path) -> None:
    path = place / ".everlog/log.db"
    with path.open("r+b") as file:
        file.truncate(9000)
    for words in (["log"], ["verify"]):
        found = notes(*words, "--json")
        assert found.code == 8, words
        assert found.error["hint"].startswith("restore a backup")
        assert str(path) in found.error["hint"]
    checks = {check["id"]: check for check in notes("doctor", "--json").data if check["status"] == "fail"}
    assert checks["log"]["fix"].startswith("restore a backup")


def test_verify_does_not_send_to_itself(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Damaged("#3 cannot be read", why="its bytes are no row", hint="everlog verify", position=3)

    monkeypatch.setattr("everlog.log.log.Log.verify", fail)
    found = notes("verify", "--json")
    assert (found.code, found.error["details"]) == (8, {"position": 3})
    assert "restore a backup" in found.error["hint"]
    assert "everlog verify" not in found.error["hint"]


def test_the_words_to_confirm_are_told_and_the_whole_command_is_not(notes: Run) -> None:
    """What is pasted without reading must not purge anything."""
    command = ("purge", "note/1", "--reason", "it's request 17")
    hint = notes(*command, "--json").error["hint"]
    assert "everlog purge" not in hint
    words = shlex.split(hint[hint.index("--confirm") :])
    assert notes(*command, *words).code == 0
    assert notes("log", "--purges", "--json").data[0]["reason"] == "it's request 17"


@pytest.mark.parametrize("store", ["sqlite:log.db", "segments:data"])
def test_a_log_without_an_index_is_not_told_of_another_store(everlog: Run, store: str) -> None:
    everlog("init", "--store", store)
    found = everlog("index", "rebuild", "--json")
    assert found.code == 2
    assert "SQLite" not in found.error["hint"]
    assert "everlog verify" in found.error["hint"]


def test_refusals_that_were_only_counted_are_told(log: Run, place: Path) -> None:
    clock = Clock()
    with Log(SqliteStore(place / ".everlog" / "log.db", now_us=clock), BUILT_IN, now_us=clock) as opened:
        for _ in range(107):
            with pytest.raises(UnknownType):
                opened.append("no.such", stream="note/1", actor="user:ada")
    found = log("errors", "-n", "500")
    assert len(found.rows) == 100
    assert found.err.startswith("warning: 7 further refusals of user:ada in the minute of 2027-01-15T08:00Z: counted")
    assert len(json.loads(log("errors", "--json").out)["warnings"]) == 1
    assert log("errors", "--by", "user:bob").err == "nothing was refused\n"
