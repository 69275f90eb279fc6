"""The benchmark's own machinery. How fast anything is, no test judges: machines differ."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from benchmarks.bench import peers, run, umadb_peer
from benchmarks.bench.directory import choose_directory, file_system
from benchmarks.bench.events import CATALOG, RARE_TYPE, REPEATED, TYPE, Pool
from benchmarks.bench.events import STREAMS as POOL_STREAMS
from benchmarks.bench.figures import Against, rate_figure
from benchmarks.bench.floors import require_count
from benchmarks.bench.rounds import Contest, Sample, interleave, ratio, spread, timed_threads
from benchmarks.bench.run import MUSTS
from benchmarks.bench.straight_line import StraightLine

from everlog.core.canonical import canonical
from everlog.core.codec import commitment, encode_header
from everlog.errors import InvalidSettings


@pytest.fixture
def disk() -> Path:
    try:
        return choose_directory(None)
    except InvalidSettings as error:
        print(f"skipped: {error}")
        pytest.skip(f"nothing to measure on: {error}")


STORES = ["segments", "sqlite", "jsonl"]
TWO = ["segments", "sqlite"]
ROWS = {
    "one writer": STORES,
    "one writer, median latency": STORES,
    "8 threads": TWO,
    "64 asyncio tasks": TWO,
    "batch of 100, one stream": TWO,
    "batch of 100, processor time": TWO,
    "batch of 100, 100 streams": TWO,
    "batch of 100, nothing repeats": TWO,
    "batch of 1000": TWO,
    "batch of 100 in memory": ["memory"],
    "replay": TWO,
    "read a stream of 100": TWO,
    "read a rare type": TWO,
    "bytes per event": STORES,
    "one event by id": TWO,
    "check of a cursor": STORES,
    "verify": TWO,
}


def test_the_quick_benchmark_finds_every_ratio_and_leaves_nothing(disk: Path) -> None:
    before = set(disk.glob("everlog-bench-*"))
    shown: list[str] = []
    figures = run.run_benchmark(rounds=2, quick=True, directory=disk, progress=shown.append)
    rows: dict[str, list[str]] = {}
    for figure in figures:
        rows.setdefault(figure.name, []).append(figure.store)
        assert 0 < figure.low <= figure.value <= figure.high
        assert figure.ours > 0
        assert figure.floor > 0
        assert figure.unit in ("events/s", "µs", "bytes")
    assert rows == ROWS
    appends = {name for name in ROWS if name.startswith(("one writer", "8", "64", "batch"))}
    beside = {figure.name for figure in figures if "straight line" in figure.against}
    assert beside == appends - {"one writer, median latency"}
    for figure in figures:
        if figure.unit == "events/s" and figure.name != "verify":
            assert figure.cpu_us is not None
            assert figure.cpu_us > 0
            assert figure.switches is not None
    for name, musts in MUSTS.items():
        for figure in figures:
            if figure.name == name:
                assert musts[figure.store].keys() <= figure.against.keys()
    assert any("round 2 of 2" in line for line in shown)
    assert set(disk.glob("everlog-bench-*")) == before


def test_a_peer_that_is_not_installed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (peers, umadb_peer):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    shown: list[str] = []
    with peers.open_peers(tmp_path, Pool(10), filled=100, progress=shown.append) as found:
        assert (found.present, found.absent) == ({}, ("eventsourcing", "UmaDB"))
    assert [line.partition(" is not installed")[0] for line in shown] == ["eventsourcing", "UmaDB"]
    assert "pip install umadb" in shown[1]
    rounds = [{"sqlite": Sample(2.0), "floor": Sample(4.0)}]
    figure = rate_figure("x", "sqlite", rounds, musts={"floor": 0.4}, absent=found.absent)
    assert figure.against == {"floor": Against(0.5, 0.5, 0.5, 0.4), "eventsourcing": None, "UmaDB": None}
    assert figure.met is True


def test_what_a_ratio_must_be() -> None:
    assert Against(0.5, 0.5, 0.5, 0.5).met is True
    assert Against(0.49, 0.4, 0.5, 0.5).met is False
    assert Against(0.49, 0.4, 0.5).met is None
    assert Against(3.0, 3.0, 3.0, 3.0, at_most=True).met is True
    assert Against(3.1, 3.0, 3.2, 3.0, at_most=True).met is False


def test_the_straight_line_writes_a_chain_that_proves_its_payloads(tmp_path: Path) -> None:
    pool = Pool(10)
    line = StraightLine(tmp_path / "line", pool)
    line.append(pool.take(3), "a")
    line.append(pool.take(1), "b")
    line.close()
    data, count, previous = (tmp_path / "line").read_bytes(), 0, b""
    while data:
        length = int.from_bytes(data[:4], "big")
        frame, digest, data = data[4 : 4 + length], data[4 + length : 36 + length], data[36 + length :]
        assert sha256(frame).digest() == digest
        origin, last, now, first_previous, last_hash, rows = msgspec.msgpack.decode(frame)
        assert first_previous == previous
        for *start, actor, scope, request, cause, trace, key, tags, body, salt in rows:
            count += 1
            assert canonical(msgspec.json.decode(body)) == body
            facts = (actor, scope, request, cause, trace, key, tags, commitment(salt, body), previous)
            header = encode_header((*start, origin, count, now, *facts))
            previous = sha256(b"\0" + header).digest()
        assert (last, last_hash) == (count, previous)
    assert count == 4


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    # The machine is ten times slower in the second round, which a ratio of medians would take for a result.
    rounds = [
        {"ours": Sample(50.0), "floor": Sample(100.0)},
        {"ours": Sample(6.0), "floor": Sample(10.0)},
        {"ours": Sample(40.0), "floor": Sample(100.0)},
    ]
    assert ratio(rounds, "ours", "floor") == pytest.approx((0.5, 0.4, 0.6))
    assert spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_every_side_runs_once_a_round_in_a_shuffled_order() -> None:
    order: list[str] = []

    def side(name: str) -> Sample:
        order.append(name)
        return Sample(1.0)

    contest = Contest("x", {name: partial(side, name) for name in "abcd"})
    interleave([contest], rounds=7, progress=lambda text: None)
    rounds = ["".join(order[start : start + 4]) for start in range(0, 28, 4)]
    assert all(sorted(found) == list("abcd") for found in rounds)
    assert len({found[0] for found in rounds}) > 1


def test_a_sample_has_the_processor_time_of_all_threads() -> None:
    def work() -> None:
        start = time.thread_time()
        while time.thread_time() - start < 0.05:
            pass

    sample = timed_threads([[work], [work]])
    assert 40_000 <= sample.cpu_us <= 500_000
    assert sample.switches > 0
    with pytest.raises(ZeroDivisionError):
        timed_threads([[lambda: 1 // 0]])


def test_a_side_that_reads_too_little_is_not_a_fast_side() -> None:
    with pytest.raises(AssertionError, match="read 3 events where 4"):
        require_count(3, 4)


def test_drafts_have_the_size_and_the_fields_of_real_ones() -> None:
    pool = Pool(500)
    drafts = pool.take(500)
    sizes = [len(canonical(draft.payload)) for draft in drafts]
    assert 120 <= sum(sizes) / len(sizes) <= 160
    assert all(draft.actor and draft.causation_id and draft.correlation_id for draft in drafts)
    assert len({draft.stream for draft in drafts}) == POOL_STREAMS
    for draft in drafts:
        CATALOG.validate(draft.type, draft.payload)
    assert [draft.type for draft in pool.mixed(40)].count(RARE_TYPE) == 2
    assert {draft.type for draft in pool.on_one_stream(5, "item/a")} == {TYPE}


def test_half_of_the_payloads_of_a_pool_are_new_and_no_key_comes_twice() -> None:
    pool = Pool(1_000)
    texts = [canonical(draft.payload) for draft in pool.take(4_000)]
    counts = Counter(texts)
    assert sum(counts[text] == 1 for text in texts) == 2_000
    assert len(counts) <= 2_000 + REPEATED
    values = [set(draft.payload.values()) for draft in pool.take(100)]
    assert all(new.isdisjoint(set().union(*values[:index])) for index, new in enumerate(values) if index % 2 == 0)
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
