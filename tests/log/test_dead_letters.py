"""Dead letters of consumers are on record: kept, found by group and partition, and removed with their stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from everlog.log.dead_letters import (
    FAILED,
    KEPT_US,
    SKIPPED,
    WITHHELD,
    DeadLetter,
    GroupLetter,
    blank_letters,
    explanation,
    forget_letters,
    keep_letter,
    letter_of,
    read_letters,
    remove_letter,
)
from everlog.log.log import Log
from everlog.views.dead_letters import ViewLetter

HOUR_US = 60 * 60 * 1_000_000


def _letter(log: Log, stream: str, *, partition: int = 1, group: str = "mailers", what: str = FAILED) -> GroupLetter:
    recorded = log.append("thing.said", stream=stream, payload={"value": 1})
    return letter_of(
        recorded, what, group=group, partition=partition, key=stream, holds=True, reason="boom", attempts=3
    )


def test_a_reason_is_kept_up_to_its_bound_and_always_as_text(log: Log) -> None:
    recorded = log.append("thing.said", stream="thing/1", payload={"value": 1})

    def kept(reason: str) -> str:
        return letter_of(
            recorded, FAILED, group="g", partition=1, key="", holds=True, reason=reason, attempts=1
        ).reason

    assert kept("x" * 2_500) == "x" * 2_000
    assert kept("half of a pair: \ud800") == "half of a pair: \\ud800"


def test_the_reasons_of_some_streams_are_taken_out_and_their_letters_stay(log: Log) -> None:
    blank, other = _letter(log, "thing/1"), _letter(log, "thing/2")
    silent = replace(_letter(log, "thing/1"), reason="")
    with log._store.open_write() as writer:
        for letter in (blank, other, silent):
            keep_letter(writer, letter)
    with log._store.open_write() as writer:
        blank_letters(writer, {"thing/1"})
    kept = read_letters(log.writer.small_state, "mailers")
    assert [letter.reason for letter in kept] == [WITHHELD, "boom", ""]
    assert [letter.position for letter in kept] == [blank.position, other.position, silent.position]


@pytest.fixture
def log(make_log: Callable[..., Log]) -> Log:
    return make_log("sqlite")


def test_a_letter_is_on_record_until_it_is_removed(log: Log) -> None:
    first, second = _letter(log, "thing/1"), _letter(log, "thing/2", partition=2)
    other = _letter(log, "thing/1", group="others")
    with log._store.open_write() as writer:
        for letter in (second, first, other):
            keep_letter(writer, letter)
    kept = read_letters(log.writer.small_state, "mailers")
    assert [replace(letter, at_us=0) for letter in kept] == [first, second]
    assert all(letter.at_us and letter.not_before_us == 0 for letter in kept)  # nothing is waited for
    assert [letter.position for letter in read_letters(log.writer.small_state, "mailers", 2)] == [second.position]
    with log._store.open_write() as writer:
        remove_letter(writer, first)
    assert [letter.position for letter in read_letters(log.writer.small_state, "mailers")] == [second.position]


def test_a_purge_takes_the_letters_of_its_stream_and_no_others(log: Log) -> None:
    gone, stays = _letter(log, "thing/1"), _letter(log, "thing/2")
    with log._store.open_write() as writer:
        keep_letter(writer, gone)
        keep_letter(writer, stays)
    with log._store.open_write() as writer:
        forget_letters(writer, "thing/1")
    assert [letter.stream for letter in read_letters(log.writer.small_state, "mailers")] == ["thing/2"]


def test_what_was_decided_goes_in_time_and_what_waits_stays(make_log: Callable[..., Log]) -> None:
    now = [1_800_000_000_000_000]
    log = make_log("sqlite", now_us=lambda: now[0])
    waits, decided = _letter(log, "thing/1"), _letter(log, "thing/2", what=SKIPPED)
    with log._store.open_write() as writer:
        keep_letter(writer, waits)
        keep_letter(writer, decided)
    now[0] += KEPT_US - HOUR_US
    assert len(read_letters(log.writer.small_state, "mailers")) == 2
    now[0] += 2 * HOUR_US
    log.append("thing.said", stream="thing/3", payload={"value": 1})
    assert [letter.stream for letter in read_letters(log.writer.small_state, "mailers")] == ["thing/1"]


def test_a_view_and_a_group_have_one_form_of_dead_letter(log: Log) -> None:
    """Their stored names are older, and stay."""
    of_group = _letter(log, "thing/1")
    of_view = ViewLetter(of_group.position, of_group.id, of_group.type, of_group.stream, SKIPPED, "thing/1", "broken")
    decided = replace(of_view, decided_by="user:ada", decided_because="a test event")
    letters: list[DeadLetter] = [of_group, of_view, decided]
    assert [explanation(letter) for letter in letters] == [of_group.reason, "broken", "a test event"]
    assert {"skipped_by", "skipped_because"} <= msgspec.to_builtins(decided).keys()
