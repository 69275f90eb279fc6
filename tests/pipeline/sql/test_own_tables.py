"""Our own tables have what a program in plain Python counts in the log, on random histories, without Spark."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.pipeline.sql.test_tables import Shop

from everlog.core.event import Event, Recorded
from everlog.log.log import Log
from everlog.pipeline.engines.local import LocalEngine
from everlog.pipeline.run import run
from everlog.pipeline.sql.definition import read_definitions
from everlog.pipeline.tables.answers import answers_of
from everlog.pipeline.tables.gold import gold_of
from everlog.settings import Settings
from everlog.testing.builders import Chain

MONDAY = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
LANES = ("planned", "doing", "for_review", "done")
STEPS = ("requested", "started", "succeeded", "failed", "rolled_back")
ORIGINS = ("01TESTNODE000000000000000A", "01TESTNODE000000000000000B", "01TESTNODE000000000000000C")


def fill(
    log: Log,
    chance: random.Random,
    nodes: Sequence[Chain],
    *,
    moved: str = "WPStatusChanged",
    lane: str = "new_status",
) -> None:
    """Packages that are planned and moved by three nodes that do not always know of each other; deploys; chat."""
    last: dict[str, list[str]] = defaultdict(list)
    for lamport in range(1, chance.randint(5, 60)):
        at = MONDAY + timedelta(seconds=chance.randint(0, 20 * 86_400))
        more: dict[str, Any] = {
            "lamport": chance.randint(1, lamport),
            "occurred_at": at,
            "actor": chance.choice(("user:ada", "user:bob", "agent:builder")),
            "scope": chance.choice(("", "acme", "acme/shop")),
        }
        node, what = chance.choice(nodes), chance.random()
        if what < 0.15:
            stream = f"workpackage/WP{chance.randint(1, 4)}"
            payload = {"work_package_id": stream.partition("/")[2], "title": "Part"}
            made = node.next(type="WPCreated", stream=stream, version=2, payload=payload, **more)
        elif what < 0.65:
            stream = f"workpackage/WP{chance.randint(1, 4)}"
            moves: dict[str, Any] = {lane: chance.choice(LANES)}
            if moved == "WPStatusChanged":
                moves["old_status"] = chance.choice(("", *LANES))
                moves["after"] = chance.choice((last[stream][-1:], last[stream][-2:-1], []))
            made = node.next(type=moved, stream=stream, version=2, payload=moves, **more)
            last[stream].append(made.event.id)
        elif what < 0.85:
            kind = chance.choice((*STEPS, "seen"))
            made = node.next(
                type=f"control.deploy.{kind}",
                stream=f"deploy/d{chance.randint(1, 5)}",
                payload={},
                version=1 + (kind == "requested"),
                **more,
            )
        else:
            kind = chance.choice(("chat.said", "market.listed", "chatter.heard"))
            made = node.next(
                type=kind, stream=f"talk/{chance.randint(1, 3)}", payload={"text": "ü" * chance.randint(0, 3)}, **more
            )
        log.admit([made.event])


# ---- the same in plain Python


def in_causal_order(events: list[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for one in sorted(events, key=lambda one: (one.lamport, one.id)):
        found[one.stream].append(one)
    return found


def hours(first: datetime | None, last: datetime | None) -> float | None:
    if first is None or last is None:
        return None
    return round((last - first) / timedelta(hours=1), 4)


def flow(events: list[Event], moved: str, lane: str) -> dict[str, dict[str, Any]]:
    found = {}
    for stream, own in in_causal_order([one for one in events if one.type in ("WPCreated", moved)]).items():
        lanes = ["planned" if one.type == "WPCreated" else one.payload[lane] for one in own]
        times = [one.occurred_at for one in own]
        spent = dict.fromkeys(LANES, 0.0)
        for at, name in enumerate(lanes[:-1]):
            spent[name] += max(0.0, (times[at + 1] - times[at]) / timedelta(hours=1))
        begun = min((at for at, name in zip(times, lanes, strict=True) if name == "doing"), default=None)
        done = max((at for at, name in zip(times, lanes, strict=True) if name == "done"), default=None)
        done = done if lanes[-1] == "done" else None
        found[stream.partition("/")[2]] = {
            "work_package": stream.partition("/")[2],
            "scope": own[-1].scope,
            "lane": lanes[-1],
            "planned_at": min(times),
            "begun_at": begun,
            "done_at": done,
            "sent_back": sum(pair == ("for_review", "doing") for pair in pairwise(lanes)),
            **{f"{name}_hours": round(spent[name], 4) for name in LANES[:3]},
            "lead_hours": hours(min(times), done),
            "cycle_hours": hours(begun, done),
        }
    return found


def flow_daily(packages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    counted = {
        kind: Counter(row[f"{kind}_at"].date() for row in packages if row[f"{kind}_at"])
        for kind in ("planned", "begun", "done")
    }
    days = sorted(set().union(*counted.values()))
    found, open_ = [], 0
    for number in range((days[-1] - days[0]).days + 1 if days else 0):
        day = days[0] + timedelta(days=number)
        row = {kind: counts[day] for kind, counts in counted.items()}
        open_ += row["begun"] - row["done"]
        found.append({"day": day, **row, "in_progress": open_})
    return found


def conflicts(events: list[Event]) -> list[str]:
    found = []
    for own in in_causal_order([one for one in events if one.type == "WPStatusChanged"]).values():
        for before, one in pairwise(own):
            after, old = one.payload["after"], one.payload["old_status"]
            unknown = before.id not in after if after else old not in ("", before.payload["new_status"])
            if unknown and one.origin != before.origin:
                found.append(one.id)
    return sorted(found)


def deploys(events: list[Event]) -> dict[str, tuple[Any, ...]]:
    names = {f"control.deploy.{step}": step for step in STEPS}
    found = {}
    for stream, own in in_causal_order([one for one in events if one.type in names]).items():
        first = {step: min((e.occurred_at for e in own if names[e.type] == step), default=None) for step in STEPS}
        ended = min((at for at in (first["succeeded"], first["failed"]) if at), default=None)
        least = own[0].lamport
        by = max((e for e in own if e.lamport == least), key=lambda e: e.id).actor
        took = (
            None
            if ended is None or first["requested"] is None
            else (ended - first["requested"]) / timedelta(minutes=1)
        )
        found[stream.partition("/")[2]] = (
            max(e.scope for e in own),
            by,
            first["requested"],
            ended,
            names[own[-1].type],
            None if took is None else pytest.approx(took, abs=0.0051),
        )
    return found


def counted(records: list[Recorded], *, talk: bool = False) -> dict[tuple[Any, ...], tuple[int, int]]:
    events, others = Counter[tuple[Any, ...]](), defaultdict[tuple[Any, ...], set[str]](set)
    for recorded in records:
        one = recorded.event
        if talk and one.type.partition(".")[0] not in ("chat", "market"):
            continue
        key = (one.occurred_at.date(), *((one.scope, one.type) if talk else (one.actor, one.scope)))
        events[key] += 1
        others[key].add(one.actor if talk else one.stream)
    return {key: (count, len(others[key])) for key, count in events.items()}


def growth(records: list[Recorded]) -> dict[tuple[date, str], int]:
    return Counter((recorded.received_at.date(), recorded.event.type) for recorded in records)


# ---- the comparison


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.log.close()


def run_with(shop: Shop, settings: Settings) -> None:
    more = answers_of(shop.log, shop.lake, read_definitions(None, settings))
    outcome = run(
        LocalEngine(), shop.log, shop.url, shop.lake, gold=gold_of(shop.lake, [], shop.log.catalog, more=more)
    )
    assert not outcome.left, "no table of ours needs Spark"


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 5 else []) for seed in range(50)]
)
def test_our_tables_are_what_the_log_says(shop: Shop, seed: int) -> None:
    chance = random.Random(seed)
    # A type of another program, in the words of another program: only settings tell what it is.
    other = seed % 2 == 1
    moved, lane = ("part.moved", "to_lane") if other else ("WPStatusChanged", "new_status")
    settings = Settings(flow_moved=moved, flow_lane=lane)
    nodes = [Chain(origin) for origin in ORIGINS]
    for _ in range(2):
        fill(shop.log, chance, nodes, moved=moved, lane=lane)
        run_with(shop, settings)
        records = list(shop.log.read())
        events = [recorded.event for recorded in records]
        packages = flow(events, moved, lane)
        assert {row["work_package"]: row for row in shop.rows("flow")} == {
            name: {
                key: pytest.approx(value, abs=1.1e-4) if isinstance(value, float) else value
                for key, value in row.items()
            }
            for name, row in packages.items()
        }
        assert sorted(shop.rows("flow_daily"), key=lambda row: row["day"]) == flow_daily(list(packages.values()))
        weeks = defaultdict[date, list[float]](list)
        for row in shop.rows("flow"):
            if row["done_at"]:
                weeks[row["done_at"].date() - timedelta(days=row["done_at"].weekday())].append(row["lead_hours"])
        assert {row["week"]: (row["done"], row["lead_p50"]) for row in shop.rows("flow_weekly")} == {
            week: (len(took), pytest.approx(median(took), abs=0.0051)) for week, took in weeks.items()
        }
        assert sorted(row["won_id"] for row in shop.rows("conflicts")) == ([] if other else conflicts(events))
        assert {
            row["deploy"]: tuple(row[name] for name in row if name != "deploy") for row in shop.rows("deploys")
        } == deploys(events)
        for name, talk in (("activity", False), ("talk", True)):
            rows = [tuple(row.values()) for row in shop.rows(name)]
            assert {row[:3]: row[3:] for row in rows} == counted(records, talk=talk), name
        assert {(row["day"], row["type"]): row["events"] for row in shop.rows("growth")} == growth(records)


def test_lanes_of_other_names_come_from_settings(shop: Shop) -> None:
    node = Chain()
    for lane, hours_later in (("genesis", 0), ("claimed", 2), ("coding", 3), ("merged", 10)):
        at = MONDAY + timedelta(hours=hours_later)
        made = node.next(type="part.moved", stream="part/1", payload={"to": lane}, occurred_at=at)
        shop.log.admit([made.event])
    run_with(
        shop,
        Settings(
            flow_planned="part.planned",  # nobody has recorded one
            flow_moved="part.moved",
            flow_lane="to",
            lanes_planned="genesis",
            lanes_doing="claimed, coding",
            lanes_done="merged",
        ),
    )
    (row,) = shop.rows("flow")
    assert (row["lane"], row["lead_hours"], row["cycle_hours"]) == ("merged", 10.0, 8.0)
    assert (row["planned_hours"], row["doing_hours"]) == (2.0, 8.0)


def test_a_file_of_the_user_replaces_ours_and_what_reads_it_follows(shop: Shop) -> None:
    shop.define("growth", "SELECT type, count(*) AS n FROM events GROUP BY type")
    shop.say("milk", 1)
    shop.done()
    assert shop.rows("growth") == [{"type": "note.added", "n": 1}]
