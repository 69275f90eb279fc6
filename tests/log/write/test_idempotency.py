"""Safe retries: one request, one event, one answer, whatever happens in between (F82)."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.at_once import at_once

from everlog.errors import AlreadyPurged, InvalidField, KeyReuse, NotCanonical, WrongSequence
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.idempotency import remember_extra, was_nothing
from everlog.stores.small_state import read_notes

HOUR_US = 3_600_000_000


def say(value: Any = 1, stream: str = "thing/1", **fields: Any) -> Draft:
    return Draft(type="thing.said", stream=stream, payload={"value": value}, **{"actor": "user:ada", **fields})


def test_the_same_request_gets_the_same_record_and_is_called_a_replay(log: Log) -> None:
    first = log.writer.commit([say({"a": 1, "b": 2})], key="k")
    again = log.writer.commit([say({"b": 2.0, "a": 1})], key="k")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.records == first.records
    assert log.head() == 1
    assert log.append("thing.said", stream="thing/1", payload={"value": 1}, key="a") == log.append(
        "thing.said", stream="thing/1", payload={"value": 1}, key="a"
    )


def test_a_replay_wins_over_an_expectation_that_was_met_then(log: Log) -> None:
    first = log.writer.commit([say(expect=0)], key="k")
    assert log.writer.commit([say(expect=0)], key="k").records == first.records
    with pytest.raises(WrongSequence):
        log.writer.commit([say(expect=0)], key="k2")


@pytest.mark.parametrize(
    "other",
    [
        [say(2)],
        [say(True)],
        [say(1, "thing/2")],
        [say(1, tags={"team": "b"})],
        [say(), say()],
        [Draft(type="note.added", stream="thing/1", payload={"text": "x"}, actor="user:ada")],
    ],
)
def test_another_request_under_the_same_key_is_refused(log: Log, other: list[Draft]) -> None:
    log.writer.commit([say()], key="k", operation="op")
    with pytest.raises(KeyReuse) as refusal:
        log.writer.commit(other, key="k", operation="op")
    assert refusal.value.details["key"] == "k"
    assert log.head() == 1


def test_a_key_names_one_request_in_the_scope_that_is_given_for_it(log: Log) -> None:
    first = log.writer.commit([say(scope="acme/shop")], key="k", key_scope="acme")
    assert log.writer.commit([say(scope="acme/shop")], key="k", key_scope="acme").records == first.records
    with pytest.raises(KeyReuse):
        log.writer.commit([say(scope="acme/cart")], key="k", key_scope="acme")
    assert not log.writer.commit([say(scope="acme/cart")], key="k").replayed


def test_an_earlier_outcome_is_that_of_the_logs_own_actor_if_none_is_named(make_log: Callable[..., Log]) -> None:
    with make_log("memory", actor="user:ada") as log:
        asked = ("op", "k", {"a": 1})
        receipt = log.writer.commit([say(actor="")], key="k", operation="op", request={"a": 1})
        for actor in ("", "user:ada"):
            found = log.writer.earlier_outcome(*asked, actor=actor)
            assert found is not None
            assert (found.records, found.replayed) == (receipt.records, True)
        assert log.writer.earlier_outcome(*asked, actor="user:bob") is None
        assert log.writer.record_unchanged("op", "other", {"a": 1}) is None
        assert log.writer.earlier_outcome("op", "other", {"a": 1}, actor="user:ada") is not None


def test_everybody_of_a_batch_belongs_to_the_request(log: Log) -> None:
    log.writer.commit([say(), say(actor="user:bob")], key="k")
    with pytest.raises(KeyReuse):
        log.writer.commit([say(), say(actor="user:eve")], key="k")


def test_who_says_what_was_asked_is_judged_by_that_and_not_by_the_drafts(log: Log) -> None:
    first = log.writer.commit([say("one")], key="k", request={"path": "/a"})
    again = log.writer.commit([say("another")], key="k", request={"path": "/a"})
    assert again.replayed
    assert again.records == first.records
    with pytest.raises(KeyReuse):
        log.writer.commit([say("one")], key="k", request={"path": "/b"})
    with pytest.raises(KeyReuse):
        log.writer.commit([say("one")], key="k")


def test_a_retry_can_be_answered_before_anything_is_decided(log: Log) -> None:
    asked = {"path": "/a"}
    assert log.writer.earlier_outcome("op", "k", asked, actor="user:ada") is None
    first = log.writer.commit([say()], key="k", operation="op", request=asked, response="made")
    found = log.writer.earlier_outcome("op", "k", asked, actor="user:ada")
    assert found is not None
    assert (found.records, found.replayed, found.response) == (first.records, True, "made")
    assert log.writer.earlier_outcome("other", "k", asked, actor="user:ada") is None
    assert log.writer.earlier_outcome("op", "k", asked, actor="user:bob") is None
    with pytest.raises(KeyReuse):
        log.writer.earlier_outcome("op", "k", {"path": "/b"}, actor="user:ada")


@pytest.mark.parametrize(
    "change", [{"actor": "user:bob"}, {"scope": "acme"}, {"operation": "other"}, {"key": "k2"}], ids=str
)
def test_the_key_of_another_actor_scope_or_operation_is_another_key(log: Log, change: dict[str, Any]) -> None:
    log.writer.commit([say(1)], key="k", operation="op")
    named = {"key": "k", "operation": "op", **{k: v for k, v in change.items() if k in ("key", "operation")}}
    fields = {k: v for k, v in change.items() if k in ("actor", "scope")}
    receipt = log.writer.commit([say(2, **fields)], **named)
    assert not receipt.replayed
    assert log.head() == 2


def test_parts_of_a_key_cannot_imitate_each_other(log: Log) -> None:
    for number, (operation, key) in enumerate([("a", "b/c"), ("a/b", "c"), ("a", 'b","c'), ('a","b', "c")], 1):
        log.writer.commit([say(number)], key=key, operation=operation)
        assert log.head() == number


def test_the_response_is_stored_and_returned(log: Log) -> None:
    response = {"status": 201, "body": {"é": [1, None, True]}}
    assert log.writer.commit([say()], key="k", response=response).response == response
    assert log.writer.commit([say()], key="k", response={"status": 500}).response == response


@pytest.mark.parametrize("response", [float("nan"), {"a": "\ud800"}, {"a": 2**60}, object(), b"x"])
def test_a_response_that_could_not_be_given_again_is_refused_at_once(log: Log, response: Any) -> None:
    with pytest.raises(NotCanonical):
        log.writer.commit([say()], key="k", response=response)
    assert log.head() == 0
    assert not log.writer.commit([say()], key="k").replayed


@pytest.mark.parametrize("key", ["a\nb", "x" * 257, "\x00", "\ud800"])
def test_a_key_is_short_printable_text(log: Log, key: str) -> None:
    with pytest.raises(InvalidField):
        log.writer.commit([say()], key=key)
    with pytest.raises(InvalidField):
        log.writer.commit([say()], key="k", operation=key)


def test_a_key_is_kept_a_day_and_then_free(log: Log, clock: Any) -> None:
    log.writer.commit([say()], key="k")
    clock.us += 24 * HOUR_US - 1
    assert log.writer.commit([say()], key="k").replayed
    clock.us += 1
    assert not log.writer.commit([say("other")], key="k").replayed
    assert log.writer.commit([say("other")], key="k").replayed
    assert log.head() == 2


def test_a_key_is_kept_longer_by_setting_and_never_shorter(make_log: Callable[..., Log], clock: Any) -> None:
    for kept, hours in ((48 * HOUR_US, 48), (HOUR_US, 24)):
        log = make_log(now_us=clock, keys_kept_us=kept)
        log.writer.commit([say()], key="k")
        clock.us += hours * HOUR_US - 1
        assert log.writer.commit([say()], key="k").replayed
        clock.us += 1
        assert not log.writer.commit([say()], key="k").replayed


def test_a_refused_request_claims_nothing(log: Log) -> None:
    with pytest.raises(WrongSequence):
        log.writer.commit([say(expect=5)], key="k")
    receipt = log.writer.commit([say("another request")], key="k")
    assert not receipt.replayed


def test_a_failed_commit_claims_nothing(make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    """The key and the event are in one transaction: both or neither."""
    log = make_log("memory")

    def fail(staged: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(log._store, "_persist", fail)
        with pytest.raises(OSError, match="gone"):
            log.writer.commit([say()], key="k")
    assert log.head() == 0
    assert not log.writer.commit([say("another request")], key="k").replayed


def test_a_replay_of_what_was_purged_says_so_and_makes_nothing(log: Log) -> None:
    log.writer.commit([say()], key="k")
    log.purge("thing/1", reason="test")
    with pytest.raises(AlreadyPurged):
        log.writer.commit([say()], key="k")
    assert list(log.read()) == []


def test_sixteen_threads_with_one_key_make_one_event(kind: str, make_log: Callable[..., Log]) -> None:
    """F82."""
    with make_log(kind) as log:
        start = threading.Barrier(16)
        receipts = []

        def attempt() -> None:
            start.wait()
            receipts.extend([(number, log.writer.commit([say(number)], key=f"k{number}")) for number in range(10)])

        at_once(*[attempt] * 16)
        assert len(receipts) == 160
        assert log.head() == 10
        assert sum(not receipt.replayed for _, receipt in receipts) == 10
        for number in range(10):
            assert len({receipt.records[0].event.id for n, receipt in receipts if n == number}) == 1


def test_a_key_survives_reopening_and_holds_for_other_processes_too(
    make_log: Callable[..., Log], tmp_path: Any
) -> None:
    with make_log("sqlite", tmp_path / "log.db") as one, make_log("sqlite", tmp_path / "log.db") as other:
        first = one.writer.commit([say()], key="k", response="done")
        again = other.writer.commit([say()], key="k")
        assert (again.replayed, again.records, again.response) == (True, first.records, "done")
        with pytest.raises(KeyReuse):
            other.writer.commit([say(2)], key="k")


def test_what_is_kept_of_a_request_is_in_the_form_that_logs_on_disk_hold(log: Log) -> None:
    """A retry that meets another everlog than the first attempt must still be known as the same request."""
    log.writer.commit([say()], key="k", request={"b": 2.0, "a": 1})
    [text] = read_notes(log._store.small_state, "key/").values()
    digest = hashlib.sha256(b'{"a":1,"b":2}').digest()
    assert json.loads(text)[0] == base64.b64encode(digest[:16]).decode()


def test_what_is_left_of_a_claim_that_was_forgotten_is_not_an_answer(log: Log) -> None:
    """Such a request is decided again. Only one that changed nothing is remembered without a claim."""
    expires_us = 2**60
    with log._store.open_write() as write:
        for name, ids in ((b"changed", ["an id"]), (b"nothing", [])):
            remember_extra(write, name, {"a": 1}, ids, None, expires_us=expires_us)
    state = log._store.small_state
    assert not was_nothing(state, b"changed", "k", {"a": 1})
    assert not was_nothing(state, b"changed", "k", {"a": 2})
    assert not was_nothing(state, b"never asked", "k", {"a": 1})
    assert was_nothing(state, b"nothing", "k", {"a": 1})
    with pytest.raises(KeyReuse, match="used for another request"):
        was_nothing(state, b"nothing", "k", {"a": 2})
