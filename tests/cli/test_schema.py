"""`everlog schema`: types, their JSON Schema, and the lock that notices breaches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog.demo.programs.customers import TYPES


def test_types_are_added_listed_and_shown(log: Run) -> None:
    assert log("schema", "add", "deploy.finished", "service:str", "result:ok | failed", "--doc", "Done.").code == 0
    assert ["deploy.finished", "1", "service: str, result: failed | ok", "Done."] in log("schema", "list").rows
    assert [row[:3] for row in log("schema", "show", "deploy.finished").rows] == [
        ["service", "str", "yes"],
        ["result", "failed | ok", "yes"],
    ]
    assert log("append", "deploy.finished", "-s", "deploy/1", "service=shop", "result=ok").code == 0
    assert log("append", "deploy.finished", "-s", "deploy/1", "service=shop", "result=odd").code == 3


def test_adding_a_type_again_does_no_harm_and_otherwise_is_refused(log: Run) -> None:
    assert log("schema", "add", "a.b", "x:int").rows[0][2] == "made"
    before = Path(".everlog/types.toml").read_text()
    assert log("schema", "add", "a.b", "x:int").rows[0][2] == "there"
    assert log("schema", "add", "a.b", "x:str").code == 2
    assert log("schema", "add", "note.added", "x:str").code == 2
    assert Path(".everlog/types.toml").read_text() == before


def test_a_type_is_declared_as_its_events_are_and_an_append_must_fit_from_then_on(log: Run) -> None:
    lines = [
        {"event_type": "shop.visited", "payload": {"n": 1, "tags": ["a", None], "by": "ada"}},
        {"event_type": "shop.visited", "payload": {"n": 2.5, "tags": []}},
    ]
    Path("map.toml").write_text(
        'type = "{event_type}"\nstream = "shop/1"\n[payload]\nn = "payload.n"\n'
        'tags = "payload.tags"\nby = "payload.by"\n'
    )
    Path("visits.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert log("schema", "learn", "shop.visited").code == 4
    assert log("import", "visits.jsonl", "--mapping", "map.toml").code == 0
    learned = log("schema", "learn", "shop.visited", "--json").data
    assert learned["fields"] == {"n": "float", "tags": "list[str?]", "by": "str?"}
    assert log("append", "shop.visited", "-s", "shop/1", "n=3", "tags=[]").code == 0
    assert log("append", "shop.visited", "-s", "shop/1", "n=x", "tags=[]").code == 3
    assert log("schema", "learn", "shop.visited").code == 2


@pytest.mark.parametrize(
    "arguments", [["a.b", "x"], ["a.b", "x:"], ["a.b", "x:integr"], ["a b", "x:int"], ["a.b", "x:int", "x:int"]]
)
def test_a_declaration_that_makes_no_sense_exits_2(log: Run, arguments: list[str]) -> None:
    assert log("schema", "add", *arguments).code == 2
    assert log("schema", "list").code == 0


def test_schema_alone_exports_json_schema(log: Run) -> None:
    schema = json.loads(log("schema").out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(log("schema", "export").out) == schema
    assert log("schema", "export", "--json").data == schema
    assert json.loads(log("schema", "export", "note.added").out)["title"] == "note.added"
    assert log("schema", "export", "note.aded").code == 3
    assert log("schema", "show", "note.aded").code == 3


def test_a_rule_is_part_of_what_a_type_shows(log: Run) -> None:
    Path(".everlog/types.toml").write_text(TYPES)
    rule = log("schema", "show", "customer.plan_changed", "--json").data["transitions"][0]
    assert (rule["initial"], rule["allowed"]["trial"]) == ("free", ["team", "free"])


def test_the_lock_tells_additions_from_breaches(log: Run) -> None:
    assert log("schema", "check").code == 4
    log("schema", "add", "a.b", "x:int", "y:str")
    assert log("schema", "lock").code == 0
    assert log("schema", "check").code == 0
    types = Path(".everlog/types.toml")
    before = types.read_text()
    types.write_text(before + 'z = "int = 0"\n')
    assert len(log("schema", "check", "--json").data["additions"]) == 1
    types.write_text(before.replace('y = "str"', "").replace('x = "int"', 'x = "str"'))
    found = log("schema", "check")
    assert found.code == 3
    assert "field x" in found.err
    assert "field y" in found.err
    assert any(row[:2] == ["fail", "schema"] for row in log("doctor").rows)
    locked = log("schema", "lock")
    assert locked.code == 0
    assert "no longer locked" in locked.err
    assert log("schema", "check").code == 0


def test_the_lock_may_lie_elsewhere(log: Run, place: Path) -> None:
    assert log("schema", "lock", "--lock", "types.lock").code == 0
    assert (place / "types.lock").exists()
    assert log("schema", "check", "--lock", "types.lock").code == 0
    (place / "types.lock").write_text("{}")
    assert log("schema", "check", "--lock", "types.lock").code == 2


def test_a_personal_field_is_shown_as_one(log: Run) -> None:
    assert log("schema", "add", "customer.registered", "customer:str", "email:str personal of customer").code == 0
    shown = log("schema", "show", "customer.registered")
    assert ["email", "str personal of customer", "yes"] in [row[:3] for row in shown.rows]
    assert ["customer", "str", "yes"] in [row[:3] for row in shown.rows]
