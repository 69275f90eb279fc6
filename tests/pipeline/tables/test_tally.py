"""Events counted by day, in this process. The tests of the engines compare the result with Spark's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from everlog.pipeline.tables.questions import QUESTIONS
from everlog.pipeline.tables.tally import Tally

START = datetime(2026, 11, 16, 23, 30, tzinfo=UTC)


def answer(name: str, *rows: tuple[int, str, str, str | None]) -> list[dict[str, Any]]:
    """The answer to a question over events, each with hours after the start, actor, type and payload."""
    question = next(question for question in QUESTIONS if question.name == name)
    assert isinstance(question.answer, Tally)
    times = pa.array([START + timedelta(hours=row[0]) for row in rows], pa.timestamp("us", tz="UTC"))
    events = pa.table(
        {
            "occurred_at": times,
            "received_at": times,
            "actor": pa.array([row[1] for row in rows], pa.string()),
            "type": pa.array([row[2] for row in rows], pa.string()),
            "payload": pa.array([row[3] for row in rows], pa.string()),
            "scope": pa.array([""] * len(rows), pa.string()),
            "stream": pa.array([f"{row[2]}/1" for row in rows], pa.string()),
        }
    )
    found = question.answer.in_process(events, question.schema)
    assert found.schema == question.schema
    return [
        {name: str(value) if name == "day" else value for name, value in row.items()} for row in found.to_pylist()
    ]


def test_a_day_ends_at_midnight_in_utc_and_streams_count_once() -> None:
    rows = answer("activity", (0, "ada", "a", "{}"), (0, "ada", "a", "{}"), (1, "ada", "b", "{}"))
    assert [(row["day"], row["events"], row["streams"]) for row in rows] == [
        ("2026-11-16", 2, 1),
        ("2026-11-17", 1, 1),
    ]


def test_only_types_that_a_question_is_about_count() -> None:
    rows = answer("talk", (0, "ada", "chat.said", "{}"), (0, "bob", "chat.said", "{}"), (0, "ada", "chatty", "{}"))
    assert [(row["type"], row["events"], row["people"]) for row in rows] == [("chat.said", 2, 2)]
    assert answer("talk", (0, "ada", "note.added", "{}")) == []


def test_growth_adds_up_the_days_of_each_type_and_an_erased_payload_has_no_bytes() -> None:
    rows = answer(
        "growth", (0, "x", "a", "{}"), (1, "x", "a", None), (1, "x", "b", '{"text":"ö"}'), (25, "x", "a", "{}")
    )
    assert [(row["day"], row["type"], row["events"], row["bytes"], row["total"]) for row in rows] == [
        ("2026-11-16", "a", 1, 2, 1),
        ("2026-11-17", "a", 1, 0, 2),
        ("2026-11-17", "b", 1, 13, 1),
        ("2026-11-18", "a", 1, 2, 3),
    ]


def test_without_events_every_tally_is_empty() -> None:
    assert [answer(name) for name in ("activity", "talk", "growth")] == [[], [], []]
