"""A catalog on its way to another process, such as a worker of Spark.

A payload model travels by its name: the other side imports the same module. A model declared in `types.toml` has no
module, and travels as the words that declare it. A msgspec class of a script or a function has neither; pickled by
value it would arrive without its fields and refuse everything, so it is refused here instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from everlog.errors import SchemaBroken


class Words(msgspec.Struct, frozen=True):
    """A declared model as its declaration."""

    fields: dict[str, str]
    doc: str


def packed(event_type: str, model: type[Any]) -> Any:
    """What stands for a model on the way."""
    if _has_its_name(model) or not issubclass(model, msgspec.Struct):
        return model
    declared: Mapping[str, str] | None = model.__dict__.get("__declared__")
    if declared is not None:
        return Words(dict(declared), model.__dict__.get("__doc__") or "")
    raise SchemaBroken(
        f"the model {model.__qualname__} of {event_type} cannot go to another process",
        why=f"nobody can import it: it is made in {model.__module__}, not at the top of a module",
        hint="move it into a module of its own that is on the Python path",
        type=event_type,
    )


def unpacked(event_type: str, found: Any) -> type[Any]:
    if not isinstance(found, Words):
        return found  # type: ignore[no-any-return]
    from everlog.catalog.declared import model_of

    return model_of(event_type, found.fields, found.doc)


def _has_its_name(model: type[Any]) -> bool:
    """True when another process finds the same class under its name."""
    found: Any = sys.modules.get(model.__module__)
    if found is None or model.__module__ == "__main__":
        return False
    for part in model.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is model
