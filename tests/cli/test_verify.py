"""What `verify` and `doctor` print of a damaged log: the file, the positions and the cause, in a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.support.sqlite_edits import edit

import everlog as library
from everlog.application.checks import doctor
from everlog.cli.doctor import _not_doctor

EVENTS = 1200


def fill(place: Path, kind: str) -> Path:
    path = place / ".everlog" / "log"
    with library.open(f"{kind}:{path}") as log:
        drafts = [
            library.Draft(type="note.added", stream=f"note/{number % 7}", payload={"text": str(number)})
            for number in range(EVENTS)
        ]
        for first in range(0, EVENTS, 100):
            log.append_batch(drafts[first : first + 100])
    return path


def lose_a_thousand(path: Path, kind: str) -> str:
    """Remove a thousand events behind the log's back; the file that they were in."""
    if kind == "sqlite":
        edit(path, "DELETE FROM events WHERE position > 100 AND position <= 1100")
        return "log"
    (file,) = (path / "events").glob("*.jsonl") if kind == "jsonl" else (path / "segments").glob("*.seg")
    if kind == "jsonl":
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:100] + lines[1100:]))
        return f"events/{file.name}"
    data = bytearray(file.read_bytes())
    data[len(data) // 4 : len(data) * 3 // 4] = bytes(len(data) * 3 // 4 - len(data) // 4)
    file.write_bytes(data)
    return file.name


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_a_thousand_lost_events_are_reported_in_less_than_20_lines(kind: str, everlog: Run, place: Path) -> None:
    everlog("init", "--store", f"{kind}:log")
    file = lose_a_thousand(fill(place, kind), kind)
    found = everlog("verify")
    assert found.code == 8
    lines = [words for name, words in found.rows if name == "problem"]
    assert len(found.rows) + 3 <= 20
    assert any(file in line and " to #" in line for line in lines), lines
    data = everlog("verify", "--json").data
    lost = sum(
        max(each["upto"], each["position"]) - each["position"] + 1
        for each in data["problems"]
        if each["code"] in ("position_missing", "log_cut_off") and each["position"]
    )
    assert lost >= (400 if kind == "segments" else 1000)
    doctor_found = everlog("doctor", "--json")
    assert doctor_found.code == 8
    (structure,) = [check for check in doctor_found.data if check["id"] == "structure"]
    assert structure["status"] == "fail"
    assert file in structure["detail"]
    assert "everlog doctor" not in structure["fix"]


def test_doctor_says_what_it_did_not_check(everlog: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everlog("init")
    for number in range(5):
        everlog("append", "note.added", "-s", "note/1", f"text={number}")
    monkeypatch.setattr(doctor, "STRUCTURE_EVENTS_MAX", 3)
    (structure,) = [check for check in everlog("doctor", "--json").data if check["id"] == "structure"]
    assert structure["status"] == "skip"
    assert "3 events at the end can be read" in structure["detail"]
    assert structure["fix"] == "everlog verify"


def test_no_fix_sends_back_to_doctor() -> None:
    assert _not_doctor("everlog doctor") == "everlog verify"
    assert _not_doctor("chmod 640 log") == "chmod 640 log"
