"""Pieces of files: cut anywhere, they hold every line once, and a clock that goes on from one to the next."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.transfer.test_exporting import a_log, source

from everlog.catalog.catalog import Catalog
from everlog.errors import NotFound
from everlog.log.log import Log
from everlog.pipeline.migrate.chunks import Chunk, Start, chunks_of, items, packed, survey
from everlog.stores.memory import MemoryStore
from everlog.transfer.import_pass import Options
from everlog.transfer.importing import import_files
from everlog.transfer.mapping import RowMapping


def line(number: int, **fields: Any) -> bytes:
    said = {
        "aggregate_type": "order",
        "actor_type": "user",
        "actor_id": "ada",
        "aggregate_id": str(number % 3),
        "aggregate_seq": number,
        "event_type": "order.placed",
        "occurred_at": f"2026-11-01T10:{number // 60:02}:{number % 60:02}Z",
        "payload": {"number": number, **fields},
    }
    return json.dumps(said).encode() + b"\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    chunk_bytes=st.integers(1, 900),
    ended=st.booleans(),
)
def test_wherever_a_file_is_cut_its_pieces_hold_every_line_once(
    tmp_path: Path, lengths: list[int], chunk_bytes: int, ended: bool
) -> None:
    data = b"".join(line(number, pad="x" * length) for number, length in enumerate(lengths))
    (tmp_path / "all.jsonl").write_bytes(data if ended else data.removesuffix(b"\n"))
    found = [
        item.sealed.event.payload["number"]
        for chunk in chunks_of([tmp_path], mapped=False, chunk_bytes=chunk_bytes)
        for item in items(chunk, Options(), Start())
    ]
    assert found == list(range(len(lengths)))


CLI = {"event_type": "WPStatusChanged", "entity_id": "WP1", "entity_type": "WorkPackage", "payload": {}}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(clocks=st.lists(st.none() | st.integers(1, 60), min_size=1, max_size=25), chunk_bytes=st.integers(100, 2000))
def test_the_clock_goes_on_from_piece_to_piece_as_in_one_import(
    tmp_path: Path, clocks: list[int | None], chunk_bytes: int
) -> None:
    lines = []
    for number, clock in enumerate(clocks):
        if clock is None:
            lines.append(line(number))
            continue
        named = {"event_id": f"01HN3R5K8D00000000000{number:05}", "timestamp": "2026-01-27T10:30:00Z"}
        lines.append(json.dumps({**CLI, **named, "lamport_clock": clock}).encode() + b"\n")
    data = b"".join(lines)
    (tmp_path / "all.jsonl").write_bytes(data)
    start, found = Start(), []
    for chunk in chunks_of([tmp_path], mapped=False, chunk_bytes=chunk_bytes):
        found += [item.sealed.event.lamport for item in items(chunk, Options(), start)]
        start = survey(chunk, Options(), Catalog(), None, now_ms=2**42).end(start)
    log = a_log()
    import_files(log, [source(data)], Options(trust_clock=True))
    assert found == [recorded.event.lamport for recorded in log.read()]


def test_a_row_without_a_time_has_that_of_the_row_before_also_in_another_piece(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(b"number,when\n1,2026-11-01T10:00:01Z\n")
    (tmp_path / "2.csv").write_bytes(b"number,when\n2,\n")
    options = Options(mapping=RowMapping(type="row.read", stream="row/{number}", occurred_at="{when}"))
    first, second = chunks_of([tmp_path], mapped=True)
    above = survey(first, options, Catalog(), None, now_ms=2**42).end(Start())
    (item,) = items(second, options, above)
    assert item.sealed.event.occurred_at == datetime.fromisoformat("2026-11-01T10:00:01+00:00")


def test_an_export_of_ours_is_not_cut_because_its_last_line_counts_all_of_it(tmp_path: Path) -> None:
    from everlog.transfer.exporting import Export, Format

    log = Log(MemoryStore(), a_log().catalog)
    for number in range(20):
        log.append("note.added", stream="note/1", payload={"text": f"note {number}"})
    (tmp_path / "all.jsonl").write_bytes(b"".join(Export(log._store, Format.EVERLOG).pieces()))
    (chunk,) = chunks_of([tmp_path], mapped=False, chunk_bytes=500)
    found = survey(chunk, Options(), Catalog(), None, now_ms=2**42)
    assert (found.events, found.problems) == (20, [])


def test_a_folder_is_read_in_the_order_of_its_names_and_what_is_no_history_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/2.jsonl", "a.ndjson", "b/1.jsonl", "notes.txt", "c.csv"):
        (tmp_path / name).write_bytes(line(1))
    assert [chunk.name for chunk in chunks_of([tmp_path], mapped=False)] == ["a.ndjson", "b/1.jsonl", "b/2.jsonl"]
    mapped = [chunk.name for chunk in chunks_of([tmp_path], mapped=True)]
    assert mapped == ["a.ndjson", "b/1.jsonl", "b/2.jsonl", "c.csv"]


def test_nothing_to_migrate_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        chunks_of([tmp_path], mapped=False)
    with pytest.raises(NotFound):
        chunks_of([tmp_path / "gone.jsonl"], mapped=False)


def test_what_is_wrong_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_bytes(line(1) + b"{no json}\n" + line(2))
    (chunk,) = chunks_of([tmp_path], mapped=False)
    found = survey(chunk, Options(), Catalog(), None, now_ms=2**42)
    assert (found.events, [problem.where for problem in found.problems]) == (2, ["all.jsonl:2"])


def test_small_files_share_a_task_and_large_ones_have_their_own() -> None:
    sizes = [10, 10, 10, 300, 10, 10]
    chunks = [Chunk(number, str(number), "", 0, size) for number, size in enumerate(sizes)]
    assert [[chunk.number for chunk in share] for share in packed(chunks, tasks=1, task_bytes=30)] == [
        [0, 1, 2],
        [3],
        [4, 5],
    ]
    assert len(packed(chunks, tasks=1)) == 1
    assert len(packed(chunks[:3], tasks=3)) == 3, "no core is idle because the files are small"
