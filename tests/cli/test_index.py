"""`everlog init --store jsonl:.`, the commands on such a log, and `everlog index rebuild`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run


@pytest.fixture
def jsonl(everlog: Run) -> Run:
    assert everlog("init", "--store", "jsonl:.").code == 0
    for text in ("one", "two"):
        assert everlog("append", "note.added", "-s", "note/1", f"text={text}").code == 0
    return everlog


def test_a_log_of_text_files_is_made_used_and_proved(jsonl: Run, place: Path) -> None:
    assert [row[0] for row in jsonl("log").rows] == ["1", "2"]
    assert jsonl("verify").code == jsonl("doctor").code == 0
    assert len(list((place / ".everlog" / "events").glob("*.jsonl"))) == 1
    elsewhere = jsonl("-C", str(place), "--log", "jsonl:.everlog", "log", "--json")
    assert [record["position"] for record in elsewhere.data] == [1, 2]


def test_the_index_is_made_anew_by_hand(jsonl: Run, place: Path) -> None:
    before = (place / ".everlog" / "local" / "index.db").stat().st_ino
    result = jsonl("index", "rebuild", "--json")
    assert (result.code, result.data["events"]) == (0, 2)
    assert (place / ".everlog" / "local" / "index.db").stat().st_ino != before


def test_damage_is_named_with_its_line_and_exits_8(jsonl: Run, place: Path) -> None:
    (file,) = (place / ".everlog" / "events").iterdir()
    file.write_bytes(file.read_bytes().replace(b"two", b"TWO"))
    result = jsonl("verify", "--json")
    assert result.code == 8
    reasons = [problem["reason"] for problem in result.data["problems"] if problem["code"] == "line_unreadable"]
    assert [reason.partition(":")[0] for reason in reasons] == [f"events/{file.name} line 2"]
    refused = jsonl("append", "note.added", "-s", "note/1", "text=three", "--json")
    assert (refused.code, refused.error["code"]) == (8, "damaged")


def test_going_on_without_what_is_lost_has_to_be_said(jsonl: Run, place: Path) -> None:
    (file,) = (place / ".everlog" / "events").iterdir()
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    refused = jsonl("index", "rebuild", "--json")
    assert refused.code == 8
    assert "--accept-missing" in refused.error["hint"]
    assert jsonl("index", "rebuild", "--accept-missing").code == 0
    assert jsonl("append", "note.added", "-s", "note/1", "text=three").code == 0
    assert jsonl("verify").code == 0


def test_a_log_without_an_index_of_its_own_says_so(log: Run) -> None:
    refused = log("index", "rebuild", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_settings")
