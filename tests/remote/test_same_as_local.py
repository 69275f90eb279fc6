"""What a log does, it does behind a server, too: every test runs on a log in memory, in a file, and on a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
import pytest
from tests.remote.serving import AnyLog, Filed

import everlog
from everlog import By, Cursor, Draft, EverlogError, Expect, NoMatch, Query, Recorded, Reset, errors
from everlog.programs.agents import commands, questions


def note(log: AnyLog, number: int = 1, **given: Any) -> Recorded:
    return log.append("note.added", stream=f"note/{number}", payload={"text": "hello"}, **given)


def raised(make: Callable[[], Any]) -> EverlogError:
    with pytest.raises(EverlogError) as caught:
        make()
    return caught.value


# ---- appending and reading


def test_an_appended_event_is_read_as_it_was_returned(log: AnyLog) -> None:
    made = note(log, scope="acme/shop", tags={"colour": "blue"}, correlation_id="c", request_id="r")
    assert (made.position, made.sequence, made.event.actor) == (1, 1, "user:ada")
    assert made.event.tags == {"colour": "blue"}
    assert list(log.read()) == [made]
    assert log.get(made.event.id) == log.get(1) == made
    assert log.head() == 1


def test_what_is_not_there_is_none(log: AnyLog) -> None:
    assert log.get(0) is None
    assert log.get(7) is None
    assert log.get("01M7QD359TED69PS61SQQ82HBX") is None
    assert raised(lambda: log.get("nonsense")).code == "invalid_field"


def test_a_batch_is_recorded_whole_or_not_at_all(log: AnyLog) -> None:
    good, bad = Draft("note.added", "note/1", {"text": "a"}), Draft("no.such", "note/1", {})
    assert raised(lambda: log.append_batch([good, bad])).code == "unknown_type"
    assert log.head() == 0
    assert [one.position for one in log.append_batch([good, good])] == [1, 2]


def test_a_dry_run_records_nothing(log: AnyLog) -> None:
    assert note(log, dry_run=True).event.payload["text"] == "hello"
    assert log.head() == 0


def test_typed_payloads(log: AnyLog) -> None:
    log.append(Filed(amount=12.5, note="bus"), stream="expense/1")
    note(log)
    log.append(Filed(amount=3), stream="expense/2")
    assert [one.payload for one in log.read(Filed)] == [Filed(amount=12.5, note="bus"), Filed(amount=3)]
    assert [one.payload.amount for one in log.read(Filed, stream="expense/2")] == [3]
    assert raised(lambda: log.append("expense.filed", stream="expense/3", payload={"amount": "x"})).code == (
        "invalid_payload"
    )


def test_ranges_filters_and_the_newest_first(log: AnyLog) -> None:
    for number in range(1, 8):
        note(log, number % 2)

    def positions(**given: Any) -> list[int]:
        return [one.position for one in log.read(**given)]

    assert positions(after=2, upto=5) == [3, 4, 5]
    assert positions(limit=2) == [1, 2]
    assert positions(newest_first=True) == [7, 6, 5, 4, 3, 2, 1]
    assert positions(newest_first=True, limit=2) == [7, 6]
    assert positions(newest_first=True, upto=4, limit=3) == [4, 3, 2]
    assert positions(newest_first=True, after=5) == [7, 6]
    assert positions(stream="note/0") == [2, 4, 6]
    assert positions(query=Query(stream="note/0"), newest_first=True, upto=5) == [4, 2]
    assert positions(query=Query(types=frozenset(["note.added", "issue.created"]), actor="user:ada"), limit=3) == (
        [1, 2, 3]
    )
    assert positions(query=Query(since=datetime(2200, 1, 1, tzinfo=UTC))) == []


def test_a_read_that_would_read_nothing_by_mistake_is_refused(log: AnyLog) -> None:
    assert raised(lambda: log.read("note.added")).code == "invalid_field"  # type: ignore[call-overload]
    assert raised(lambda: log.read(after=-1)).code == "invalid_field"
    assert raised(lambda: log.page_after(0, limit=0)).code == "invalid_field"


def test_pages_go_through_the_log(log: AnyLog) -> None:
    for number in range(1, 6):
        note(log, number)
    first = log.page_after(0, limit=2)
    assert ([one.position for one in first.events], first.at_head, first.head) == ([1, 2], False, 5)
    second = log.page_after(str(first.next_cursor), limit=10)
    assert ([one.position for one in second.events], second.at_head) == ([3, 4, 5], True)
    assert log.page_after(second.next_cursor).events == ()


# ---- conditions, keys and errors


def test_expectations(log: AnyLog) -> None:
    note(log, expect=Expect.NONE)
    note(log, expect=1)
    note(log, expect=Expect.EXISTS)
    query = Query(types=frozenset(["note.added"]), stream="note/1")
    note(log, expect=NoMatch(query, after=log.head()))
    for expect in (
        Expect.NONE,
        9,
        -1,
        NoMatch(query, after=everlog.Position(1)),
        NoMatch(query, after=everlog.Position(99)),
    ):
        raised(lambda expect=expect: note(log, expect=expect))  # type: ignore[misc]
    assert raised(lambda: note(log, 2, expect=Expect.EXISTS)).code == "wrong_sequence"
    assert log.head() == 4


def test_a_key_makes_a_retry_safe(log: AnyLog) -> None:
    first = note(log, key="k")
    assert note(log, key="k") == first
    assert raised(lambda: note(log, 2, key="k")).code == "idempotency_key_reuse"
    batch = [Draft("note.added", "note/2", {"text": "a"}), Draft("note.added", "note/3", {"text": "b"})]
    assert list(log.append_batch(batch, key="b")) == list(log.append_batch(batch, key="b"))
    assert log.head() == 3


MISTAKES: dict[str, Callable[[AnyLog], Any]] = {
    "wrong sequence": lambda log: note(log, expect=7),
    "query matched": lambda log: note(log, expect=NoMatch(Query(stream="note/1"))),
    "unknown type": lambda log: log.append("note.addd", stream="note/1", payload={}),
    "invalid payload": lambda log: log.append("note.added", stream="note/1", payload={"text": 7}),
    "not a stream": lambda log: log.append("note.added", stream="no stream", payload={"text": "x"}),
    "not canonical": lambda log: log.append(
        "note.added", stream="note/1", payload={"text": "x", "more": float("nan")}
    ),
    "too large a number": lambda log: log.append("note.added", stream="note/1", payload={"text": 2**60}),
    "secret": lambda log: log.append("note.added", stream="note/1", payload={"text": "AKIAIOSFODNN7EXAMPLE"}),
    "no time zone": lambda log: note(log, occurred_at=datetime(2026, 1, 1)),
    "too large": lambda log: log.append("note.added", stream="note/1", payload={"text": "x" * 1_100_000}),
    "rule": lambda log: everlog.perform(log, commands.Approve(id="none")),
    "subject": lambda log: everlog.ask(log, questions.Show(id="none")),
    "bad cursor": lambda log: log.page_after("x"),
    "another key": lambda log: [note(log, 5, key="k"), note(log, 6, key="k")],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_refusal_is_the_same_error_with_code_hint_and_details(
    mistake: str, remote: everlog.RemoteLog, tmp_path: Any
) -> None:
    with everlog.open(f"sqlite:{tmp_path}/here.db", actor="user:ada") as here:
        note(here)
        note(remote)
        ours, theirs = raised(lambda: MISTAKES[mistake](here)), raised(lambda: MISTAKES[mistake](remote))
    assert type(theirs) is type(ours)
    assert (theirs.code, theirs.what, theirs.why, theirs.hint) == (ours.code, ours.what, ours.why, ours.hint)
    changing = ("id", "refused_last")  # of the events that the two logs made, and of the clock
    details = [
        {name: value for name, value in msgspec.to_builtins(one.details).items() if name not in changing}
        for one in (ours, theirs)
    ]
    assert details[0] == msgspec.json.decode(msgspec.json.encode(details[1]))
    assert (theirs.retryable, theirs.exit_code) == (ours.retryable, ours.exit_code)


# ---- commands and questions


def test_a_command_and_a_question_of_a_program(log: AnyLog) -> None:
    propose = commands.Propose(id="c1", agent_id="builder", tool_name="pytest", tool_input={"path": "tests"})
    outcome = everlog.perform(log, propose, By(key="k", correlation_id="session"))
    assert outcome.result == commands.CommandResult(id="c1", status="pending")
    assert (outcome.status, outcome.replayed) == ("recorded", False)
    assert [one.event.type for one in outcome.records] == ["agent.command.proposed"]
    assert outcome.records[0] == log.get(1)
    assert outcome.records[0].event.correlation_id == "session"
    rows = everlog.ask(log, questions.List(status=["pending", "failed"]))
    assert [(one["id"], one["tool_input"]) for one in rows] == [("c1", {"path": "tests"})]
    assert [one["id"] for one in everlog.ask(log, questions.List(pending=True))] == ["c1"]


def test_a_command_with_a_key_is_carried_out_once(log: AnyLog) -> None:
    propose = commands.Propose(id="c1", agent_id="builder", tool_name="pytest")
    first = everlog.perform(log, propose, By(key="k"))
    again = everlog.perform(log, propose, By(key="k"))
    assert (again.result, again.records, again.replayed) == (first.result, first.records, True)
    other = commands.Propose(id="c2", agent_id="builder", tool_name="pytest")
    assert raised(lambda: everlog.perform(log, other, By(key="k"))).code == "idempotency_key_reuse"
    assert log.head() == 1


def test_a_command_that_only_tries(log: AnyLog) -> None:
    propose = commands.Propose(id="c1", agent_id="builder", tool_name="pytest")
    assert everlog.perform(log, propose, By(dry_run=True)).status == "dry_run"
    assert log.head() == 0


# ---- following


def test_a_subscription_to_the_end_gives_everything_once(log: AnyLog) -> None:
    log.append_batch([Draft("note.added", f"note/{number}", {"text": "x"}) for number in range(1, 1201)])
    found = [one.position for one in log.subscribe(to_end=True) if isinstance(one, Recorded)]
    assert found == list(range(1, log.head() + 1))


def test_a_subscription_gives_what_is_there_and_then_what_is_new(log: AnyLog) -> None:
    note(log)
    following = log.subscribe()
    first = next(following)
    writer = threading.Timer(0.2, lambda: note(log, 2))
    writer.start()
    second = next(following)
    writer.join()
    assert [one.position for one in (first, second) if isinstance(one, Recorded)] == [1, 2]
    following.close()  # type: ignore[attr-defined]


def test_a_subscription_ends_when_it_is_asked_to(log: AnyLog) -> None:
    note(log)
    stopping = threading.Event()
    timer = threading.Timer(0.3, stopping.set)
    timer.start()
    assert [one.position for one in log.subscribe(stop=stopping.is_set) if isinstance(one, Recorded)] == [1]
    timer.join()


def test_closing_the_log_ends_a_subscription(log: AnyLog) -> None:
    note(log)
    following = log.subscribe()
    next(following)
    closer = threading.Timer(0.2, log.close)
    closer.start()
    assert list(following) == []
    closer.join()
    assert raised(lambda: list(log.subscribe())).code == "log_closed"
    assert raised(lambda: note(log)).code == "log_closed"


def test_a_purge_resets_a_subscription_once(log: AnyLog) -> None:
    note(log, 1)
    note(log, 2)
    cursor = log.page_after(0).next_cursor
    following = log.subscribe(cursor)
    purger = threading.Timer(0.2, lambda: log.purge("note/1", reason="test"))
    purger.start()
    reset = next(following)
    purger.join()
    assert isinstance(reset, Reset)
    assert (reset.reason, reset.cursor.position) == ("purged", 3)
    note(log, 3)
    assert [one.position for one in islice(following, 1) if isinstance(one, Recorded)] == [4]
    following.close()  # type: ignore[attr-defined]
    page = log.page_after(cursor)
    assert page.reset == reset
    assert [one.position for one in log.read()] == [2, 4]


def test_a_cursor_of_another_log_is_reset_to_the_start(log: AnyLog) -> None:
    note(log)
    page = log.page_after(Cursor.of("1@01M7QD359TED69PS61SQQ82HBX"))
    assert page.reset is not None
    assert (page.reset.reason, page.reset.cursor.position, page.events) == ("restored", 0, ())


# ---- views and the rest


def test_views(log: AnyLog) -> None:
    note(log, 1)
    last = note(log, 2)
    view = log.view("streams")
    answer = view.get("note/2")
    assert (answer.found, answer.position, answer.lag, answer.view, answer.key) == (True, 2, 0, "streams", "note/2")
    assert not view.get("note/9").found
    assert view.get("note/2", as_of=1).state is None
    assert [key for key, _ in view.items()] == ["note/1", "note/2"]
    assert [key for key, _ in view.items(after="note/1", limit=5)] == ["note/2"]
    assert log.wait_for("streams", last) >= 2
    assert raised(lambda: log.wait_for("streams", 99, timeout_s=0.1)).code == "view_behind"
    assert raised(lambda: log.view("no.such").get("x")).code == "not_found"


def test_a_purge_is_recorded(log: AnyLog) -> None:
    note(log, scope="acme")
    purge = log.purge("note/1", reason="erasure request 17")
    assert (purge.stream, purge.count, purge.reserved, purge.scopes) == ("note/1", 1, 2, ("acme",))
    assert (purge.actor, purge.reason, purge.sequence) == ("user:ada", "erasure request 17", 1)
    assert log.get(1) is None
    assert isinstance(raised(lambda: log.purge("note/1", reason="again")), errors.NotFound)


def test_refusals_are_recorded(log: AnyLog) -> None:
    raised(lambda: note(log, expect=7))
    raised(lambda: log.append("no.such", stream="note/1", payload={}))
    found = log.refusals()
    assert [(one.code, one.stream, one.actor) for one in found] == [
        ("unknown_type", "note/1", "user:ada"),
        ("wrong_sequence", "note/1", "user:ada"),
    ]
    assert [one.code for one in log.refusals(code="wrong_sequence")] == ["wrong_sequence"]


def test_verification(log: AnyLog) -> None:
    note(log)
    report = log.verify()
    assert (report.ok, report.events, report.head, report.problems) == (True, 1, 1, ())


def test_the_identity_of_the_log(log: AnyLog) -> None:
    made = note(log)
    identity = log.identity
    assert identity.origin == made.event.origin
    assert log.page_after(0).next_cursor.epoch == identity.epoch
    assert identity.log_id
