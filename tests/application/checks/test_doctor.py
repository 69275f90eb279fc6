"""The checks of a log and of what is around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.application.checks import doctor
from everlog.application.checks.doctor import FAIL, OK, SKIP, WARN, Check, checks
from everlog.application.folder.create import create_log
from everlog.application.folder.open import Location
from everlog.errors import UnknownType
from everlog.log.log import Log


def found(location: Location) -> dict[str, Check]:
    opened: list[Log] = []

    def open_log() -> Log:
        opened.append(location.open())
        return opened[0]

    results = {check.id: check for check in checks(location, open_log)}
    for log in opened:
        log.close()
    return results


@pytest.fixture
def location(tmp_path: Path) -> Location:
    create_log(tmp_path, warn=pytest.fail)
    return Location(work_in=tmp_path, actor="user:ada")


def test_a_new_log_fails_no_check(location: Location) -> None:
    results = found(location)
    assert {check.status for check in results.values()} <= {OK, WARN}
    assert {"runtime", "folder", "settings", "log", "format", "journal", "modes", "disk", "structure"} <= set(results)
    assert {"clock", "refusals", "views", "snapshots", "actor", "catalog", "schema"} <= set(results)
    assert (results["schema"].status, results["schema"].fix) == (WARN, "everlog schema lock")


def test_without_a_folder_the_log_is_not_checked(tmp_path: Path) -> None:
    results = found(Location(work_in=tmp_path))
    assert (results["folder"].status, results["log"].status) == (FAIL, SKIP)
    assert results["folder"].fix == f"everlog init {tmp_path}"


def test_a_log_that_everyone_can_read_is_a_warning_with_its_fix(location: Location) -> None:
    path = location.folder() / "log.db"
    path.chmod(0o644)
    modes = found(location)["modes"]
    assert (modes.status, modes.fix) == (WARN, f"chmod 640 {path}")


@pytest.mark.parametrize("how", ["older copy", "without its journal"])
def test_a_database_of_an_earlier_moment_is_a_warning_until_the_next_write(location: Location, how: str) -> None:
    """It may be a backup that was restored, so reads do not stop."""
    path = location.folder() / "log.db"

    def note(log: Log) -> None:
        log.append("note.added", stream="note/1", payload={"text": "one"})

    with location.open() as log:
        note(log)
    earlier = path.read_bytes()
    with location.open() as log:
        for _ in range(2):
            note(log)
        if how == "without its journal":
            earlier = path.read_bytes()  # as a kill leaves it: the newest events are in the journal
        assert "older" not in found(location)
    assert "older" not in found(location)
    path.write_bytes(earlier)
    check = found(location)["older"]
    assert (check.status, check.detail.partition(":")[0]) == (WARN, "2 events that this log wrote are not in it")
    with location.open() as log:
        assert log.head() == 1
        note(log)
    assert "older" not in found(location)


def test_of_a_long_log_only_the_newest_events_are_read(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    with location.open() as log:
        for number in range(5):
            log.append("note.added", stream="note/1", payload={"text": str(number)})
    monkeypatch.setattr(doctor, "STRUCTURE_EVENTS_MAX", 3)
    structure = found(location)["structure"]
    assert (structure.status, structure.fix) == (SKIP, "everlog verify")
    assert structure.detail.startswith("3 events at the end can be read")


def test_an_actor_that_is_not_valid_fails(location: Location) -> None:
    actor = found(Location(work_in=location.work_in, actor="not an actor"))
    assert FAIL in {check.status for check in actor.values()}


def test_many_refusals_in_a_day_are_a_warning(location: Location) -> None:
    with location.open() as log:
        for _ in range(doctor.REFUSALS_A_DAY_WARN):
            with pytest.raises(UnknownType):
                log.append("no.such_type", stream="note/1", payload={})
    assert found(location)["refusals"].status == WARN
