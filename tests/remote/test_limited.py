"""A client whose token is limited to a scope: what is outside does not exist, and nothing waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.remote.serving import Served

import everlog
from everlog import By, Query, Recorded
from everlog.programs.agents import commands, questions


@pytest.fixture
def acme(behind: Served) -> Iterator[everlog.RemoteLog]:
    """A client that sees positions 2, 4 and 6; those after them are of others."""
    for number in range(1, 10):
        scope = "acme/shop" if number in (2, 4, 6) else "other"
        kind = "task" if number == 6 else "note"
        behind.log.append("note.added", stream=f"{kind}/{number}", payload={"text": "x"}, scope=scope)
    with everlog.connect(behind.url, token=behind.token("acme", role="append", within="acme")) as log:
        yield log


def positions(found: Iterator[object]) -> list[int]:
    return [one.position for one in found if isinstance(one, Recorded)]


def test_reads_end_although_the_log_goes_on(acme: everlog.RemoteLog) -> None:
    assert positions(acme.read()) == [2, 4, 6]
    assert positions(acme.read(Query(kind="note"))) == [2, 4]
    assert positions(acme.read(Query(kind="none"))) == []
    assert positions(acme.read(newest_first=True)) == [6, 4, 2]
    assert positions(acme.read(Query(scope="other"))) == []
    assert acme.head() == 6
    assert acme.get(1) is None


def test_subscriptions_end_and_follow(behind: Served, acme: everlog.RemoteLog) -> None:
    assert positions(acme.subscribe(to_end=True)) == [2, 4, 6]
    assert positions(acme.subscribe(query=Query(kind="note"), to_end=True)) == [2, 4]
    following = acme.subscribe(4)
    assert next(following).position == 6  # type: ignore[union-attr]
    writer = threading.Timer(0.1, lambda: acme.append("note.added", stream="note/mine", payload={"text": "x"}))
    writer.start()
    behind.log.append("note.added", stream="note/theirs", payload={"text": "x"}, scope="other")
    found = next(following)
    writer.join()
    assert isinstance(found, Recorded)
    assert (found.event.stream, found.event.scope) == ("note/mine", "acme")
    following.close()  # type: ignore[attr-defined]


def test_what_others_have_does_not_exist(acme: everlog.RemoteLog) -> None:
    with pytest.raises(everlog.errors.NoSuchSubject):
        acme.append("note.added", stream="note/1", payload={"text": "x"})
    assert [key for key, _ in acme.view("streams").items()] == ["note/2", "note/4", "task/6"]
    assert not acme.view("streams").get("note/1").found
    everlog.perform(acme, commands.Propose(id="c1", agent_id="b", tool_name="t"))
    assert [one["id"] for one in everlog.ask(acme, questions.List())] == ["c1"]
    with pytest.raises(everlog.errors.Forbidden):
        acme.purge("note/2", reason="test")


def test_a_caller_does_not_choose_what_it_sees(acme: everlog.RemoteLog) -> None:
    with pytest.raises(everlog.errors.InvalidField, match="within"):
        everlog.ask(acme, questions.List(), within="other")
    with pytest.raises(everlog.errors.InvalidField, match="within"):
        everlog.perform(acme, commands.Approve(id="c1"), By(within="other"))
    with pytest.raises(everlog.errors.InvalidField, match="user:eve"):
        everlog.perform(acme, commands.Approve(id="c1"), By(actor="user:eve"))
