"""A view's build derived on Spark and handed over to the live runner: `everlog views rebuild NAME --engine spark`.

    the log up to its head P  ->  the fold on Spark  ->  a build at P  ->  the live runner, from P + 1 on

Nothing is lost or repeated at the seam: P is taken before the job starts, the job reads up to P and no further, and
the cursor of the build is P. A purge meanwhile is told by the source, and it begins again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.core.event import Position
from everlog.pipeline.collecting import batches_of
from everlog.pipeline.fold import fold_view, partitions_for
from everlog.pipeline.sorted_fold import LETTER, PLACES, ROW, STOP
from everlog.pipeline.source import events
from everlog.views.filling import Derive, Part
from everlog.views.letters import Letter
from everlog.views.rows import kept_of
from everlog.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_letter = msgspec.json.Decoder(Letter).decode
_sources = msgspec.json.Decoder(list[str]).decode


def derive_on(spark: SparkSession, url: str, view: View, catalog: Catalog) -> Derive:
    """What `Handle.rebuild(derive=…)` wants: the view of the log of this URL, folded on Spark."""

    def derive(upto: Position) -> Iterator[Part]:
        found = events(spark, url, view.query, upto=upto)
        frame = fold_view(found, view, catalog, partitions=partitions_for(spark, upto))
        for batch in batches_of(frame, doing=f"folding the view {view.name}"):
            yield part_of(batch)

    return derive


def part_of(batch: pa.RecordBatch) -> Part:
    """Some of what a fold gave (`FOLDED_SCHEMA`), as the shelf takes it."""
    rows: dict[str, bytes] = {}
    places: dict[int, int] = {}
    letters: list[Letter] = []
    stops: list[Letter] = []
    columns = (batch.column(number).to_pylist() for number in range(batch.num_columns))
    for what, position, lamport, id, key, count, sources, state, letter, bits in zip(*columns, strict=True):
        if what == ROW:
            known = None if sources is None else _sources(sources)
            rows[key] = kept_of(count, lamport, id, known, state.encode())
        elif what == PLACES:
            places[position] = places.get(position, 0) | int.from_bytes(bits)
        elif what == LETTER:
            letters.append(_letter(letter))
        elif what == STOP:
            stops.append(_letter(letter))
    return Part(rows, places, letters, stops)
