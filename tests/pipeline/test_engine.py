"""Which engine is advised: the one that is likely to be done first, with the reason in words."""

from __future__ import annotations

from everlog.pipeline import engine
from everlog.pipeline.engine import PROCESS, SPARK, advise


def test_few_events_are_for_one_process() -> None:
    found = advise(1000, cores=64, installed=True)
    assert found.engine == PROCESS
    assert found.why.startswith("1,000 events take one process about 1 s or less, Spark on 64 cores about ")


def test_many_events_and_cores_are_for_spark() -> None:
    found = advise(100_000_000, cores=16, installed=True)
    assert found.engine == SPARK
    assert "Spark on 16 cores" in found.why
    assert "for 100,000,000 events" in found.why


def test_more_cores_never_speak_against_spark() -> None:
    for events in (10, 10**4, 10**6, 10**7, 10**8, 10**9):
        engines = [advise(events, cores=cores, installed=True).engine for cores in (1, 2, 4, 8, 64)]
        assert engines == sorted(engines), events  # "process" before "spark"


def test_what_cannot_be_is_said() -> None:
    assert "not installed" in advise(10**9, cores=64, installed=False).why
    assert advise(10**9, cores=64, installed=False).engine == PROCESS
    assert "in memory" in advise(10**9, cores=64, installed=True, store="memory:").why
    assert engine.available_cores() >= 1
