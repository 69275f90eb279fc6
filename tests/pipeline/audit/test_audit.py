"""The audit on Spark finds what `verify` finds, on sound logs and on damaged ones, however the log is cut."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.log.verify.test_verify import EDITS, HEADER_EDITS, PEER, at, edit, edited, pristine
from tests.pipeline.logs import KINDS, add, open_log, url_in

from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.log.verify.verify import Report, verify
from everlog.pipeline.audit import audit as audit_module
from everlog.pipeline.audit.audit import SparkReport, _Collected, _join, _proved, _ranges, audit
from everlog.stores.contract import Store, encode_event
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Chain, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["edited", "pristine"]


def without_spark(store: Store, size: int) -> SparkReport:
    """The same steps in this process, so that many logs and ranges can be tried."""
    head, purges = store.head(), store.purges()
    said = [batch for cut in _ranges(head, size) for batch in _proved(store, purges, *cut)]
    order = [(name, "ascending") for name in ("what", "key", "position", "turn")]
    found = _Collected(store.identity.origin)
    for batch in _join(pa.Table.from_batches(said).sort_by(order).to_batches(max_chunksize=7)):
        found.take(batch)
    return found.report(store, purges, head)


def require_same(store: Store, expected: Report) -> None:
    for size in (1, 2, 3, 5, 100):
        assert without_spark(store, size).report == expected, f"in ranges of {size}"


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_is_found_as_verify_finds_it(
    name: str, edited: Path, make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "RANGES_MAX", 200)  # one of the edits leaves a billion places empty
    edit(edited, EDITS[name][0])
    with make_log("sqlite", edited) as log:
        expected = log.verify()
        assert not expected.ok
        require_same(log._store, expected)


@pytest.mark.parametrize("field", HEADER_EDITS)
def test_every_change_of_a_header_is_found_as_verify_finds_it(
    field: int, edited: Path, make_log: Callable[..., Log]
) -> None:
    edit(edited, at(4, f"header = json_set(header, '$[{field}]', {HEADER_EDITS[field]})"))
    with make_log("sqlite", edited) as log:
        require_same(log._store, log.verify())


def test_a_sound_log_is_sound(pristine: Path, make_log: Callable[..., Log]) -> None:
    with make_log("sqlite", pristine) as log:
        assert log.verify().ok
        require_same(log._store, log.verify())


def test_an_empty_log_is_sound(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        require_same(log._store, log.verify())


def test_a_log_damaged_everywhere_is_reported_in_bounded_words(
    make_log: Callable[..., Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "RANGES_MAX", 50)
    with make_log("sqlite", tmp_path / "log.db") as log:
        log.append("thing.said", stream="thing/1")
    edit(tmp_path / "log.db", at(1, "position = 2000000000"))
    with make_log("sqlite", tmp_path / "log.db") as log:
        assert without_spark(log._store, 1000).report == log.verify()


# ---- clocks


def test_times_that_cannot_be_true_are_odd_and_no_damage() -> None:
    """Past the door: a store of another program, or of a machine whose clock was wrong, may hold such events."""
    moments = iter([10**15, 10**15, 9 * 10**14])  # of the store itself, and of its two writes
    store = MemoryStore(now_us=lambda: next(moments))
    made = event("thing.said", lamport=5, origin=PEER, origin_seq=1)
    link = encode_event(made)
    for one in (link, encode_event(event("thing.said", lamport=5, origin=PEER, origin_seq=2, previous=link.hash))):
        with store.open_write() as writer:
            writer.append([one])
    for size in (1, 2):
        found = without_spark(store, size)
        assert found.report == verify(store)
        assert found.report.ok
        odd = {(odd.position, odd.code) for odd in found.oddities}
        assert {(1, "occurred_ahead"), (1, "id_ahead"), (2, "clock_back"), (2, "received_back")} <= odd


def test_clocks_as_they_should_be_are_not_odd(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        log.admit([Chain(PEER).next(type="thing.said").event])
        for number in range(5):
            log.append("thing.said", stream="thing/1", payload={"value": number})
        assert without_spark(log._store, 2).oddities == ()


# ---- damaged files


@pytest.mark.parametrize("kind", ["jsonl", "segments"])
def test_a_flipped_byte_is_reported_as_verify_tells_it(kind: str, tmp_path: Path) -> None:
    with open_log(url_in(tmp_path, kind)) as log:
        add(log, 60)
        log.purge("thing/2", reason="a request")
        add(log, 10)
    (tmp_path / kind).rename(tmp_path / "whole")
    files = [path for path in (tmp_path / "whole").rglob("*") if path.suffix in (".jsonl", ".seg")]
    file = max(files, key=lambda path: path.stat().st_size).relative_to(tmp_path / "whole")
    whole = (tmp_path / "whole" / file).read_bytes()
    reported = set()
    for place in range(0, len(whole), len(whole) // 25):
        shutil.copytree(tmp_path / "whole", tmp_path / kind)
        (tmp_path / kind / file).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        expected = outcome(tmp_path, kind, lambda log: log.verify())
        assert outcome(tmp_path, kind, lambda log: without_spark(log._store, 7).report) == expected, place
        reported.add(str(expected))
        shutil.rmtree(tmp_path / kind)
    assert len(reported) > 5


def outcome(folder: Path, kind: str, ask: Callable[[Log], Report]) -> Any:
    """What a log says of itself, or how it says that it cannot."""
    try:
        with open_log(url_in(folder, kind)) as log:
            return ask(log)
    except EverlogError as error:
        return error.code, error.what, error.why


# ---- on Spark


@pytest.mark.parametrize("kind", [*KINDS, "postgres"])
def test_on_spark_it_is_what_verify_says(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    url = str(request.getfixturevalue("postgres_url")) if kind == "postgres" else url_in(tmp_path, kind)
    with open_log(url) as log:
        add(log, 300)
        log.purge("thing/2", reason="a request")
        add(log, 20)
        expected = log.verify()
        assert expected.ok
        found = audit(spark, url, size=100)
        assert found.report == expected
        assert found.signed == 0
