"""Transitions by causal order: tests/log/test_log.py has those by arrival."""

from __future__ import annotations

import msgspec
import pytest

from everlog.catalog.catalog import Catalog
from everlog.errors import TransitionRefused
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import has_expectations
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import event

STREAM = "ticket/1"


class Moved(msgspec.Struct):
    to: str


class Said(msgspec.Struct):
    text: str


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.event("ticket.moved")(Moved)
    made.event("ticket.said")(Said)
    made.transitions(
        "ticket",
        type="ticket.moved",
        field="to",
        initial="open",
        allowed={"open": ["doing"], "doing": ["done"], "done": ["open"]},
        causal=True,
    )
    return made


@pytest.fixture
def log(catalog: Catalog) -> Log:
    return Log(MemoryStore(), catalog)


def move(log: Log, to: str) -> None:
    log.append("ticket.moved", stream=STREAM, payload={"to": to})


def arrives(log: Log, to: str, lamport: int, **fields: str) -> None:
    tags = {"migrated": "true"} if "migrated" in fields else {}
    made = event("ticket.moved", stream=STREAM, payload={"to": to}, lamport=lamport, tags=tags)
    log.admit([msgspec.structs.replace(made, origin=made.id)])


def test_by_causal_order_a_late_arrival_that_is_old_changes_nothing(log: Log) -> None:
    arrives(log, "done", lamport=9)
    arrives(log, "doing", lamport=5)
    with pytest.raises(TransitionRefused) as refusal:
        move(log, "done")
    assert refusal.value.details["current"] == "done"
    move(log, "open")
    move(log, "doing")


def test_by_causal_order_what_was_migrated_counts_only_where_nothing_else_does(log: Log) -> None:
    arrives(log, "doing", lamport=50, migrated="yes")
    with pytest.raises(TransitionRefused):
        move(log, "doing")
    move(log, "done")
    arrives(log, "doing", lamport=90, migrated="yes")
    with pytest.raises(TransitionRefused) as refusal:
        move(log, "done")
    assert refusal.value.details["current"] == "done"


def test_an_event_that_names_no_state_leaves_the_initial_one(log: Log) -> None:
    arrives(log, "", lamport=1)
    move(log, "doing")


def test_only_types_that_a_rule_is_about_are_asked_for_their_state(catalog: Catalog) -> None:
    assert has_expectations([Draft("ticket.moved", STREAM, {"to": "doing"})], catalog)
    assert not has_expectations([Draft("ticket.said", STREAM, {"text": "hello"})], catalog)
