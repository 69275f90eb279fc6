"""The report: of every table with a chart line, small, without a script or a network, and escaped. Without Spark."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.pipeline.sql.test_own_tables import ORIGINS, fill
from tests.pipeline.sql.test_tables import Shop

from everlog.errors import NotFound, SqlRefused
from everlog.pipeline.report.plots import plot
from everlog.pipeline.report.report import BYTES_MAX, report
from everlog.pipeline.sql.chart import Chart, read_chart
from everlog.pipeline.sql.definition import read_definitions
from everlog.testing.builders import Chain

MONDAY = date(2026, 11, 2)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.log.close()


class Page(HTMLParser):
    """What a page asks for, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.asked: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(shop: Shop) -> str:
    return report(shop.lake, read_definitions(shop.tables), now=datetime(2026, 11, 23, tzinfo=UTC))


def test_the_page_has_a_plot_its_rows_and_its_sql_for_each_chart(shop: Shop) -> None:
    nodes = [Chain(origin) for origin in ORIGINS]
    for seed in range(6):
        fill(shop.log, random.Random(seed), nodes)
    done = nodes[0].next(type="WPStatusChanged", stream="workpackage/WP1", payload={"new_status": "done"}, lamport=99)
    shop.log.admit([done.event])
    shop.define(
        "by_hand",
        "-- Our own question.\n-- chart: rows text, n | Mine <b>&\n"
        "SELECT text, count(*) AS n FROM silver.note_added GROUP BY text",
    )
    shop.say("<script>alert(1)", 1)
    shop.done()
    text = page_of(shop)
    page = Page(text)
    assert len(text.encode()) <= BYTES_MAX
    assert (page.asked, page.tags.count("script"), "http" in text) == ([], 0, False)
    assert page.tags.count("h2") == page.tags.count("pre") == 9
    for title in ("Mine <b>&", "Work packages day by day", "How long it takes", "Where the time went", "Deploys"):
        assert title in page.text
    assert page.tags.count("svg") == 8, "conflicts are a table"
    for svg in re.findall("<svg.*?</svg>", text):
        assert ElementTree.fromstring(svg).tag == "svg"
    assert "<script>alert(1)" in page.text
    assert "FROM silver.`{flow_planned}`" in page.text, "the SQL as it is written"
    assert "Our own question." in page.text
    assert "prefers-color-scheme:dark" in text


def test_a_page_of_many_rows_shows_fewer_of_them_and_stays_small(shop: Shop) -> None:
    for number in range(12):
        shop.define(f"wide_{number}", "-- chart: table text\nSELECT text, position FROM silver.note_added")
    for number in range(120):
        shop.say("ü" * 500 + str(number), 1 + number % 28)
    shop.done()
    text = page_of(shop)
    assert len(text.encode()) <= BYTES_MAX
    assert "The first 20 of 120." in text


def test_a_lake_without_events_has_nothing_to_report(shop: Shop) -> None:
    shop.done()
    with pytest.raises(NotFound):
        page_of(shop)


def test_a_stack_leaves_nothing_out_and_the_least_common_are_others() -> None:
    rows = [{"day": MONDAY + timedelta(days=n % 2), "type": f"type.{n:02}", "n": n} for n in range(1, 21)]
    svg = plot(Chart("bars", ("day", "n"), "type"), rows)
    assert svg.count("</i>") == 8
    assert "others" in svg
    heights = [float(top) - float(low) for top, low in re.findall(r"M\S+ ([\d.]+)V([\d.]+)h", svg)]
    scale = 226 / 200  # pixels of a unit: the scale ends at 200
    assert -sum(heights) == pytest.approx(210 * scale, abs=2)


@pytest.mark.parametrize("kind", ["bars", "lines", "heat", "rows"])
def test_values_that_are_missing_or_0_are_no_problem(kind: str) -> None:
    rows: list[dict[str, Any]] = [{"a": None, "b": None, "c": None}, {"a": MONDAY, "b": 0, "c": 0.0}]
    assert plot(Chart(kind, ("a", "b", "c")), rows).startswith("<svg")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pie day, n", "there is no chart pie"),
        ("bar day, n", "there is no chart bar"),
        ("bars day", "bars needs 2 columns"),
        ("bars dya, n", "there is no column dya"),
        ("lines day, n by actor", "by is for bars with one number"),
        ("bars day, n by actr", "there is no column actr"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(SqlRefused, match=f"tables/it.sql, line 3: chart: {reason}"):
        read_chart(text, ["day", "actor", "n"], "tables/it.sql", 3)
