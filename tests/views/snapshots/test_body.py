"""The body of a snapshot: it has the digest and the rows of its build, and knows what a purge must reach."""

from __future__ import annotations

from tests.views.conftest import Said
from tests.views.said import say

from everlog.log.log import Log
from everlog.views.builds.build import Build, builds_of
from everlog.views.builds.open_build import OpenBuild
from everlog.views.snapshots.body import (
    body_digest,
    holds_any,
    letters_in,
    parked_in,
    rows_of,
    skipped_in,
    take,
)
from everlog.views.snapshots.patch import Body


def taken(log: Log) -> tuple[Build, Body]:
    log.view(Said).catch_up()
    small_state = log.views.small_state
    (build,) = builds_of(small_state, "said")
    found = take(small_state, OpenBuild(log, small_state, Said(), build, live=False))
    assert isinstance(found, tuple)
    return found


def test_a_body_has_the_digest_and_the_rows_of_its_build(log: Log) -> None:
    for number in range(4):
        say(log, number, stream=f"thing/{number % 2}")
    _, body = taken(log)
    assert body_digest(body) == log.view(Said).digest()
    assert rows_of(body)["thing/1"].state["values"] == [1, 3]
    assert set(rows_of(body, ["thing/0", "thing/9"])) == {"thing/0"}


def test_a_purge_must_reach_rows_and_letters_of_its_stream_only(log: Log) -> None:
    say(log, 1, stream="thing/1")
    say(log, "poison", stream="thing/2")
    _, body = taken(log)
    assert [letter.stream for letter in letters_in(body)] == ["thing/2"]
    assert set(parked_in(body)) == {"thing/2"}
    for stream, held in (("thing/1", True), ("thing/2", True), ("thing/3", False)):
        assert holds_any(body, [stream], by_stream=True) is held, stream


def test_a_skipped_event_is_known_in_the_body(log: Log) -> None:
    say(log, "poison")
    log.view(Said).catch_up()
    log.view(Said).skip(1, reason="a test")
    say(log, "poison", stream="thing/2")  # this one still waits
    _, body = taken(log)
    assert (skipped_in(body), set(parked_in(body))) == ({1}, {"thing/2"})
