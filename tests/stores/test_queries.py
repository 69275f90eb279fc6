"""The same query gets the same answer from every store, or the same refusal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG, Clock

from everlog.core.query import Cursor, Query
from everlog.errors import EverlogError, InvalidField
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.memory import MemoryStore
from everlog.stores.postgres.store import PostgresStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore

START_US = Clock().us
TYPES = ["thing.said", "workpackage.moved", "note.added"]
STREAMS = ["note/1", "note/2", "note/10", "notes/1", "cafe/x~y", "note/1_a", "note/1-b", "a/b-c"]
SCOPES = ["", "acme", "acme/shop", "acme/shop/prod", "acmecorp", "acme.x"]
ACTORS = ["user:ada", "user:bob", "system", "agent:x"]
CORRELATIONS = ["", "c-1", "c-2", "C-1"]


def fill(log: Log, clock: Clock) -> None:
    chance = random.Random(15)
    for number in range(120):
        clock.us = START_US + number * 1_000_000 + chance.randrange(3)
        kinds = [chance.choice(["thing.said", "note.added"]) for _ in range(chance.choice([1, 1, 1, 3]))]
        drafts = [
            Draft(
                kind,
                chance.choice(STREAMS),
                {"text": "x"} if kind == "note.added" else {},
                chance.choice(ACTORS),
                chance.choice(SCOPES),
                correlation_id=chance.choice(CORRELATIONS),
            )
            for kind in kinds
        ]
        log.append_batch(drafts)
        if number == 60:
            log.purge("note/2", reason="a test")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, postgres_schemas: Any) -> Iterator[dict[str, Log]]:
    place: Path = tmp_path_factory.mktemp("queries")
    clock = Clock()
    makers: dict[str, Callable[[], Any]] = {
        "memory": lambda: MemoryStore(now_us=clock),
        "sqlite": lambda: SqliteStore(place / "log.db", now_us=clock),
        "jsonl": lambda: JsonlStore(place / "jsonl", now_us=clock),
        "segments": lambda: SegmentsStore(place / "segments", now_us=clock),
        "postgres": lambda: PostgresStore(postgres_schemas.new(), now_us=clock),
    }
    opened: dict[str, Log] = {}
    try:
        for name, make in makers.items():
            clock.us = START_US
            opened[name] = Log(make(), CATALOG, actor="system", now_us=clock)
            fill(opened[name], clock)
        yield opened
    finally:
        for log in opened.values():
            log.close()


# ---- random questions

TEXTS: list[Any] = ["", "%", "_", "*", "note", "note/", "/", "note/1/", "NOTE/1", "'", '"', "x" * 5000, " ", "acme/"]
NOT_TEXTS: list[Any] = ["a\0b", "\0", "\ud800", None, 7, b"note/1", ["note/1"], 1.5, True, object]
HUGE = [2**31, 2**53, 2**62, 2**63 - 1]
NOT_POSITIONS: list[Any] = [-1, -(2**70), 2**63, 2**70, 1.0, "1", None, True, b"1", [1]]


def text(chance: random.Random, usual: list[str]) -> Any:
    roll = chance.random()
    if roll < 0.80:
        return chance.choice(usual)
    return chance.choice(TEXTS if roll < 0.95 else NOT_TEXTS)


def moment(chance: random.Random) -> Any:
    seconds = chance.randrange(-5, 125)
    at = datetime.fromtimestamp(START_US // 1_000_000, UTC) + timedelta(
        seconds=seconds, microseconds=chance.randrange(3)
    )
    roll = chance.random()
    if roll < 0.6:
        return at
    if roll < 0.8:
        return at.astimezone(timezone(timedelta(hours=chance.randrange(-12, 14), minutes=30)))
    return chance.choice(
        [
            at.replace(tzinfo=None),
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
            datetime(9999, 12, 31, tzinfo=timezone(timedelta(hours=-12))),
            at.timestamp(),
            at.isoformat(),
            at.date(),
            0,
        ]
    )


def position(chance: random.Random) -> Any:
    roll = chance.random()
    if roll < 0.85:
        return chance.randrange(0, 200)
    return chance.choice(HUGE if roll < 0.93 else NOT_POSITIONS)


def types(chance: random.Random) -> Any:
    some = frozenset(chance.sample([*TYPES, "no.such", "thing", "THING.SAID", ""], chance.randrange(1, 4)))
    return chance.choice(
        [
            *(some, some, some, some, set(some), list(some), tuple(some), "thing.said", "", b"thing.said", None, 7),
            *(frozenset([7]), frozenset(["a\0"]), ["\udfff"], frozenset(["é" * 300])),
        ]
    )


def question(chance: random.Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    parts: dict[str, Any] = {}
    makers: list[tuple[str, Callable[[], Any]]] = [
        ("types", lambda: types(chance)),
        ("stream", lambda: text(chance, STREAMS)),
        ("kind", lambda: text(chance, ["note", "notes", "cafe", "a", "not"])),
        ("scope", lambda: text(chance, SCOPES)),
        ("actor", lambda: text(chance, ACTORS)),
        ("correlation_id", lambda: text(chance, CORRELATIONS)),
        ("since", lambda: moment(chance)),
        ("until", lambda: moment(chance)),
    ]
    for name, make in makers:
        if chance.random() < 0.22:
            parts[name] = make()
    asked = chance.choice(["read", "read", "page_after", "subscribe"])
    given: dict[str, Any] = {}
    limit: Any = chance.choice([1, 2, 10, 500, 500, 2**63 - 1, 0, -1, 2**63, 2**70, 1.0, "3", True])
    if asked == "read":
        values = {
            "after": position(chance),
            "upto": position(chance),
            "limit": limit,
            "newest_first": chance.random() < 0.5,
            "stream": text(chance, STREAMS),
        }
        given = {name: value for name, value in values.items() if chance.random() < 0.3}
    elif asked == "page_after":
        given["cursor"] = chance.choice([position(chance), Cursor(position(chance)), str(chance.randrange(200)), "x"])
        if chance.random() < 0.5:
            given["limit"] = limit
    else:
        given["after"] = chance.choice([position(chance), Cursor(position(chance), position(chance))])
    return asked, parts, given


def answer(log: Log, asked: str, parts: dict[str, Any], given: dict[str, Any]) -> tuple[Any, ...]:
    try:
        query = Query(**parts)
        if asked == "read":
            return ("found", [_said(one) for one in log.read(query, **given)])
        if asked == "page_after":
            page = log.page_after(given["cursor"], query, **{k: v for k, v in given.items() if k != "cursor"})
            reset = None if page.reset is None else page.reset.reason
            return ("page", [_said(one) for one in page.events], page.next_cursor.position, page.head, reset)
        return ("followed", [_said(one) for one in log.subscribe(given["after"], query, to_end=True)])
    except EverlogError as refused:
        return ("refused", type(refused).__name__, refused.exit_code, str(refused), refused.hint)


def _said(one: Any) -> Any:
    if not hasattr(one, "event"):
        return (one.reason, one.cursor.position)  # a reset
    return (one.position, one.sequence, one.received_us, one.event.type, one.event.stream, one.event.scope)


def test_random_queries_get_the_same_answer_from_every_store(
    logs: dict[str, Log], pytestconfig: pytest.Config
) -> None:
    count = 10_000 if pytestconfig.getoption("--full") else 300
    chance = random.Random(20261117 if not pytestconfig.getoption("--full") else None)
    kinds: dict[str, int] = {}
    for _ in range(count):
        asked = question(chance)
        answers = {name: answer(log, *asked) for name, log in logs.items()}
        first = answers["memory"]
        assert all(one == first for one in answers.values()), (asked, answers)
        kinds[first[0]] = kinds.get(first[0], 0) + 1
        if first[0] == "refused":
            assert first[1:3] == ("InvalidField", 3), (asked, first)
            assert first[4], "a refusal says what to do"
    assert all(kinds.get(kind, 0) > count // 50 for kind in ("found", "page", "followed", "refused")), kinds


# ---- the refusals that are promised by name


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"types": "thing.said"}, "types"),
        ({"types": 7}, "types"),
        ({"types": frozenset(["a\0"])}, "types"),
        ({"types": frozenset([7])}, "types"),
        ({"types": frozenset(map(str, range(10_001)))}, "types"),
        ({"stream": "note/\0"}, "stream"),
        ({"stream": 7}, "stream"),
        ({"kind": "\ud800"}, "kind"),
        ({"scope": None}, "scope"),
        ({"actor": b"user:ada"}, "actor"),
        ({"correlation_id": "\0"}, "correlation_id"),
        ({"since": datetime(2026, 11, 17)}, "since"),
        ({"until": "2026-11-17"}, "until"),
    ],
)
def test_a_query_is_refused_where_it_is_made(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        Query(**parts)
    assert refused.value.details["field"] == field
    assert refused.value.why
    assert refused.value.hint


def test_a_bare_stream_is_told_how_a_stream_is_read(log: Log) -> None:
    wrong: Any = "expense/1"
    for ask in (
        lambda: log.read(wrong),
        lambda: log.page_after(0, wrong),
        lambda: log.subscribe(0, wrong, to_end=True),
    ):
        with pytest.raises(InvalidField) as refused:
            ask()
        assert "read(stream='expense/1')" in refused.value.hint


def test_collections_of_types_are_taken_as_a_set() -> None:
    for given in (["note.added"], ("note.added",), {"note.added"}):
        wrong: Any = given
        assert Query(types=wrong) == Query(types=frozenset(["note.added"]))
