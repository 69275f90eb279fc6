"""Events over HTTP."""

from __future__ import annotations

from tests.server.calling import Calls

from everlog.server.app import App

NOTE = {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}


def test_an_appended_event_is_in_the_log_with_the_actor_of_the_token(app: App, calls: Calls) -> None:
    answer = calls.post("/v1/events", NOTE)
    assert answer.status_code == 201
    recorded = app.services["log"].log.get(answer.json()["id"])
    assert recorded is not None
    assert recorded.event.actor == "user:ada"
    assert recorded.event.payload["text"] == "hello"


def test_a_retry_with_a_key_gets_the_same_bytes_and_records_nothing(app: App, calls: Calls) -> None:
    sent = {
        **NOTE,
        "payload": {"topic": "b", "text": "a"},
        "tags": {"z": "1", "a": "2"},
    }  # not in the order of a store
    first = calls.post("/v1/events", sent, headers={"idempotency-key": "k"})
    again = calls.post("/v1/events", sent, headers={"idempotency-key": "k"})
    assert again.content == first.content
    assert (again.status_code, again.headers["idempotent-replay"]) == (201, "true")
    other = calls.post("/v1/events", {**NOTE, "payload": {"text": "bye"}}, headers={"idempotency-key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reuse")
    assert app.services["log"].log.head() == 1


def test_a_batch_is_recorded_whole_or_not_at_all(app: App, calls: Calls) -> None:
    bad = calls.post("/v1/events:batch", [NOTE, {**NOTE, "type": "no.such"}])
    assert (bad.status_code, bad.json()["code"]) == (422, "unknown_type")
    assert app.services["log"].log.head() == 0
    good = calls.post("/v1/events:batch", [NOTE, NOTE])
    assert [one["position"] for one in good.json()["events"]] == [1, 2]


def test_a_token_names_the_actor_and_the_request_cannot(calls: Calls) -> None:
    answer = calls.post("/v1/events", {**NOTE, "actor": "user:eve"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_field")


def test_a_limited_caller_sees_only_its_scope(app: App, calls: Calls) -> None:
    acme = Calls.of(app, "acme", within="acme")
    mine = acme.post("/v1/events", NOTE).json()
    other = calls.post("/v1/events", {**NOTE, "stream": "note/2"}).json()
    page = acme.get("/v1/events?after=0").json()
    assert [one["id"] for one in page["events"]] == [mine["id"]]
    assert (page["head"], page["looked_to"]) == (1, 1)
    missing = acme.get("/v1/events/01M7QD359TED69PS61SQQ82HBX")
    foreign = acme.get(f"/v1/events/{other['id']}")
    assert foreign.status_code == missing.status_code == 404
    assert acme.post("/v1/events", {**NOTE, "stream": "note/2"}).status_code == 404
    assert app.services["log"].log.head() == 2
