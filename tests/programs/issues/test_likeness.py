from __future__ import annotations

import random

import pytest

from everlog.core.text import words
from everlog.programs.issues.likeness import BLOCKED_AT, TITLES_ALIKE_MIN, likeness


def test_titles_count_six_tenths_and_bodies_four() -> None:
    assert likeness("a b", "c d", "a b", "c d") == 1.0
    assert likeness("a b", "c d", "a b", "x y") == 0.6
    assert likeness("a b", "c d", "x y", "c d") == 0.4
    assert likeness("a b c", "x", "a b d", "x") == 0.7
    assert likeness("a b", "x", "c d", "y") == 0.0


def test_where_neither_has_a_body_the_titles_decide() -> None:
    assert likeness("Fix login page", "", "fix LOGIN page!", "") == 1.0
    assert likeness("fix login page", "", "fix logout page", "") == 0.5
    assert likeness("fix login page", "", "fix login page", "something") == 0.6


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_blocked_is_found_by_its_title(seed: int) -> None:
    chance, blocked = random.Random(seed), 0
    for _ in range(4000):
        title, other, body, other_body = (
            " ".join(chance.choices("abcd", k=chance.randrange(1, 6))) for _ in range(4)
        )
        if likeness(title, body, other, other_body) >= BLOCKED_AT:
            blocked += 1
            mine, others = {*words(title)}, {*words(other)}
            assert len(mine & others) / len(mine | others) >= TITLES_ALIKE_MIN
    assert blocked > 100
