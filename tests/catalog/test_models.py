"""A catalog in another process says the same as here, or does not get there at all."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.catalog.declared import read_types
from everlog.errors import InvalidPayload, SchemaBroken, TransitionRefused
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import event

TYPES = """
[types."deploy.done"]
doc = "A deployment ended."
fields = { outcome = "ok | failed", minutes = "int?", hosts = "list[str] = []", note = "str = 'none'" }
transitions = { kind = "deploy", field = "outcome", initial = "ok", allowed = { ok = ["failed"] } }
"""


class Moved(msgspec.Struct):
    went_to: str


def name_the_lane(old: dict[str, Any]) -> dict[str, Any]:
    return {"went_to": old["lane"]}


@pytest.fixture
def travelled() -> Catalog:
    catalog = Catalog()
    for other in (BUILT_IN, read_types(TYPES)):
        catalog.include(other)
    catalog.event("wp.moved", version=2)(Moved)
    catalog.upcaster("wp.moved", from_version=1)(name_the_lane)
    catalog.validate("deploy.done", {"outcome": "ok"})  # what is made ready at the first use does not travel
    found: Catalog = pickle.loads(pickle.dumps(catalog))
    return found


def test_models_of_modules_and_declared_ones_arrive(travelled: Catalog) -> None:
    assert travelled.validate("note.added", {"text": "hello"})[1]["text"] == "hello"
    assert travelled.validate("deploy.done", {"outcome": "failed"}) == (
        1,
        {"outcome": "failed", "minutes": None, "hosts": [], "note": "none"},
    )
    with pytest.raises(InvalidPayload, match="outcome"):
        travelled.validate("deploy.done", {"outcome": "perhaps"})


def test_what_is_known_of_a_type_arrives(travelled: Catalog) -> None:
    known = {info.type: info for info in travelled.types()}
    assert known["deploy.done"].doc == "A deployment ended."
    assert known["wp.moved"].upcasts_from == (1,)
    assert travelled.transition_rule("deploy", "deploy.done") is not None


def test_upcasters_arrive(travelled: Catalog) -> None:
    old = event("wp.moved", payload={"lane": "done"})
    assert travelled.upcast(old).payload == {"went_to": "done"}


def test_a_model_that_nobody_can_import_is_refused() -> None:
    class Local(msgspec.Struct):
        value: int

    catalog = Catalog()
    catalog.event("local.made")(Local)

    with pytest.raises(SchemaBroken, match="cannot go to another process"):
        pickle.dumps(catalog)


def test_a_catalog_made_of_readings_reads_the_same(travelled: Catalog) -> None:
    reading = Catalog.reading(travelled.readings())
    old = event("wp.moved", payload={"lane": "done"})
    assert reading.upcast(old) == travelled.upcast(old)
    assert reading.upcast_all([old]) == [travelled.upcast(old)]
    assert reading.upcast_all([event("deploy.done")])[0].version == 1


def test_a_rule_still_holds_where_a_catalog_arrived() -> None:
    arrived = pickle.loads(pickle.dumps(read_types(TYPES)))
    log = Log(MemoryStore(), arrived)
    done = {"outcome": "failed"}
    log.append("deploy.done", stream="deploy/1", payload=done)
    with pytest.raises(TransitionRefused):
        log.append("deploy.done", stream="deploy/1", payload={"outcome": "ok"})
    log.close()
