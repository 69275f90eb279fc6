"""Operations of the log over HTTP: consumers with their lease, views that are waited for, jobs, and replays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.server.calling import Calls

import everlog
from everlog.application.operations import memberships
from everlog.server.app import App
from everlog.server.jobs import Jobs
from everlog.server.serve import make_app

NOTE = {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}
MEMBER = "/v1/groups/mailer/members/one"


@pytest.fixture
def notes(calls: Calls) -> Calls:
    for text in ("one", "two"):
        calls.post("/v1/events", {**NOTE, "payload": {"text": text}})
    return calls


# ---- consumers


def taken(calls: Calls, member: str = MEMBER, **fields: Any) -> list[dict[str, Any]]:
    answer = calls.post(f"{member}/take", fields)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["deliveries"]
    return found


def settled(calls: Calls, how: str, delivery: dict[str, Any], member: str = MEMBER, **fields: Any) -> int:
    body = {"position": delivery["position"], "token": delivery["token"], **fields}
    return calls.post(f"{member}/{how}", body).status_code


def test_a_consumer_takes_events_in_the_order_of_their_key_and_each_once(notes: Calls) -> None:
    assert notes.post(f"{MEMBER}/join", {}).json()["partitions"] == list(range(16))
    (first,) = taken(notes)  # of one key, the second waits for the first
    assert (first["position"], first["event"]["payload"]["text"]) == (1, "one")
    assert taken(notes) == []
    assert settled(notes, "ack", first) == 200
    assert settled(notes, "ack", first) == 409
    (second,) = taken(notes)
    assert second["position"] == 2
    assert settled(notes, "nack", second, reason="later", retry_in_s=0) == 200
    (again,) = taken(notes, wait=5)
    assert (again["position"], again["attempt"]) == (2, 2)


def test_an_answer_that_was_lost_is_taken_again(notes: Calls) -> None:
    notes.post(f"{MEMBER}/join", {})
    lost = taken(notes)
    assert taken(notes) == []
    assert taken(notes, again=True) == lost


def test_a_consumer_that_sends_nothing_loses_its_lease_and_another_gets_the_event(
    notes: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.post(f"{MEMBER}/join", {"lease_s": 1})
    (first,) = taken(notes)
    other = "/v1/groups/mailer/members/two"
    notes.post(f"{other}/join", {"lease_s": 30})
    assert taken(notes, other) == []
    time.sleep(1.2)
    deadline = time.monotonic() + 10
    while not (found := taken(notes, other, wait=1)) and time.monotonic() < deadline:
        pass
    assert [one["position"] for one in found] == [1]
    assert settled(notes, "ack", first) == 409
    assert found[0]["token"] > first["token"]


def test_a_server_that_was_restarted_has_no_members(tmp_path: object) -> None:
    for again in (False, True):
        with everlog.open(f"sqlite:{tmp_path}/log.db", actor="user:host") as log:
            app = make_app({"log": log})
            calls = Calls.of(app, f"admin-{again}", role="admin")
            if again:
                answer = calls.post(f"{MEMBER}/take", {})
                assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
                calls.post(f"{MEMBER}/join", {})
                assert [one["position"] for one in taken(calls)] == [1]
            else:
                calls.post("/v1/events", NOTE)
                calls.post(f"{MEMBER}/join", {})
                assert len(taken(calls)) == 1
            app.close()


def test_members_of_one_process_are_bounded(notes: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberships, "MEMBERS_MAX", 1)
    assert notes.post(f"{MEMBER}/join", {}).status_code == 200
    assert notes.post(f"{MEMBER}/join", {}).status_code == 200, "the same name again"
    refused = notes.post("/v1/groups/mailer/members/two/join", {})
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    notes.post(f"{MEMBER}/leave", {})
    assert notes.post("/v1/groups/mailer/members/two/join", {}).status_code == 200


# ---- views


def test_a_view_is_waited_for_and_says_how_stale_it_is(notes: Calls) -> None:
    fresh = notes.get("/v1/views/streams/note/1?at_least=2").json()
    assert (fresh["state"]["events"], fresh["position"], fresh["lag"], fresh["stale"]) == (2, 2, 0, False)
    stale = notes.get("/v1/views/streams/note/1?at_least=99&timeout=0.05").json()
    assert (stale["position"], stale["stale"]) == (2, True)


def test_rows_are_paged_by_key_and_as_of_a_moment(notes: Calls) -> None:
    for number in (2, 3):
        notes.post("/v1/events", {**NOTE, "stream": f"note/{number}"})
    first = notes.get("/v1/views/streams?limit=2").json()
    assert ([one["key"] for one in first["rows"]], first["next"]) == (["note/1", "note/2"], "note/2")
    rest = notes.get(f"/v1/views/streams?limit=2&after={first['next']}").json()
    assert ([one["key"] for one in rest["rows"]], rest["next"]) == (["note/3"], "")
    then = notes.get("/v1/views/streams?as_of=position:2").json()
    assert ([one["key"] for one in then["rows"]], then["lag"]) == (["note/1"], 2)


def test_a_caller_with_a_limit_gets_states_of_its_own_events_only(app: App, notes: Calls) -> None:
    acme = Calls.of(app, "acme", within="acme")
    acme.post("/v1/events", {**NOTE, "stream": "note/7", "payload": {"text": "mine"}})
    notes.post("/v1/events", {**NOTE, "stream": "note/7", "payload": {"text": "of the operator"}})
    assert acme.get("/v1/streams/note/7/state").json()["state"]["text"] == "mine"
    assert acme.get("/v1/streams/note/7/why?path=text").json()["events"][0]["now"] == "mine"
    assert len(acme.get("/v1/streams/note/7/history").json()) == 1
    assert acme.get("/v1/views/streams").json()["rows"][0]["state"]["events"] == 1
    assert acme.get("/v1/streams/note/7/state").json()["at"]["position"] == 3, "its own head"
    foreign, missing = acme.get("/v1/streams/note/1/state"), acme.get("/v1/streams/note/9/state")
    assert foreign.status_code == missing.status_code == 404
    hidden = foreign.json() | {"request_id": ""}
    assert hidden == {
        name: value.replace("note/9", "note/1") if isinstance(value, str) else value
        for name, value in (missing.json() | {"request_id": "", "details": {"key": "note/1"}}).items()
    }
    assert acme.get("/v1/streams/note/7/state?as_of=position:4").status_code == 400, "beyond its own head"
    for path in ("/v1/views", "/v1/groups", "/v1/doctor", "/v1/jobs"):
        assert acme.get(path).json()["code"] == "forbidden"


def test_a_program_declares_the_view_that_shows_its_streams(calls: Calls) -> None:
    calls.post("/v1/do/workpackages.create", {"id": "WP03", "title": "Index"})
    calls.post("/v1/do/workpackages.move", {"id": "WP03", "to": "doing"})
    stream = "/v1/streams/workpackage/WP03"
    found = calls.get(f"{stream}/state").json()
    assert (found["view"], found["state"]["lane"]) == ("workpackages.board", "doing")
    assert calls.get(f"{stream}/state?as_of=v1").json()["state"]["lane"] == "planned"
    changes = calls.get(f"{stream}/diff?since=v1").json()["changes"]
    assert {"path": "$.lane", "was": "planned", "now": "doing"} in changes
    why = calls.get(f"{stream}/why?path=lane").json()
    assert [one["event"]["sequence"] for one in why["events"]] == [2, 1]
    assert calls.get(f"{stream}/state?view=fields").json()["view"] == "fields"


# ---- purges, keys, jobs


def test_a_purge_needs_its_exact_words(notes: Calls) -> None:
    asked = notes.post("/v1/streams/note/1/purge", {"reason": "erasure request 17"})
    assert (asked.status_code, asked.json()["details"]["confirm"]) == (412, "purge note/1")
    assert notes.post("/v1/streams/note/1/purge", {"reason": "x", "dry_run": True}).json()["events"] == 2
    done = notes.post("/v1/streams/note/1/purge", {"reason": "erasure request 17", "confirm": "purge note/1"})
    assert (done.status_code, done.json()["events"], done.json()["reserved"]) == (200, 2, 3)
    assert notes.get("/v1/streams/note/1/history").status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/do/log.append", {**NOTE, "payload": {"topic": "b", "text": "a"}, "tags": {"z": "1", "a": "2"}}),
        ("/v1/do/log.append_batch", {"events": [NOTE, {**NOTE, "payload": {"topic": "b", "text": "a"}}]}),
        ("/v1/do/workpackages.create", {"id": "WP1", "title": "One"}),
        ("/v1/do/issues.create", {"title": "The door squeaks", "labels": ["b", "a"]}),
    ],
)
def test_a_retry_under_a_key_gets_the_same_bytes(calls: Calls, path: str, body: dict[str, Any]) -> None:
    key = {"idempotency-key": "k-1"}
    first = calls.post(path, body, headers=key)
    head = calls.get("/v1/head").json()["head"]
    again = calls.post(path, body, headers=key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"
    assert again.content == first.content
    assert calls.get("/v1/head").json()["head"] == head


def test_a_field_of_the_path_is_not_taken_from_the_body(notes: Calls) -> None:
    answer = notes.post(f"{MEMBER}/join", {"group": "other"})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "group")
    answer = notes.get("/v1/streams/note/1/state?stream=note/2")
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "stream")


def test_an_unknown_field_is_named_with_what_was_probably_meant(calls: Calls) -> None:
    answer = calls.post("/v1/do/workpackages.create", {"id": "WP1", "titel": "One"})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "titel")
    assert "title" in answer.json()["hint"]


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs("test")
    yield made
    made.close()


def _returned(number: int, progress: Any) -> int:
    return number


def test_jobs_that_ended_are_kept_up_to_a_bound(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.server.jobs.KEPT_MAX", 3)
    started = []
    for number in range(8):
        started.append(jobs.start("log.verify", partial(_returned, number)))
        while jobs.find(started[-1].id).ended_at is None:
            time.sleep(0.001)
    assert len(jobs.every()) <= 4
    assert jobs.find(started[-1].id).result == 7
    assert jobs.every()[0].result is None, "a list has no results"


def test_a_job_ends_when_the_server_stops(jobs: Jobs) -> None:
    def forever(progress: Any) -> None:
        while True:
            progress(1)
            time.sleep(0.001)

    job = jobs.start("log.verify", forever)
    began = time.monotonic()
    jobs.close()
    assert time.monotonic() - began < 2
    found = jobs.find(job.id)
    assert found.problem is not None
    assert (found.status, found.problem.code) == ("failed", "log_closed")
