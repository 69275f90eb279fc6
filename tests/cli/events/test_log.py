"""What people see of purges between the events of `everlog log`, and that programs see nothing of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.test_process import on_terminal


@pytest.fixture
def purged(log: Run) -> Run:
    """Events 1, 4, 5 and 8; 2, 3 and 6 were of note/3, whose purge holds 7."""
    for number in (1, 3, 3, 2, 1, 3):
        log("append", "note.added", "-s", f"note/{number}", "text=hello", "--scope", f"acme/team{number}")
    assert (
        log("purge", "note/3", "--reason", "asked to", "--confirm", "purge note/3", "--actor", "user:ada").code == 0
    )
    log("append", "note.added", "-s", "note/1", "text=after")
    return log


def shown(place: Path, *asked: str) -> list[str]:
    _, text = on_terminal(place, *asked, "--no-color")
    return [line for line in text.splitlines() if line.lstrip().startswith("#")]


def numbers(lines: list[str]) -> list[int]:
    return [int(re.match(r" *#(\d+)", line)[1]) for line in lines]  # type: ignore[index]


def test_no_number_is_missing_in_silence(purged: Run, place: Path) -> None:
    lines = shown(place, "log")
    assert numbers(lines) == [1, 2, 4, 5, 6, 7, 8]
    assert lines[1] == "#2  to #3: purged, see #7"
    assert lines[4] == "#6  purged, see #7"
    assert re.fullmatch(r"#7  \S+ \S+  user:ada +purged +note/3 +3 events: asked to", lines[5])
    assert shown(place, "log", "--reverse") == lines[::-1]
    assert shown(place, "tail", "--no-follow") == lines
    assert numbers(shown(place, "log", "-n", "2")) == [5, 6, 7, 8]
    assert numbers(shown(place, "log", "--after", "0", "--limit", "2")) == [1, 2, 4]
    assert numbers(shown(place, "log", "--until", "#6")) == [1, 2, 4, 5, 6]
    assert numbers(shown(place, "log", "--to-end")) == [1, 4, 5, 7, 8]  # a stream: the records of purges


@pytest.mark.parametrize(
    ("filters", "seen"),
    [
        (("--stream", "note/3"), [7]),
        (("--stream", "note/1"), [1, 5, 8]),
        (("--kind", "note"), [1, 4, 5, 7, 8]),
        (("--kind", "memo"), []),
        (("--scope", "acme"), [1, 4, 5, 7]),
        (("--scope", "acme/team1"), [1, 5]),
        (("--by", "user:ada"), [7]),
        (("--type", "note.added"), [1, 4, 5, 8]),
        (("--since", "1h"), [1, 4, 5, 7, 8]),
        (("--until", "1h"), []),
    ],
)
def test_under_a_filter_only_purges_of_what_it_speaks_of_are_shown(
    purged: Run, place: Path, filters: tuple[str, str], seen: list[int]
) -> None:
    assert numbers(shown(place, "log", *filters)) == seen
    assert numbers(shown(place, "log", "--to-end", *filters)) == seen


def test_programs_are_told_of_events_alone(purged: Run, place: Path) -> None:
    for asked in (["log"], ["log", "--to-end"], ["tail", "--no-follow"], ["log", "--after", "0"]):
        assert [row[0] for row in purged(*asked).rows] == ["1", "4", "5", "8"]
    found = purged("log", "--json")
    assert [event["position"] for event in found.data] == [1, 4, 5, 8]
    assert "purged" not in found.out
    _, text = on_terminal(place, "log", "-q")
    assert len(text.split()) == 4
