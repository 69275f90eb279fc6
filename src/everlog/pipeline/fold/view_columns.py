"""How the table of a view is laid out: its key, the columns that the view declares, then what a later fold needs.

    key  ...  _misfit  _position  _count  _lamport  _id  _sources  _state

`_state` is canonical JSON, and `_position` the last one that the key has applied. A value that does not have the type
of its column is null there, and `_misfit` says why. A view without columns has no `_misfit` either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from everlog.pipeline.fold.sorted_fold import FOLDED_SCHEMA
from everlog.pipeline.fold.view_code import Shipped, ship
from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.session.failures import carried
from everlog.pipeline.tables.columns import Column, columns_of
from everlog.views.columns import KEY, model_of
from everlog.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from everlog.catalog.catalog import Catalog

STORED = (KEY, "position", "count", "lamport", "id", "sources", "state")
"""The columns of a row as a fold has them: what a later fold needs to continue from it."""

LAYOUT = 2
"""Changes when the columns do, so that tables in an older layout are rebuilt."""

MISFIT = "_misfit"
_states = msgspec.json.Decoder(list[Any]).decode


def schema_of(view: View) -> pa.Schema:
    """Return the columns of a view's table."""
    return pa.schema(
        [
            pa.field(KEY, pa.string()),
            *(pa.field(column.name, column.type) for column in _columns(view)),
            *([pa.field(MISFIT, pa.string())] if view.columns else []),
            *(pa.field(_own(name), FOLDED_SCHEMA.field(name).type) for name in STORED[1:]),
        ]
    )


def laid_out(view: View, rows: pa.Table) -> pa.Table:
    """Return rows of a fold (`STORED`) as rows of the view's table."""
    declared: list[pa.Array] = []
    if view.columns:
        texts = rows.column("state").to_pylist()
        states, misfits = _fitting(view, _states(f"[{','.join(texts)}]"))
        declared = [*(column.array(states) for column in _columns(view)), pa.array(misfits, pa.string())]
    stored = [rows.column(name) for name in STORED]
    return pa.Table.from_arrays([stored[0], *declared, *stored[1:]], schema=schema_of(view))


def laid_out_frame(view: View, rows: DataFrame, catalog: Catalog) -> DataFrame:
    """Do the same on Spark."""
    from pyspark.sql.functions import col

    if not view.columns:
        return rows.select(KEY, *(col(name).alias(_own(name)) for name in STORED[1:]))
    task = partial(_laid_out, ship(view, catalog))
    return rows.select(*STORED).mapInArrow(task, spark_schema(schema_of(view)))


def as_folded(rows: DataFrame) -> DataFrame:
    """Return rows of a view's table as a fold has them (`STORED`)."""
    from pyspark.sql.functions import col

    return rows.select(KEY, *(col(_own(name)).alias(name) for name in STORED[1:]))


def _own(name: str) -> str:
    return f"_{name}"


def _columns(view: View) -> Sequence[Column]:
    return _columns_of(model_of(view)) if view.columns else ()


@lru_cache(maxsize=1024)
def _columns_of(model: Any) -> Sequence[Column]:
    return columns_of(msgspec.json.schema(model)["$defs"][model.__name__])


def _fitting(view: View, states: list[Any]) -> tuple[list[dict[str, Any]], list[str | None]]:
    """Return the states without values of another type than their column, and where each had one."""
    model = model_of(view)
    try:  # nearly always all of them fit
        msgspec.convert(states, list[model])  # type: ignore[valid-type]
        return states, [None] * len(states)
    except msgspec.ValidationError:
        pass  # the loop finds which ones do not
    found = [_parts(model, state) for state in states]
    return [fitting for fitting, _ in found], [misfit for _, misfit in found]


def _parts(model: type[msgspec.Struct], state: Any) -> tuple[dict[str, Any], str | None]:
    """Return the fields of a state that fit their columns, and the reason of the first that does not."""
    fitting: dict[str, Any] = {}
    misfit: str | None = None
    if not isinstance(state, dict):
        return fitting, "the state is not an object"
    for name, value in state.items():
        try:
            msgspec.convert({name: value}, model)
        except msgspec.ValidationError as error:
            misfit = misfit or str(error)
        else:
            fitting[name] = value
    return fitting, misfit


# ---- in the workers


def _laid_out(shipped: Shipped, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried():
        view, _ = shipped.unpack()
        for batch in batches:
            yield from laid_out(view, pa.Table.from_batches([batch])).to_batches()
