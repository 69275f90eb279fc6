"""The benchmark of proofs runs, and every row has a limit that is compared."""

from __future__ import annotations

from pathlib import Path

from benchmarks import trust
from benchmarks.sealing import measure
from benchmarks.signing import measure as signing
from benchmarks.sync_exchange import exchange


def test_the_quick_benchmark_measures_every_part_and_leaves_nothing(tmp_path: Path) -> None:
    shown: list[str] = []
    rows = list(trust.proofs(trust.Setup(tmp_path, 1, True, shown.append)))
    assert {row.store for row in rows} == set(trust.STORES)
    assert len(rows) == 6 * len(trust.STORES)
    assert all(row.value > 0 for row in rows)
    assert [row.name for row in rows if row.must is None] == ["build the tree"] * len(trust.STORES)
    assert trust.Row("a", "b", 2, "ms", 3).met
    assert not trust.Row("a", "b", 2, "ms", 3, at_most=False).met


def test_the_benchmark_of_sealing_measures_fields_appends_and_reads(tmp_path: Path) -> None:
    rows = list(measure(trust.Setup(tmp_path, 1, True, lambda text: None)))
    assert [row.name for row in rows if not row.store] == ["seal a field", "open a field"]
    assert len(rows) == 2 + 5 * len(trust.STORES)
    assert all(row.value > 0 for row in rows)


def test_the_quick_benchmark_finds_the_differences_of_two_logs(tmp_path: Path) -> None:
    rows = {row.name: row for row in exchange(trust.Setup(tmp_path, 1, True, lambda text: None))}
    assert len(rows) == 7
    assert [row.name for row in rows.values() if row.met is False] == []
    assert rows["differences by heads: round trips"].value == 2


def test_the_benchmark_of_signing_compares_with_an_unsigned_log(tmp_path: Path) -> None:
    rows = list(signing(trust.Setup(tmp_path, 1, True, lambda text: None)))
    assert len(rows) == 2 + 8 * 2
    assert all(row.value > 0 and row.must is not None for row in rows)
    bytes_ = [row.met for row in rows if row.name.startswith("bytes")]
    assert bytes_ == [True, True]
