"""`everlog snapshot`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run


def folder(place: Path) -> Path:
    return place / ".everlog" / "log.db.snapshots"


def test_a_snapshot_is_made_listed_verified_and_restored(notes: Run, place: Path) -> None:
    made = notes("snapshot", "create", "streams", "--json").data
    assert [(one["view"], one["position"], one["kind"], one["keys"]) for one in made] == [("streams", 5, "full", 2)]
    assert len(list(folder(place).glob("streams@*.json.gz"))) == 1
    notes("append", "note.added", "-s", "note/3", "text=new")
    (row,) = notes("snapshot", "list").rows
    assert (row[0], row[7]) == (made[0]["id"], "usable")
    assert [row[3] for row in notes("snapshot", "verify").rows] == ["ok"]
    restored = notes("snapshot", "restore", "streams", "--json").data
    assert (restored["covered"], restored["position"], restored["keys"]) == (5, 6, 3)
    assert notes("views", "audit", "streams").code == 0
    assert notes("snapshot", "restore", "streams", "--from", made[0]["id"][-8:]).code == 0


def test_without_a_name_every_view_that_was_run_gets_one(notes: Run) -> None:
    assert notes("snapshot", "create").code == 4
    notes("views", "run", "types", "--to-end")
    notes("views", "run", "actors", "--to-end")
    assert [row[1] for row in notes("snapshot", "create").rows] == ["actors", "types"]
    assert notes("snapshot", "create", "--if-due").rows == []


def test_a_damaged_one_is_told_of_and_exits_with_8(notes: Run, place: Path) -> None:
    notes("snapshot", "create", "streams")
    (path,) = folder(place).glob("*.gz")
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes(12) + data[-8:])
    found = notes("snapshot", "verify")
    assert found.code == 8
    assert found.rows[0][3].startswith("damaged: ")
    assert notes("snapshot", "restore", "streams").code == 4
    assert notes("snapshot", "create", "streams", "-q").out.strip() not in path.name
    assert notes("snapshot", "restore", "streams").code == 0


def test_protecting_and_pruning(notes: Run, place: Path) -> None:
    name = notes("snapshot", "create", "streams", "-q").out.strip()
    assert notes("snapshot", "protect", name[-6:], "--reason", "the first").rows[0][8] == "the first"
    assert notes("snapshot", "prune", "--dry-run").rows == []
    assert notes("snapshot", "prune").rows == []
    assert notes("snapshot", "protect", name, "--off").rows[0][8] == ""
    assert notes("snapshot", "protect", "nothing").code == 4


def test_a_purge_removes_the_snapshots_that_hold_the_stream(notes: Run, place: Path) -> None:
    notes("snapshot", "create", "fields")
    assert len(list(folder(place).glob("*.gz"))) == 1
    assert notes("purge", "note/2", "--reason", "a test", "--confirm", "purge note/2").code == 0
    assert list(folder(place).glob("*.gz")) == []


def test_a_log_in_memory_has_no_place_for_snapshots(everlog: Run) -> None:
    empty = everlog("--log", "memory:", "snapshot", "list")
    assert empty.rows == []
    assert "everlog config set snapshots snapshots sets their folder" in empty.err
    found = everlog("--log", "memory:", "snapshot", "create", "streams")
    assert found.code == 2
    assert "no folder for snapshots" in found.err


# ---- where there is none


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("snapshot", "list"), "there is no snapshot: everlog snapshot create streams"),
        (("snapshot", "list", "types"), "there is no snapshot of types: everlog snapshot create types"),
        (("snapshot", "verify"), "there is no snapshot: everlog snapshot create streams"),
        (("snapshot", "verify", "types"), "there is no snapshot of types: everlog snapshot create types"),
    ],
)
def test_no_snapshot_is_told_with_the_command_that_makes_one(notes: Run, asked: tuple[str, ...], told: str) -> None:
    found = notes(*asked)
    assert (found.code, found.out, found.err) == (0, "", told + "\n")
    assert notes(*asked, "--json").data == []
    assert notes(*told.partition("everlog ")[2].split()).code == 0
    assert told not in notes(*asked).err


def test_a_mistyped_view_is_not_told_as_one_without_snapshots(notes: Run) -> None:
    found = notes("snapshot", "list", "strems")
    assert found.code == 4
    assert "did you mean streams?" in found.err


def test_a_restore_without_a_snapshot_says_so_and_its_hint_works(notes: Run) -> None:
    error = notes("snapshot", "restore", "streams", "--json").error
    assert error["why"] == "there is none"
    assert error["hint"].startswith("everlog views rebuild streams ")
    assert notes("views", "rebuild", "streams").code == 0


def test_a_restore_from_damaged_ones_names_the_command_that_says_why(notes: Run, place: Path) -> None:
    notes("snapshot", "create", "streams")
    (path,) = folder(place).glob("*.gz")
    path.write_bytes(path.read_bytes()[:-20])
    error = notes("snapshot", "restore", "streams", "--json").error
    assert error["why"] == "those that exist are damaged or stale"
    assert error["hint"].startswith("everlog snapshot verify streams shows why; ")
    assert notes("snapshot", "verify", "streams").rows[0][3].startswith("damaged: ")
