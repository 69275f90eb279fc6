"""`everlog verify` on Spark: the same report of the same log, from as many processes as there are cores.

    ranges of positions  ->  each proved by itself  ->  shuffled by stream and by id  ->  what spans several ranges

A task reads a range as stored bytes, as `verify` does, and checks hashes, commitments, chains, sequences and
positions in it. What concerns several ranges (a stream that continues in another one, an id that occurs twice) is
shuffled. The driver assembles the chains of origins and the digest; for that it holds the hash of each event (32
bytes). A task holds one range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from everlog.core.event import BEGINNING, Link, Position, Purge
from everlog.errors import Damaged
from everlog.log.verify.audit import (
    PROBLEMS_MAX,
    id_twice,
    wrong_count,
    wrong_link,
    wrong_sequence,
)
from everlog.log.verify.stored_groups import take_groups
from everlog.log.verify.verify import Report, with_those_of
from everlog.pipeline.audit.range import FoundProblem, RangeVerifier, Received, clock_back, received_back
from everlog.pipeline.fold.collected import batches_of
from everlog.pipeline.session.failures import carried
from everlog.pipeline.source.ranges import opened
from everlog.stores.contract import Grouped, Problem, Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_POSITIONS = 50_000
RANGES_MAX = 2_000
"""A damaged head may be any number: the positions are never divided into more than so many ranges."""

# What a task reports. There is one SUMMARY per range, in order; the others belong to a key.
SUMMARY, STREAM, ID, PROBLEM = "summary", "stream", "id", "problem"
_SCHEMA = pa.schema(
    [
        pa.field("what", pa.string()),
        pa.field("key", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("turn", pa.int64()),
        pa.field("number", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("data", pa.binary()),
    ]
)


class Origin(msgspec.Struct, array_like=True):
    """The chain of an origin in one range: its first event, and its end."""

    position: int
    turn: int
    origin_seq: int
    previous: bytes
    lamport: int
    last: int
    hash: bytes
    clock: int


class Summary(msgspec.Struct, array_like=True):
    """What was found in one range, without its streams and ids."""

    after: int
    last: int  # the last position that was read
    events: int
    purged: int
    signed: int
    hashes: bytes
    origins: dict[str, Origin]
    found: list[FoundProblem]
    oddities: list[Problem]
    received: Received | None
    damaged: dict[str, Any] | None = None  # the error, if the range could not be read to its end


class SparkReport(msgspec.Struct, frozen=True):
    """The report of `verify`, and what is odd although no rule forbids it."""

    report: Report
    signed: int
    oddities: tuple[Problem, ...]


def audit(
    spark: SparkSession, url: str, *, size: int = RANGE_POSITIONS, started: Callable[[int], None] = lambda count: None
) -> SparkReport:
    """Prove the log of a URL from its bytes, on Spark, up to its present head. It may be written meanwhile."""
    with opened(url) as store:
        while True:
            head, purges = store.head(), store.purges()
            ranges = _ranges(head, size)
            started(len(ranges))
            found = _Collected(store.identity.origin)
            _run(spark, url, ranges, purges, found)
            if store.purges() == purges:
                return found.report(store, purges, head)


class Range(NamedTuple):
    """The positions above `after` and not above `upto`."""

    after: int
    upto: int


def _ranges(head: Position, size: int) -> list[Range]:
    count = min(RANGES_MAX, -(-head // size)) or 1
    ends = pairwise(head * number // count for number in range(count + 1))
    return [Range(after, upto) for after, upto in ends]


def _run(spark: SparkSession, url: str, ranges: list[Range], purges: list[Purge], found: _Collected) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(_SCHEMA)
    numbers = spark.range(0, len(ranges), 1, numPartitions=len(ranges))
    proved = numbers.mapInArrow(partial(_prove, url, ranges, purges), schema)
    parts = min(len(ranges), int(spark.conf.get("spark.sql.shuffle.partitions") or 8))
    together = proved.repartition(parts, "what", "key").sortWithinPartitions("what", "key", "position", "turn")
    for batch in batches_of(together.mapInArrow(_join, schema), doing="proving the log"):
        found.take(batch)


class _Collected:
    """The driver assembles here what the tasks report."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._summaries: list[Summary] = []
        self._problems: list[FoundProblem] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Add some rows of `_join`."""
        for what, data in zip(batch.column("what").to_pylist(), batch.column("data").to_pylist(), strict=True):
            if what == SUMMARY:
                summary = msgspec.msgpack.decode(data, type=Summary)
                self._summaries.append(summary)
                self._wrong(*summary.found)
                summary.found.clear()
            else:
                self._wrong(msgspec.msgpack.decode(data, type=FoundProblem))

    def _wrong(self, *found: FoundProblem) -> None:
        self._problems += found
        if len(self._problems) > 100 * PROBLEMS_MAX:  # a log that is damaged everywhere has problems everywhere
            self._keep_first_problems()

    def _keep_first_problems(self) -> None:
        self._problems.sort(key=attrgetter("order"))
        del self._problems[PROBLEMS_MAX:]

    def report(self, store: Stored, purges: list[Purge], head: Position) -> SparkReport:
        self._summaries.sort(key=lambda summary: summary.after)
        damaged = next((summary.damaged for summary in self._summaries if summary.damaged is not None), None)
        if damaged is not None:
            details = {name: value for name, value in damaged.items() if name not in ("what", "why", "hint")}
            raise Damaged(damaged["what"], why=damaged["why"], hint=damaged["hint"], **details)
        digest = hashlib.sha256()
        for summary in self._summaries:
            digest.update(summary.hashes)
        oddities = [odd for summary in self._summaries for odd in summary.oddities]
        self._follow_chains(oddities)
        met = [summary.received for summary in self._summaries if summary.received is not None]
        for before, after in pairwise(met):
            if odd := received_back(after.position, after.first_us, before.last_us):
                oddities.append(odd)
        self._keep_first_problems()
        purged = sum(summary.purged for summary in self._summaries)
        problems = [found.problem for found in self._problems]
        if (wrong := wrong_count(purges, purged, head)) is not None:
            problems.append(wrong)
        whole = tuple(with_those_of(store, problems)[:PROBLEMS_MAX])
        events = sum(summary.events for summary in self._summaries)
        signed = sum(summary.signed for summary in self._summaries)
        oddities.sort(key=lambda odd: odd.position)
        return SparkReport(
            Report(events, purged, head, digest.hexdigest(), whole), signed, tuple(oddities[:PROBLEMS_MAX])
        )

    def _follow_chains(self, oddities: list[Problem]) -> None:
        """Compare where the chain of each origin begins in a range with where it ended before."""
        ends: dict[str, tuple[Link, int]] = {}
        for summary in self._summaries:
            for origin, chain in summary.origins.items():
                before, clock = ends.get(origin, (BEGINNING, 0))
                place = Position(chain.position)
                own = origin == self._origin
                wrong = wrong_link(place, chain.origin_seq, chain.previous, before, own=own)
                if wrong is not None and own:  # in any other chain it is a fault of its origin
                    self._wrong(FoundProblem(wrong, chain.turn))
                if odd := clock_back(place, chain.origin_seq, chain.lamport, before, clock):
                    oddities.append(odd)
                ends[origin] = (Link(chain.last, chain.hash), chain.clock)


# ---- in the workers


def _prove(
    url: str, ranges: Sequence[Range], purges: list[Purge], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with carried(), opened(url) as store:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _proved(store, purges, *ranges[number])


def _proved(store: Stored, purges: list[Purge], after: int, upto: int) -> Iterator[pa.RecordBatch]:
    proof = RangeVerifier(store.identity.origin, purges, Position(after), store.identity.log_id)
    damaged: dict[str, Any] | None = None
    last = after
    try:
        if isinstance(store, Grouped):
            for _ in take_groups(proof, store.groups(after=Position(after)), upto=Position(upto)):
                pass
        else:
            for place in store.slots(after=Position(after)):
                if place.position > upto:
                    break  # it belongs to another task, or was recorded during the read
                proof.take(place)
        last = proof.position
        proof.account_to(Position(upto))
    except Damaged as error:
        # Not raised here: damage at an earlier position, in the range of another task, comes first.
        damaged = {"what": error.what, "why": error.why, "hint": error.hint, **error.details}
    origins = {
        name: Origin(*first, proof.chains[name].origin_seq, proof.chains[name].hash, proof.clocks[name])
        for name, first in proof.origins.items()
    }
    summary = Summary(
        after,
        last,
        proof.events,
        proof.purged,
        proof.signed,
        bytes(proof.hashes),
        origins,
        proof.found,
        proof.oddities,
        proof.received,
        damaged,
    )
    rows: list[tuple[Any, ...]] = [(SUMMARY, str(after), after, 0, 0, 0, msgspec.msgpack.encode(summary))]
    for stream, last in proof.sequences.items():
        # A purge may set the sequence of a stream that has no event in this range: then it has only an end.
        position, turn, sequence = proof.streams.get(stream, (after + 1, 0, None))
        rows.append((STREAM, stream, position, turn, sequence, last, None))
    rows += [(ID, id, position, turn, 0, 0, None) for id, position, turn in proof.ids]
    yield _batch(rows)


def _join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find what is wrong between ranges, from rows sorted by kind, key and position; pass summaries through."""
    with carried():
        rows = (
            row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        for (what, key), group in groupby(rows, key=itemgetter(0, 1)):
            if what == SUMMARY:
                yield _batch(list(group))
            elif wrong := list(_between(what, key, group)):
                yield _batch([(PROBLEM, key, 0, 0, 0, 0, msgspec.msgpack.encode(found)) for found in wrong])


def _between(what: str, key: str, group: Iterator[tuple[Any, ...]]) -> Iterator[FoundProblem]:
    if what == ID:
        next(group)
        for _, _, position, turn, *_ in group:
            yield FoundProblem(id_twice(Position(position), key), turn)
        return
    before = 0
    for _, _, position, turn, sequence, last, _ in group:
        wrong = None if sequence is None else wrong_sequence(key, Position(position), sequence, before)
        if wrong is not None:
            yield FoundProblem(wrong, turn)
        before = last


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
