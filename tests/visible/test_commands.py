"""Every command of the command line is as it was recorded: its options, its exit codes, its answers in JSON."""

from __future__ import annotations

import difflib
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.visible import recording, stories, world
from tests.visible.world import RECORDED

AGAIN = "if it is meant: tests/visible/README.md says what to do"


@pytest.mark.parametrize("chapter", stories.CHAPTERS, ids=lambda chapter: chapter.name)
def test_every_call_is_answered_as_recorded(chapter: stories.Chapter, tmp_path: Path) -> None:
    if chapter.needs and shutil.which(chapter.needs) is None and find_spec(chapter.needs) is None:
        pytest.skip(f"the calls of {chapter.name} need {chapter.needs}, which is not here")
    calls = list(recording.tell(chapter, tmp_path))
    assert recorded(f"{chapter.name}.txt") == recording.calls_text(calls), difference(
        f"{chapter.name}.txt", recording.calls_text(calls)
    )
    assert [call.text for call in calls if (call.code != 0) != call.refused] == []


def test_every_command_has_a_call_that_succeeds_and_one_that_does_not() -> None:
    answered: dict[str, set[bool]] = {}
    for chapter in stories.CHAPTERS:
        for line in recording.lines(chapter):
            if not line.text.startswith("! "):
                answered.setdefault(world.command_of(line.words), set()).add(line.refused)
    known = set(world.commands())
    assert len(known) > 140
    assert set(answered) == known, "every command needs a line in tests/visible/stories.py"
    assert {name for name, found in answered.items() if False not in found} == set(stories.OPTIONS_ONLY)
    assert {name for name, found in answered.items() if True not in found} == set()


@pytest.mark.parametrize("name", [pytest.param(name, id=name or "everlog") for name in world.commands()])
def test_the_options_of_a_command_are_as_recorded(name: str) -> None:
    known = recording.sections(recorded("options.txt"), "#")
    assert name in known or name == "", f"{name} is new: {AGAIN}"
    (expected,) = known[name or "everlog"]
    assert recording.options_text(world.commands()[name]).splitlines() == expected.splitlines(), AGAIN


def test_no_command_that_was_recorded_is_gone() -> None:
    known = recording.sections(recorded("options.txt"), "#")
    assert list(known) == [name or "everlog" for name in world.commands()], AGAIN


def test_the_codes_of_all_errors_are_as_recorded() -> None:
    assert recording.errors_text().splitlines() == recorded("errors.txt").splitlines(), AGAIN


def test_the_help_of_every_command_and_group_is_as_recorded() -> None:
    assert recorded("help.txt") == recording.all_help_text(), difference("help.txt", recording.all_help_text())


# ---- the comparison itself


def test_what_is_random_gets_a_stable_name_and_nothing_else_does() -> None:
    names = recording.Names({"door": "ab12"}, {"/tmp/x": "<place>"})
    one, other = "01JNDKQKK8F3X9MTBQC61XM4P0", "01JNDKQKK8F3X9MTBQC61XM4P1"
    assert names(f"{one} {other} {one.lower()} {one}") == "<id 1> <id 2> <id 3> <id 1>"
    assert names("close ab12, not ab123") == "close <door>, not ab123"
    assert names("/tmp/x/log 4~9@c61xm4p0") == "<place>/log 4~9@<epoch>"
    assert names("2025-03-03T09:00:00Z 2026-11-15 22:30:08Z") == "2025-03-03T09:00:00Z <now>"
    assert names("f" * 64) == "<hash 1>"


def test_a_field_that_is_new_gone_or_of_another_kind_changes_a_shape() -> None:
    before = recording.shape({"a": [{"b": 1}, {"b": 2, "c": "x"}]})
    assert before == {"a": [{"b": "int", "c": "absent | str"}]}
    assert recording.shape({"a": [{"b": 1.0}, {"b": 2, "c": "x"}]}) != before
    assert recording.shape({"a": [{"b": 1}]}) != before


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def difference(name: str, now: str) -> str:
    """What differs, with the call that it belongs to; pytest's own comparison of long texts does not end."""
    found = difflib.unified_diff(recorded(name).splitlines(), now.splitlines(), "recorded", "now", "", "", 4, "")
    return "\n".join([f"{name} differs; {AGAIN}", *found])
