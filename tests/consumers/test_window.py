"""Events that fail: they hold their key and nobody else, wait longer each time, and become dead letters."""

from __future__ import annotations

import pytest
from tests.consumers.world import World, fill

from everlog.consumers import Group
from everlog.consumers.group_state import read_progress
from everlog.core.query import Cursor, Query, proof_of
from everlog.errors import NotFound
from everlog.log.log import Log
from everlog.stores.small_state import read_notes


def test_a_poison_event_holds_its_key_and_nobody_else() -> None:
    world = World(partitions=1, prefetch=2)
    world.append(1, poison=True)
    for key in (2, 1, 3, 1, 2, 2, 2):
        world.append(key)
    world.join("a", 1)
    for _ in range(40):
        world.take("a")
        world.settle_one("a", 0)
        world.pass_time(0.5)
    assert world.acked == {2, 4, 6, 7, 8}
    letters = [(letter.position, letter.what) for letter in world.group.dead_letters()]
    assert letters == [(1, "failed"), (3, "waiting"), (5, "waiting")]
    assert world.group.lag()[0].dead_letters == 3
    world.poison.clear()
    world.group.retry(1, by="user:ada", reason="mended")
    world.pass_time(1)
    for _ in range(6):
        world.take("a")
        world.settle_one("a", 0)
    assert world.acked == set(range(1, 9))
    assert world.group.dead_letters() == []
    decided = world.group.dead_letters(decided=True)
    assert [(letter.what, letter.decided_by) for letter in decided] == [
        ("done", "user:ada"),
        ("done", ""),
        ("done", ""),
    ]


def test_a_skipped_event_stays_on_record_and_its_key_goes_on() -> None:
    world = World(partitions=1)
    world.append(1, poison=True)
    world.append(1)
    world.join("a", 1)
    for _ in range(10):
        world.take("a")
        world.settle_one("a", 0)
        world.pass_time(1)
    world.group.skip(1, by="user:ada", reason="nobody needs it")
    world.given_up.add(1)
    world.pass_time(1)
    world.take("a")
    world.settle_one("a", 0)
    assert world.acked == {2}
    (skipped, done) = world.group.dead_letters(decided=True)
    assert (skipped.what, skipped.decided_by, skipped.decided_because) == ("skipped", "user:ada", "nobody needs it")
    assert done.what == "done"
    with pytest.raises(NotFound, match="no dead letter at position 1"):
        world.group.skip(1, reason="twice")


def test_attempts_wait_longer_each_time() -> None:
    world = World(partitions=1)
    world.group = Group(world.log, "mailer", Query(kind="note"), partitions=1, attempts_max=4, retry_s=1.0)
    world.append(1, poison=True)
    world.join("a", 1)
    tried: list[float] = []
    begun = world.us
    for _ in range(40):
        world.take("a")
        if world.out["a"]:
            tried.append((world.us - begun) / 1e6)
            world.settle_one("a", 0)
        world.pass_time(0.5)
    assert tried == [0.0, 1.0, 3.0, 7.0]


def test_who_asks_for_the_next_without_a_word_about_the_last_has_failed_it(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, attempts_max=2, retry_s=0.0)
    with group.member("a") as member:
        for _ in member.deliveries(to_end=True):
            pass
    (letter,) = group.dead_letters()
    assert (letter.reason, letter.attempts) == ("it was neither acknowledged nor refused", 2)


def test_an_exception_that_ends_the_consumer_counts_as_an_attempt(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, attempts_max=2, retry_s=0.0)
    for _ in range(2):
        with pytest.raises(ValueError), group.member("a") as member:
            for _delivery in member:
                raise ValueError("broken")
    (letter,) = group.dead_letters()
    assert (letter.reason, letter.attempts) == ("ValueError: broken", 2)


def test_a_purge_takes_the_dead_letters_of_its_stream_along() -> None:
    world = World(partitions=1)
    world.append(1, poison=True)
    world.join("a", 1)
    for _ in range(6):
        world.take("a")
        world.settle_one("a", 0)
        world.pass_time(1)
    assert len(world.group.dead_letters()) == 1
    world.purge(1)
    assert world.group.dead_letters(decided=True) == []
    assert "poison" not in str(dict(read_notes(world.log._store.small_state, "")))


def test_the_stored_progress_has_the_proof_of_its_position() -> None:
    """Without it, a log that was restored by hand and has grown since would be read on as if it were the same."""
    world = World(partitions=1)

    def stored() -> Cursor:
        progress = read_progress(world.log.writer.small_state, "mailer", 0)
        assert progress is not None
        return Cursor.of(progress.cursor)

    world.append(1)
    world.append(2)
    world.join("a", 1)
    for position in (1, 2):  # the proof of an event that was handled
        world.take("a")
        world.settle_one("a", 0)
        world.take("a")
        assert (stored().position, stored().proof) == (position, proof_of(world.events[position].event.id))
    world.append_other()
    other = list(world.log.read())[-1]
    world.take("a")
    world.leave("a")  # the proof of an event that matches nothing
    assert (stored().position, stored().proof) == (3, proof_of(other.event.id))
    world.join("b", 1)
    world.append(1, poison=True)
    world.take("b")
    world.settle_one("b", 0)
    world.leave("b")  # a failure is stored, and the position stays
    progress = read_progress(world.log.writer.small_state, "mailer", 0)
    assert progress is not None
    assert list(progress.attempts) == [4]
    assert (stored().position, stored().proof) == (3, proof_of(other.event.id))
