"""Keys and partitions: the same in every run, and what becomes of an event whose key cannot be computed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.consumers.world import fill

import everlog
from everlog.consumers import Group
from everlog.consumers.assignment import key_of, partition_of
from everlog.errors import InvalidField
from everlog.log.log import Log
from everlog.testing.builders import event


def test_a_partition_is_the_same_in_every_run_of_python() -> None:
    program = (
        "from everlog.consumers.assignment import partition_of;"
        " print([partition_of(f'note/{n}', 16) for n in range(20)])"
    )
    source = str(Path(everlog.__file__).parents[1])
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": source, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {str([partition_of(f"note/{number}", 16) for number in range(20)])}
    # Written down, because cursors that are on a disk somewhere rely on it.
    assert [partition_of(f"note/{number}", 16) for number in range(6)] == [14, 12, 3, 10, 11, 14]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stream", "note/7"),
        ("kind", "note"),
        ("type", "note.added"),
        ("actor", "user:ada"),
        ("scope", "acme"),
        ("tag:team", "red"),
        ("tag:none", ""),
        ("payload:text", "hello"),
        ("payload:count", "3"),
    ],
)
def test_a_key_is_found_by_its_name(name: str, expected: str) -> None:
    made = event(stream="note/7", scope="acme", tags={"team": "red"}, payload={"text": "hello", "count": 3})
    assert key_of(name)(made) == expected


def test_a_name_that_is_no_key_is_refused() -> None:
    with pytest.raises(InvalidField, match="is not a key"):
        key_of("colour")


def test_an_event_whose_key_cannot_be_computed_becomes_a_dead_letter(memory_log: Log) -> None:
    fill(memory_log, 3)

    def key(event: everlog.Event) -> str:
        if event.payload["text"] == "1":
            raise ValueError("no key")
        return event.stream

    group = Group(memory_log, "mailer", key=key, partitions=2)
    seen: list[int] = []
    with group.member("a") as member:
        member.run(lambda recorded: seen.append(recorded.position), to_end=True)
    assert sorted(seen) == [1, 3]
    (letter,) = group.dead_letters()
    assert (letter.position, letter.reason) == (2, "its key cannot be computed: ValueError: no key")
