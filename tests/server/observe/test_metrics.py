"""Counters, gauges and histograms, and their text."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from tests.server.calling import Calls
from tests.server.running import NOTE

from everlog.consumers.group import Group
from everlog.server.app import App
from everlog.server.observe.loop_lag import LoopLag
from everlog.server.observe.metrics import Family, Histogram, Metrics

LINE = re.compile(
    r"# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+=\"(\\.|[^\"\\\n])*\"(,[a-z_]+=\"(\\.|[^\"\\\n])*\")*\})? \S+"
)


def test_a_counter_has_a_number_per_set_of_labels() -> None:
    family = Family("counter", "calls_total", "Calls.", "who", "how")
    family.add("ada", 'a "b"\\\n')
    family.add("ada", 'a "b"\\\n', by=2)
    assert list(family.lines()) == [
        "# HELP calls_total Calls.",
        "# TYPE calls_total counter",
        'calls_total{who="ada",how="a \\"b\\"\\\\\\n"} 3',
    ]


def test_a_histogram_counts_what_is_at_most_so_large() -> None:
    histogram = Histogram((1.0, 2.5), "size", "Sizes.")
    for value in (0.5, 1.0, 2.0, 9.0):
        histogram.observe(value)
    assert list(histogram.lines())[2:] == [
        'size_bucket{le="1"} 2',
        'size_bucket{le="2.5"} 3',
        'size_bucket{le="+Inf"} 4',
        "size_sum 12.5",
        "size_count 4",
    ]


def test_the_page_of_metrics_is_text_that_prometheus_reads(app: App, calls: Calls) -> None:
    calls.post("/v1/events", NOTE)
    calls.get("/nothing")
    answer = calls.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))


def test_what_is_asked_for_is_there(app: App, calls: Calls) -> None:
    """Every metric that docs/how-to/server/metrics.md describes."""
    page = Path(__file__).parents[3] / "docs" / "how-to" / "server" / "metrics.md"
    described = set(re.findall(r"`((?:everlog|process)_[a-z_]+)`", page.read_text(encoding="utf-8")))
    log = app.services["log"].log
    calls.post("/v1/events:batch", [NOTE, NOTE])
    calls.post("/v1/events", {**NOTE, "type": "no.such"})
    log.view("streams").catch_up()
    log.view("streams").snapshot()
    Group(log, "mail").member("a").take()
    found = set(re.findall(r"^# TYPE (\S+)", calls.get("/metrics").text, re.MULTILINE))
    assert found == described


def test_requests_refusals_and_commits_are_counted(app: App, calls: Calls) -> None:
    calls.post("/v1/events:batch", [NOTE, NOTE])
    calls.post("/v1/events", {**NOTE, "type": "no.such"})
    text = calls.get("/metrics").text
    for line in (
        'everlog_requests_total{route="events.append_batch",status="201"} 1',
        'everlog_requests_total{route="events.append",status="422"} 1',
        'everlog_refusals_total{code="unknown_type"} 1',
        'everlog_events_recorded_total{log="log"} 2',
        'everlog_commit_events_sum{log="log"} 2',
        'everlog_flush_seconds_count{log="log"} 1',
        'everlog_log_head{log="log"} 2',
        "everlog_requests_in_flight 1",
        "everlog_append_seconds_count 1",
    ):
        assert f"\n{line}\n" in text, line


def test_only_a_caller_who_may_see_the_whole_log_sees_its_metrics(app: App, calls: Calls) -> None:
    assert Calls.of(app, "acme", role="admin", within="acme").get("/metrics").status_code == 403
    assert Calls(app, "").get("/metrics").status_code == 401
    assert Calls.of(app, "watch", role="read").get("/metrics").status_code == 200


# ---- the loop


def test_a_handler_that_blocks_the_loop_is_noticed() -> None:
    metrics = Metrics()

    async def work() -> None:
        lag = LoopLag(asyncio.get_running_loop(), metrics)
        lag.start()
        await asyncio.sleep(0.05)
        time.sleep(0.06)  # the defect
        await asyncio.sleep(0.05)
        lag.stop()

    asyncio.run(work())
    assert metrics.blocked.get() >= 1
    assert metrics.lag_s.get() > 0.03
