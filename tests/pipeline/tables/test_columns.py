"""The columns of a typed table, from the model of its payload."""

from __future__ import annotations

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.shop import SHOP
from tests.pipeline.tables.test_typed import PLACED, recorded, typed

from everlog.pipeline.tables.columns import columns_of
from everlog.pipeline.tables.readings import ENVELOPE, Readings


def test_a_column_has_the_type_of_its_field() -> None:
    found = {column.name: str(column.type) for column in columns_of(SHOP.json_schema("order.placed"))}

    assert found == {
        "lane": "string",
        "count": "int64",
        "price": "double",
        "paid": "bool",
        "at": "timestamp[us, tz=UTC]",
        "when": "string",
        "day": "date32[day]",
        "note": "string",
        "tags": "list<item: string>",
        "sizes": "map<string, int64>",
        "address": "struct<street: string, number: int64>",
        "stops": "list<item: struct<street: string, number: int64>>",
        "anything": "string",
        "either": "string",
        "tree": "struct<name: string, below: list<item: string>>",
        "version": "string",
        "Note_": "string",
    }


def test_a_field_never_hides_a_column_of_the_envelope() -> None:
    reading = Readings(SHOP, {}).of("order.placed")
    assert reading is not None
    assert [column.name for column in reading.columns][-2:] == ["version_", "Note_"]
    assert reading.schema.names[: len(ENVELOPE)] == list(ENVELOPE)


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=12))
def test_any_field_names_make_columns_that_a_table_can_have(fields: list[str]) -> None:
    schema = {"properties": {field: {"type": "string"} for field in fields}}
    names = [column.name for column in columns_of(schema, taken=ENVELOPE)]

    assert len({name.lower() for name in names} | set(ENVELOPE)) == len(fields) + len(ENVELOPE)
    assert not any(set(" ,;{}()\n\t=.`").intersection(name) for name in names)


def test_values_become_what_their_columns_say() -> None:
    (row,), aside = typed(
        recorded(
            7,
            **PLACED,
            tags=["b", "a"],
            sizes={"s": 1},
            address={"street": "Elm", "number": None},
            anything={"b": [1.5, None], "a": "ü"},
            either="x",
            tree={"name": "r", "below": [{"name": "leaf"}]},
            Note="n",
        )
    )
    assert aside == []
    assert row["price"] == 2.0
    assert row["at"] == datetime(2026, 11, 15, 10, 0, 0, 500_000, tzinfo=UTC)
    assert row["day"] == date(2026, 11, 15)
    assert row["sizes"] == [("s", 1)]
    assert row["address"] == {"street": "Elm", "number": None}
    assert row["anything"] == '{"a":"ü","b":[1.5,null]}'
    assert row["either"] == '"x"'
    assert row["tree"] == {"name": "r", "below": ['{"below":[],"name":"leaf"}']}
    assert (row["position"], row["version"], row["version_"], row["note"], row["Note_"]) == (7, 1, "", None, "n")
