"""How the code of a view reaches the workers of Spark, with the upcasters that read its events.

A view whose class can be imported is sent as its import path, with the Python path of the sender: a worker on this
machine, or on one that shares its folders, finds the same module. A class in a script, a notebook or a function has
no import path, and is sent as its code (cloudpickle, which comes with Spark). Upcasters are sent in the same two
ways.

A module that a worker cannot import is named in the error: install it on every machine of the cluster, or pass it to
Spark with `spark.submit.pyFiles`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from everlog.catalog.catalog import Catalog
from everlog.catalog.upcasting import Upcaster
from everlog.errors import InvalidField, SparkFailed
from everlog.views.view import View

BY_PATH, BY_CODE = "by its import path", "as its code"

_Readings = list[tuple[str, int, list[tuple[int, Upcaster]]]]


@dataclass(frozen=True)
class Shipped:
    """A view and its upcasters, packed."""

    name: str
    how: str  # how the view's class is sent
    paths: tuple[str, ...]  # where the sender looks for modules
    data: bytes

    def unpack(self) -> tuple[View, Catalog]:
        """In a worker: return the view, and the catalog that upcasts its events."""
        return _unpacked(self)


def ship(view: View, catalog: Catalog) -> Shipped:
    """Pack a view with the part of the catalog that its events need."""
    from pyspark import cloudpickle

    # Models are not needed to read, and those of a script could not be sent.
    stand_ins = catalog.stand_ins(view.types)
    readings: _Readings = [one for one in catalog.readings(view.types) if one[2] or one[1] > 1 or one[0] in stand_ins]
    try:
        defaults = catalog.defaults([event_type for event_type, latest, _ in readings if latest > 1])
        data: bytes = cloudpickle.dumps((view, readings, defaults, stand_ins))  # type: ignore[no-untyped-call]
    except Exception as error:  # pickling an object of the user may raise anything
        raise InvalidField(
            f"the view {view.name} cannot be sent to Spark's workers",
            why=f"{type(error).__name__}: {error}",
            hint="keep files, locks and connections out of the view and its upcasters",
            field="view",
        ) from error
    how = BY_PATH if can_be_imported(type(view)) else BY_CODE
    return Shipped(view.name, how, tuple(path for path in sys.path if path), data)


def can_be_imported(found: Any) -> bool:
    """Return True if another process finds the same class or function under its name."""
    module = sys.modules.get(found.__module__)
    if module is None or found.__module__ == "__main__" or getattr(module, "__spec__", None) is None:
        return False
    there: Any = module
    for part in found.__qualname__.split("."):
        there = getattr(there, part, None)
    return there is found


@lru_cache(maxsize=8)  # a worker runs many tasks of one job, one after the other
def _unpacked(shipped: Shipped) -> tuple[View, Catalog]:
    import pickle

    known = set(sys.path)
    sys.path.extend(path for path in shipped.paths if path not in known)
    try:
        view, readings, defaults, stand_ins = pickle.loads(shipped.data)
    except (ImportError, AttributeError) as error:
        raise SparkFailed(
            f"a worker cannot load the view {shipped.name}",
            why=str(error),
            hint="install its package on every machine of the cluster, or name it in --conf spark.submit.pyFiles=…",
            view=shipped.name,
        ) from error
    return view, Catalog.reading(readings, defaults, stand_ins)
