from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from everlog.catalog import Catalog
from everlog.catalog.lock import compare, lock_text
from everlog.core.event import Event
from everlog.errors import InvalidPayload, SchemaBroken

MakeEvent = Callable[..., Event]


class StructItem(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]


class StructCommand(msgspec.Struct):
    """A command was given."""

    agent_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    status: Literal["pending", "approved", "rejected"]
    items: list[StructItem] = []
    note: str | None = None
    tries: Annotated[int, msgspec.Meta(ge=0)] = 0


class Item(BaseModel):
    name: Annotated[str, Field(min_length=1)]


class Command(BaseModel):
    """A command was given."""

    agent_id: Annotated[str, Field(min_length=1, max_length=128)]
    status: Literal["pending", "approved", "rejected"]
    items: list[Item] = []
    note: str | None = None
    tries: Annotated[int, Field(ge=0)] = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Aliased(BaseModel):
    agent: str = Field(alias="agentId")


class Computed(BaseModel):
    width: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


def catalog_of(model: type[Any]) -> Catalog:
    catalog = Catalog()
    catalog.event("agent.commanded")(model)
    return catalog


def paths(model: type[Any], payload: Any) -> list[str]:
    with pytest.raises(InvalidPayload) as refused:
        catalog_of(model).validate("agent.commanded", payload)
    assert all(reason and reason[0].islower() for _, reason in refused.value.defects if reason[0].isalpha())
    return sorted(path for path, _ in refused.value.defects)


def _named_alike(schema: dict[str, Any]) -> dict[str, Any]:
    text = msgspec.json.encode(schema).decode().replace("StructItem", "Item")
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


def test_both_libraries_give_the_same_json_schema() -> None:
    struct, pydantic = catalog_of(StructCommand), catalog_of(Command)
    assert _named_alike(struct.json_schema("agent.commanded")) == pydantic.json_schema("agent.commanded")
    assert _named_alike(struct.json_schema()) == pydantic.json_schema()


def test_both_libraries_fill_in_the_same_defaults() -> None:
    payload = {"agent_id": "a", "status": "pending", "items": [{"name": "x"}]}
    expected = (1, payload | {"note": None, "tries": 0})
    assert catalog_of(StructCommand).validate("agent.commanded", payload) == expected
    assert catalog_of(Command).validate("agent.commanded", payload) == expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, ["$.agent_id", "$.status"]),
        ({"agent_id": "", "status": "x", "tries": -1}, ["$.agent_id", "$.status", "$.tries"]),
        (
            {"agent_id": "a", "status": "pending", "items": [{"name": "a"}, {"name": ""}, {}]},
            ["$.items[1].name", "$.items[2].name"],
        ),
        ({"agent_id": "a", "status": "pending", "statsu": 1}, ["$.statsu"]),
        ({"agent_id": "a", "status": "pending", "items": [{"name": "a", "nmae": 1}]}, ["$.items[0].nmae"]),
        ({"agent_id": 3, "items": 4}, ["$.agent_id", "$.items", "$.status"]),
        ([], ["$"]),
    ],
)
def test_both_libraries_name_the_same_places(payload: Any, expected: list[str]) -> None:
    assert paths(StructCommand, payload) == expected
    assert paths(Command, payload) == expected


def test_a_typo_gets_the_field_that_was_meant() -> None:
    with pytest.raises(InvalidPayload) as refused:
        catalog_of(Command).validate("agent.commanded", {"agent_id": "a", "statsu": "pending"})
    assert refused.value.defects == [
        ("$.status", "it is missing"),
        ("$.statsu", "there is no such field; did you mean status?"),
    ]


def test_an_instance_is_accepted_and_checked_again() -> None:
    catalog = catalog_of(Command)
    command = Command(agent_id="a", status="pending")
    assert catalog.validate("agent.commanded", command)[1]["agent_id"] == "a"
    command.agent_id = ""
    with pytest.raises(InvalidPayload) as refused:
        catalog.validate("agent.commanded", command)
    assert [path for path, _ in refused.value.defects] == ["$.agent_id"]


def test_a_model_that_allows_unknown_fields_keeps_them() -> None:
    catalog = catalog_of(Open)
    assert catalog.validate("agent.commanded", {"name": "a", "more": [1]})[1] == {"name": "a", "more": [1]}
    assert catalog.json_schema("agent.commanded")["additionalProperties"] is True


def test_an_alias_is_the_name_in_the_payload(an_event: MakeEvent) -> None:
    catalog = catalog_of(Aliased)
    assert catalog.validate("agent.commanded", {"agentId": "a"})[1] == {"agentId": "a"}
    assert catalog.typed(an_event("agent.commanded", 1, {"agentId": "a"})) == Aliased(agentId="a")
    assert [field.name for field in catalog.types()[0].fields] == ["agentId"]


def test_a_field_that_is_read_and_written_under_two_names_is_refused() -> None:
    class Twofold(BaseModel):
        agent: str = Field(serialization_alias="agentId")

    with pytest.raises(SchemaBroken) as refused:
        catalog_of(Twofold).validate("agent.commanded", {"agent": "a"})
    assert "one alias" in refused.value.why


def test_a_computed_field_is_not_stored() -> None:
    catalog = catalog_of(Computed)
    for payload in ({"width": 2}, Computed(width=2)):
        assert catalog.validate("agent.commanded", payload) == (1, {"width": 2})


def test_an_unfit_stored_payload_is_not_typed(an_event: MakeEvent) -> None:
    with pytest.raises(SchemaBroken):
        catalog_of(Command).typed(an_event("agent.commanded", 1, {"agent_id": 3}))


def test_the_doc_is_the_models_own() -> None:
    assert catalog_of(Command).types()[0].doc == "A command was given."
    assert catalog_of(Item).types()[0].doc == ""


def test_changing_the_library_of_a_model_breaks_nothing() -> None:
    assert compare(lock_text(catalog_of(StructCommand)), catalog_of(Command)) == []
    assert compare(lock_text(catalog_of(Command)), catalog_of(StructCommand)) == []


def test_pydantic_is_not_loaded_for_structs() -> None:
    program = (
        "import sys; from everlog.catalog.builtin import BUILT_IN; import everlog.catalog.pydantic_model;"
        "BUILT_IN.validate('note.added', {'text': 'a'}); BUILT_IN.json_schema(); assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
