"""What was decided on chains is not forgotten silently where the notes of a log are damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trust.signing import Author

from everlog.errors import Damaged
from everlog.log.admit.quarantine import held_rows
from everlog.log.log import Log
from everlog.stores.small_state import NOTES

KINDS = ["memory", "sqlite", "jsonl", "segments"]


@pytest.fixture(params=KINDS)
def node(request: pytest.FixtureRequest, make_log: Callable[..., Log], tmp_path: Path) -> Log:
    return make_log(request.param, tmp_path / "node")


def forked(log: Log) -> Author:
    """Let the log know of a chain that forked at number 2, of which 3 events are recorded."""
    author = Author(1, log.identity.log_id)
    first = author.write(1)
    twin = author.twin()
    log.admit_each([*first, *author.write(2)])
    log.admit_each(twin.write(1, actor="user:eve"))
    return author


def damage(log: Log, key: str) -> None:
    text = log.writer.small_state.rows(NOTES, (key,))[key]
    changed = text.replace(b'"', b"'", 1)
    assert changed != text
    log.writer.write(lambda write: write.put(NOTES, {key: changed}))


def codes(log: Log) -> list[str]:
    return [problem.code for problem in log.verify().problems]


def test_a_damaged_verdict_stops_who_asks_for_it_and_is_decided_again(node: Log) -> None:
    author = forked(node)
    before = node.verdicts()
    assert before.limits[author.origin].upto == 1
    damage(node, "standing")
    with pytest.raises(Damaged, match="standing"):
        node.verdicts()
    with pytest.raises(Damaged):
        node.counted(node.read())
    assert codes(node) == ["notes_damaged"]
    again = Log(node._store, node.catalog)  # it compares what counts with the history once
    again.admit_each([])
    assert node.verdicts() == before
    assert codes(node) == []


def test_a_damaged_proof_of_a_fork_is_not_taken_for_none(node: Log) -> None:
    author = forked(node)
    damage(node, f"fork/{author.origin}")
    with pytest.raises(Damaged, match="fork/"):
        node.forks()
    assert codes(node) == ["notes_damaged"]
    (outcome,) = node.admit_each(author.write(1))
    assert (outcome.kind, outcome.code) == ("refused", "db_corrupt")


@pytest.mark.parametrize("what", ["held/", "held-event/"])
def test_what_waited_and_cannot_be_read_is_reported_and_can_be_sent_again(
    node: Log, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    author = Author(1, node.identity.log_id)
    sent = author.write(3)
    assert [one.kind for one in node.admit_each(sent[1:])] == ["held"] * 2
    key = next(key for key, _ in node.writer.small_state.scan(NOTES, prefix=what))
    node.writer.write(lambda write: write.put(NOTES, {key: b"00000000 []"}))
    assert [one.kind for one in node.admit_each(sent[:1])] == ["recorded"]
    assert "can send it again" in caplog.text
    assert node.head() < 3
    waiting = {row.hash.hex() for _, rows in held_rows(node.writer.small_state) for row in rows}
    assert key.rpartition("/")[2] not in waiting
    node.admit_each(sent)
    assert [recorded.event for recorded in node.stored.read()] == sent
    assert node.verify().ok


def test_an_unreadable_line_of_notes_matters_where_a_verdict_may_be_in_it(
    make_log: Callable[..., Log], tmp_path: Path
) -> None:
    log = make_log("jsonl", tmp_path / "node")
    log.append("thing.said", stream="thing/1")
    damage_notes(log, tmp_path)
    assert not log.verdicts()  # nobody with a key has written here
    assert log.forks() == []
    log.admit_each(Author(1, log.identity.log_id).write(1))
    with pytest.raises(Damaged, match=r"notes\.jsonl"):
        log.verdicts()
    with pytest.raises(Damaged):
        log.forks()


def damage_notes(log: Log, tmp_path: Path) -> None:
    log.writer.write(lambda write: write.put(NOTES, {"mine": b"one"}))
    log.writer.write(lambda write: write.put(NOTES, {"mine": b"two"}))
    file = tmp_path / "node" / "local" / "notes.jsonl"
    file.write_bytes(file.read_bytes().replace(b"one", b"onf"))
