"""The benchmark's own machinery. How fast anything is, no test judges: machines differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.bench import run
from benchmarks.bench.directory import choose_directory, file_system
from benchmarks.bench.events import CATALOG, RARE_TYPE, STREAMS, TYPE, Pool
from benchmarks.bench.floors import require_count
from benchmarks.bench.rounds import Contest, Sample, interleave, ratio, spread

from everlog.core.canonical import canonical
from everlog.errors import InvalidSettings


@pytest.fixture
def disk() -> Path:
    try:
        return choose_directory(None)
    except InvalidSettings as error:
        print(f"skipped: {error}")
        pytest.skip(f"nothing to measure on: {error}")


def test_the_quick_benchmark_finds_every_ratio_and_leaves_nothing(disk: Path) -> None:
    before = set(disk.glob("everlog-bench-*"))
    said: list[str] = []
    figures = run.run_benchmark(rounds=2, quick=True, directory=disk, progress=said.append)
    assert {figure.name: figure.target for figure in figures} == {
        "one writer": 0.5,
        "one writer, median latency": None,
        "8 threads": 1.2,
        "64 asyncio tasks": 5.0,
        "batch of 100, one stream": 0.15,
        "batch of 100, 100 streams": 0.15,
        "batch of 100, nothing repeats": None,
        "batch of 100 in memory": None,
        "read everything": 0.5,
        "read a stream of 100": None,
        "read a rare type": None,
        "verify": None,
    }
    for figure in figures:
        assert 0 < figure.low <= figure.value <= figure.high
        assert figure.ours > 0
        assert figure.floor > 0
        assert figure.unit in ("events/s", "µs")
    assert any("round 2 of 2" in line for line in said)
    assert set(disk.glob("everlog-bench-*")) == before


def test_a_target_is_met_at_or_above_it() -> None:
    def figure(value: float, target: float | None) -> run.Ratio:
        return run.Ratio("x", value, target, "events/s", 1.0, 1.0, "")

    assert figure(0.5, 0.5).met is True
    assert figure(0.49, 0.5).met is False
    assert figure(0.49, None).met is None


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    # The machine is ten times slower in the second round, which a ratio of medians would take for a result.
    rounds = [
        {"ours": Sample(50.0), "floor": Sample(100.0)},
        {"ours": Sample(6.0), "floor": Sample(10.0)},
        {"ours": Sample(40.0), "floor": Sample(100.0)},
    ]
    assert ratio(rounds, "ours", "floor") == pytest.approx((0.5, 0.4, 0.6))
    assert spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_sides_take_turns_at_going_first() -> None:
    order: list[str] = []

    def side(name: str) -> Sample:
        order.append(name)
        return Sample(1.0)

    contest = Contest("x", {"a": lambda: side("a"), "b": lambda: side("b")})
    interleave([contest], rounds=3, progress=lambda said: None)
    assert "".join(order) == "abbaab"


def test_a_side_that_reads_too_little_is_not_a_fast_side() -> None:
    with pytest.raises(AssertionError, match="read 3 events where 4"):
        require_count(3, 4)


def test_drafts_have_the_size_and_the_fields_of_real_ones() -> None:
    pool = Pool(500)
    drafts = pool.take(500)
    sizes = [len(canonical(draft.payload)) for draft in drafts]
    assert 120 <= sum(sizes) / len(sizes) <= 160
    assert all(draft.actor and draft.causation_id and draft.correlation_id for draft in drafts)
    assert len({draft.stream for draft in drafts}) == STREAMS
    for draft in drafts:
        CATALOG.validate(draft.type, draft.payload)
    assert [draft.type for draft in pool.mixed(40)].count(RARE_TYPE) == 2
    assert {draft.type for draft in pool.on_one_stream(5, "item/a")} == {TYPE}


def test_a_pool_gives_drafts_over_and_over_but_never_a_key_twice() -> None:
    pool = Pool(10)
    first, second = pool.take(7), pool.take(7)
    assert (first + second)[10:] == first[:4]
    assert len({pool.key() for _ in range(100)}) == 100
    assert len({draft.stream for draft in pool.on_streams_of_their_own(25)}) == 25


def test_a_directory_in_memory_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n")
    inside = tmp_path / "a"
    inside.mkdir()
    assert file_system(inside, mounts=mounts) == "tmpfs"
    with pytest.raises(InvalidSettings, match="in memory"):
        choose_directory(inside, mounts=mounts)
    mounts.write_text(f"tmpfs / tmpfs rw 0 0\n/dev/vda {tmp_path} ext4 rw 0 0\n")
    assert choose_directory(inside, mounts=mounts) == inside
    with pytest.raises(InvalidSettings, match="not a directory"):
        choose_directory(tmp_path / "nowhere", mounts=mounts)
