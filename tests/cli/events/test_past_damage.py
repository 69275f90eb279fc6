"""Every command that reads stops at damage with exit code 8; with --past-damage it answers and reports the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

BEFORE = [
    ("append", "note.added", "-s", "note/1", "text=one"),
    ("wp", "create", "WP01", "First"),
    ("issue", "create", "A first issue", "--scope", "acme"),
    ("agent", "propose", "run_tests", '{"path": "tests"}', "--agent-id", "builder", "--correlation", "session-7"),
    ("control", "org", "create", "acme"),
    ("control", "app", "create", "acme/shop"),
    ("control", "environment", "create", "acme/shop/prod"),
    ("control", "deploy", "request", "acme/shop/prod", "shop:1.4.2", "--id", "d1"),
    ("community", "create", "hearth", "--name", "The hearth"),
]
LOST = ("append", "note.added", "-s", "note/1", "text=the-one-that-is-lost")
AFTER = [("append", "note.added", "-s", "note/1", "text=three"), ("wp", "create", "WP02", "Second")]

READING = [
    ("log", "-n", "100"),
    ("log", "--after", "9"),
    ("log", "--after", "0"),
    ("log", "--after", "0", "--to-end"),
    ("log", "--kind", "note"),
    ("tail", "--no-follow", "-n", "50"),
    ("state", "note/1"),
    ("state", "note/1", "--as-of", "#11"),
    ("diff", "note/1", "#1"),
    ("why", "note/1", "text"),
    ("views", "get", "streams"),
    ("export",),
    ("agent", "list"),
    ("agent", "trace", "session-7"),
    ("control", "audit", "acme"),
    ("issue", "list", "--scope", "acme"),
    ("issue", "search", "first", "--scope", "acme"),
    ("community", "members"),
    ("community", "posts"),
    ("wp", "board"),
    ("wp", "status", "WP01"),
]


@pytest.fixture
def damaged(everlog: Run, place: Path) -> Run:
    """A log of all programs that has lost the event at position 10."""
    everlog("init", "--store", "segments:data")
    for words in (*BEFORE, LOST, *AFTER):
        made = everlog(*words)
        assert made.code == 0, (words, made.err)
    (segment,) = (place / ".everlog" / "data" / "segments").glob("*.seg")
    data = segment.read_bytes()
    assert b"the-one-that-is-lost" in data
    segment.write_bytes(data.replace(b"the-one-that-is-lost", b"the-one-that-was-lost"[:20]))
    return everlog


def test_every_command_that_reads_stops_at_damage(damaged: Run) -> None:
    for words in READING:
        found = damaged(*words)
        assert found.code == 8, (words, found.out)
        assert "--past-damage" in found.err, words
        told = damaged(*words, "--json")
        assert told.code == 8, words
        assert told.error["code"] == "damaged"
        assert (told.error["details"]["position"], told.error["details"]["after"]) == (10, 10), words


def test_past_damage_answers_and_reports_what_it_left_out(damaged: Run, place: Path) -> None:
    for words in READING:
        found = damaged(*words, "--past-damage", "--json")
        assert found.code == 0, (words, found.err)
        left_out = json.loads(found.err.splitlines()[-1])["left_out"]
        assert (left_out["count"], left_out["positions"]) == (1, [[10, 10]]), words
        assert damaged(*words).code == 8  # nothing of that answer was kept


def test_past_damage_reports_on_standard_error_in_every_form(damaged: Run) -> None:
    found = damaged("log", "--after", "0", "--past-damage")
    assert [row[0] for row in found.rows] == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "11", "12"]
    assert "left out: 1 position that cannot be read, #10" in found.err
    assert "LEFT_OUT count=1" in damaged("log", "--after", "0", "--past-damage", "--agent").err
    assert "after=10" in damaged("log", "--after", "9", "--agent").err


def test_past_damage_shows_the_rest_of_a_board(damaged: Run) -> None:
    found = damaged("wp", "board", "--past-damage", "--json")
    assert "WP01" in found.out
    assert "WP02" in found.out


def test_a_page_before_the_damage_is_printed_and_then_the_error(damaged: Run) -> None:
    found = damaged("log", "--after", "0")
    assert [row[0] for row in found.rows] == ["1", "2", "3", "4", "5", "6", "7", "8", "9"]
    assert found.code == 8


def test_a_board_stops_at_a_falsified_line(everlog: Run, place: Path) -> None:
    everlog("init", "--store", "jsonl:data")
    for number in (1, 2, 3):
        assert everlog("wp", "create", f"WP0{number}", f"package-{number}").code == 0
    (file,) = (place / ".everlog" / "data" / "events").glob("*.jsonl")
    file.write_text(file.read_text().replace("package-2", "falsified"))
    for form in ((), ("--json",), ("--agent",), ("-q",)):
        assert everlog("wp", "board", *form).code == 8, form
        found = everlog("wp", "board", *form, "--past-damage")
        assert (found.code, "WP01" in found.out, "WP03" in found.out) == (0, True, True), form
    assert everlog("wp", "board").code == 8  # what was folded past the damage was not kept


def test_what_is_read_before_the_damage_needs_no_flag(damaged: Run) -> None:
    assert damaged("log", "-n", "2").code == 0
    assert damaged("show", "1").code == 0
    assert damaged("log", "--after", "0", "--limit", "9").code == 0


def test_a_damaged_position_is_shown_as_damage(damaged: Run) -> None:
    assert damaged("show", "10").code == 8
    assert damaged("show", "10", "--raw").code == 8
    assert damaged("show", "ZZZZZZZZ").code == 8  # the lost event may have had this id


def test_nothing_is_left_out_of_a_whole_log(everlog: Run) -> None:
    everlog("init")
    everlog("append", "note.added", "-s", "note/1", "text=one")
    found = everlog("log", "--past-damage", "--json")
    assert (found.code, found.err, len(found.data)) == (0, "", 1)
