"""Every named attack is in the table, each entry of the table exists and is run, and there are enough."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.trust.adversaries import TABLE
from tests.trust.test_adversaries import ATTACKS
from tests.trust.test_false_heads import LIES

ROOT = Path(__file__).parents[2]
NAMES = [name for names in TABLE.values() for name in names]


def test_there_are_at_least_sixty_named_attacks() -> None:
    print(len(NAMES), "named attacks")
    assert len(set(NAMES)) == len(NAMES) >= 60


def test_every_attack_is_in_the_table_and_every_entry_is_run() -> None:
    alone = {name for name in NAMES if "::" not in name}
    assert alone == ATTACKS.keys() | LIES.keys()
    for entry in set(NAMES) - alone:
        path, _, name = entry.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        (found,) = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
        marks = {part for mark in found.decorator_list for part in ast.unparse(mark).split("(")[0].split(".")}
        assert not marks & {"skip", "skipif", "slow", "xfail"}, entry
