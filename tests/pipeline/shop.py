"""A small catalog in a module of its own, so that workers of Spark can import its models."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.catalog.declared import read_types


class Lane(StrEnum):
    PLANNED = "planned"
    DOING = "doing"
    DONE = "done"


class Address(msgspec.Struct):
    street: str
    number: int | None = None


class Node(msgspec.Struct):
    name: str
    below: list[Node] = []


class Ordered(msgspec.Struct):
    """Every kind of field that a column can be made of."""

    lane: Lane
    count: int
    price: float
    paid: bool
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    when: datetime  # with or without a zone: no moment in time, but text
    day: date
    note: str | None = None
    tags: list[str] = []
    sizes: dict[str, int] = {}
    address: Address | None = None
    stops: list[Address] = []
    anything: Any = None
    either: int | str = 0
    tree: Node | None = None
    version: str = ""  # as a column of the envelope is called
    Note: str = ""


class Moved(msgspec.Struct):
    went_to: str


def name_the_lane(old: dict[str, Any]) -> dict[str, Any]:
    return {"went_to": old["lane"]}


DECLARED = """
[types."deploy.done"]
fields = { outcome = "ok | failed", minutes = "int?" }
"""

SHOP = Catalog()
SHOP.include(BUILT_IN)
SHOP.include(read_types(DECLARED))
SHOP.event("order.placed")(Ordered)
SHOP.event("parcel.moved", version=2)(Moved)
SHOP.upcaster("parcel.moved", from_version=1)(name_the_lane)


def asking() -> Catalog:
    """The same catalog, for a lake that sets types aside that are not in it."""
    found = Catalog()
    found.include(SHOP)
    found.contracts["*"] = "ask"
    return found
