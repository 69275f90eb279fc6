"""Which engine is chosen, with the reason in words."""

from __future__ import annotations

from everlog.pipeline.engines.choose import LOCAL, LOCAL_EVENTS_MAX, SPARK, available_cores, choose


def test_few_events_are_for_one_process() -> None:
    found = choose(1000, cores=64, installed=True)
    assert found.engine == LOCAL
    assert found.why.startswith("1,000 events take one process about 1 s or less, Spark on 64 cores about ")


def test_many_events_and_cores_are_for_spark() -> None:
    found = choose(100_000_000, cores=16, installed=True)
    assert found.engine == SPARK
    assert "Spark on 16 cores" in found.why
    assert "for 100,000,000 events" in found.why


def test_more_cores_never_speak_against_spark() -> None:
    for events in (10, 10**4, 10**6, 10**7, 10**8, 10**9):
        engines = [choose(events, cores=cores, installed=True).engine for cores in (1, 2, 4, 8, 64)]
        assert engines == sorted(engines), events  # "process" before "spark"


def test_what_cannot_be_is_said() -> None:
    assert "not installed" in choose(10**9, cores=64, installed=False).why
    assert choose(10**9, cores=64, installed=False).engine == LOCAL
    assert "in memory" in choose(10**9, cores=64, installed=True, store="memory:").why
    assert available_cores() >= 1


def test_a_run_takes_this_process_up_to_a_number_of_events() -> None:
    found = [choose(events, local_max=LOCAL_EVENTS_MAX) for events in (0, LOCAL_EVENTS_MAX, LOCAL_EVENTS_MAX + 1)]
    assert [one.engine for one in found] == [LOCAL, LOCAL, SPARK]
    assert found[2].why == "20,001 events; this process takes up to 20,000"


def test_a_user_the_caller_for_spark_gets_it() -> None:
    found = choose(1, local_max=LOCAL_EVENTS_MAX, asked_for="--master was given")
    assert (found.engine, found.why) == (SPARK, "--master was given")
