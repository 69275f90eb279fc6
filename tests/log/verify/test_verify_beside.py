"""`verify` beside processes that write, purge, pack, rebuild, close and open: it never reports what is not so.

50 runs on each store with --full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.handle_logs import make_small, open_log
from tests.support.handles import Nursery, ProcessHandle, SteeredFiles

RUNS, RUNS_FULL = 6, 50
STEPS, STEPS_FULL = 60, 1000
MAINTENANCE = {"jsonl": "rebuild_index", "segments": "archive"}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery("tests.stores.handle_logs:open_small")
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments", "postgresql"])
def test_verify_beside_writers_raises_no_false_alarm(
    kind: str,
    nursery: Nursery,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    full = pytestconfig.getoption("--full")
    make_small(monkeypatch)
    place = request.getfixturevalue("postgres_url") if kind == "postgresql" else f"{kind}:{tmp_path / 'log'}"
    lasting = open_log(place, SteeredFiles())
    lasting.append("thing.said", stream="thing/0", payload={"text": "first"})
    if kind == "segments":  # one writer at a time
        lasting.close()
        lasting = open_log(place, SteeredFiles())
    writers = [ProcessHandle(nursery) for _ in range(1 if kind == "segments" else 2)]
    steps = STEPS_FULL if full else STEPS
    for seed, writer in enumerate(writers):
        writer.begin("churn", place=place, steps=steps, seed=seed, maintenance=MAINTENANCE.get(kind, ""))
    runs, heads, problems = 0, set(), []
    while runs < (RUNS_FULL if full else RUNS) or not all(writer.ready() for writer in writers):
        log = lasting if runs % 2 else open_log(place, SteeredFiles())
        report = log.verify()
        problems += [(runs, report.head, problem) for problem in report.problems]
        heads.add(report.head)
        runs += 1
        if log is not lasting:
            log.close()
    done: Counter[str] = Counter()
    for writer in writers:
        answer = writer.result()
        assert answer[0] == "ok", answer
        done += answer[1]
        writer.end()
    print(f"{kind}: {runs} runs up to {len(heads)} heads beside {dict(done)}")
    assert problems == []
    assert lasting.verify().problems == ()
    assert len(heads) > 1, "nobody wrote meanwhile"
    lasting.close()
