"""CloudEvents over HTTP, with the library of the CloudEvents project on the other side."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import httpx2
import pytest
from cloudevents.core.formats.json import JSONFormat
from tests.server.calling import Calls
from tests.server.event_source import EventSource
from tests.server.listening import listening

from everlog.server.app import App
from everlog.server.events.cloudevents import BATCH, ONE

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "A-1",
    "source": "/shop",
    "type": "note.added",
    "subject": "note/1",
    "time": "2026-11-01T10:00:00Z",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "data": {"text": "hello"},
}


def test_a_structured_event_is_recorded_once_however_often_it_is_sent(app: App, calls: Calls) -> None:
    answers = [calls.post("/v1/events", EVENT, headers={"content-type": ONE}) for _ in range(3)]
    assert [one.status_code for one in answers] == [201, 201, 201]
    assert len({one.content for one in answers}) == 1
    recorded = app.services["log"].log.get(1)
    assert recorded is not None
    event = recorded.event
    assert (event.stream, event.payload["text"], event.actor) == ("note/1", "hello", "user:ada")
    assert event.tags["was.id"] == "A-1"
    assert event.tags["ce.traceparent"] == EVENT["traceparent"]
    assert app.services["log"].log.head() == 1


def test_an_event_of_the_library_arrives_in_binary_mode(app: App, calls: Calls) -> None:
    from cloudevents.core.bindings.http import to_binary
    from cloudevents.core.v1.event import CloudEvent

    attributes = {name: value for name, value in EVENT.items() if name not in ("data", "time")}
    message = to_binary(CloudEvent(attributes | {"datacontenttype": "application/json"}, EVENT["data"]), JSONFormat())
    answer = calls.send("POST", "/v1/events", content=message.body, headers=dict(message.headers))
    assert answer.status_code == 201, answer.text
    recorded = app.services["log"].log.get(1)
    assert recorded is not None
    assert recorded.event.payload["text"] == "hello"


def test_a_batch_is_recorded_whole_and_read_back_by_the_library(app: App, calls: Calls) -> None:

    both = [EVENT, {**EVENT, "id": "A-2"}]
    made = calls.post("/v1/events:batch", both, headers={"content-type": BATCH}).json()["events"]
    assert [one["position"] for one in made] == [1, 2]
    read = calls.get(f"/v1/events/{made[1]['id']}", headers={"accept": ONE})
    assert read.headers["content-type"] == ONE
    found = JSONFormat().read(None, read.content)
    data: Any = found.get_data()
    assert (found.get_id(), found.get_type(), data["text"]) == (made[1]["id"], "note.added", "hello")


@pytest.mark.parametrize(
    "wrong",
    [
        {"specversion": "0.3"},
        {"id": ""},
        {"source": None},
        {"type": 5},
        {"time": "yesterday"},
        {"data_base64": "aGk="},
        {"extension": {"a": 1}},
    ],
)
def test_what_is_not_a_cloudevent_is_refused_with_the_field(app: App, calls: Calls, wrong: dict[str, Any]) -> None:
    answer = calls.post("/v1/events", EVENT | wrong, headers={"content-type": ONE})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_field")
    assert app.services["log"].log.head() == 0


# ---- out


@pytest.fixture
def five(app: App, calls: Calls) -> list[dict[str, Any]]:
    """Five events, as the API has them."""
    log = app.services["log"].log
    for n in range(5):
        log.append("note.added", stream=f"note/{n}", payload={"text": f"text {n}"}, actor="user:bob", scope="acme")
    found: list[dict[str, Any]] = calls.get("/v1/events").json()["events"]
    return found


def require_equal(answer: httpx2.Response | bytes, records: list[dict[str, Any]]) -> None:
    """Read CloudEvents with the library, and compare them with records."""
    content = answer if isinstance(answer, bytes) else answer.content
    values = json.loads(content)
    for value, record in zip(values if isinstance(values, list) else [values], records, strict=True):
        found = JSONFormat().read(None, json.dumps(value))
        data: Any = found.get_data()
        assert (found.get_id(), found.get_type(), found.get_subject()) == (
            record["id"],
            record["type"],
            record["stream"],
        )
        assert data == record["payload"]
        assert found.get_time() == datetime.fromisoformat(record["occurred_at"])
        assert found.get_source() == f"urn:everlog:{record['origin']}"
        assert found.get_extension("evposition") == str(record["position"])
        assert found.get_extension("evactor") == record["actor"]


@pytest.mark.parametrize("accept", [BATCH, ONE, f"{BATCH}, {ONE};q=0.5, */*;q=0.1"])
def test_pages_are_batches_that_the_library_reads(calls: Calls, five: list[dict[str, Any]], accept: str) -> None:
    path, read = "/v1/events?after=0&limit=2", []
    while True:
        answer = calls.get(path, headers={"accept": accept})
        assert answer.headers["content-type"] == BATCH
        if answer.content == b"[]":
            break
        plain = calls.get(path).json()
        require_equal(answer, plain["events"])
        assert answer.headers["everlog-next"] == plain["next"]
        assert answer.headers["everlog-head"] == str(plain["head"]) == "5"
        assert answer.headers["everlog-looked-to"] == str(plain["looked_to"])
        read += plain["events"]
        path = "/v1/events" + re.findall("<(.*)>", answer.headers["link"])[0]
    assert read == five


def test_a_batch_has_its_own_tag_and_waits_and_goes_backwards(calls: Calls, five: list[dict[str, Any]]) -> None:
    answer, plain = calls.get("/v1/events", headers={"accept": BATCH}), calls.get("/v1/events")
    assert answer.headers["etag"] != plain.headers["etag"]
    assert answer.headers["vary"] == "accept"
    known = {"accept": BATCH, "if-none-match": answer.headers["etag"]}
    assert calls.get("/v1/events", headers=known).status_code == 304
    require_equal(calls.get("/v1/events?order=newest", headers={"accept": BATCH}), five[::-1])
    require_equal(calls.get("/v1/events?after=3&wait=5", headers={"accept": BATCH}), five[3:])


def test_a_reset_is_an_event_of_the_batch(app: App, calls: Calls, five: list[dict[str, Any]]) -> None:
    cursor = calls.get("/v1/events?after=0").json()["next"]
    app.services["log"].log.purge("note/1", reason="asked to")
    answer = calls.get(f"/v1/events?after={cursor}", headers={"accept": BATCH})
    (only,) = answer.json()
    found = JSONFormat().read(None, json.dumps(only))
    data: Any = found.get_data()
    assert (found.get_type(), data) == ("everlog.reset", {"reason": "purged", "next": answer.headers["everlog-next"]})
    assert calls.get(f"/v1/events?after={data['next']}", headers={"accept": BATCH}).content == b"[]"


@pytest.mark.parametrize("path", ["/v1/events/{id}", "/v1/at/{position}"])
def test_one_event_is_structured_or_a_batch_of_one(calls: Calls, five: list[dict[str, Any]], path: str) -> None:
    for accept in (ONE, BATCH):
        answer = calls.get(path.format_map(five[2]), headers={"accept": accept})
        assert answer.headers["content-type"] == accept
        assert isinstance(answer.json(), list) == (accept == BATCH)
        require_equal(answer, [five[2]])
    assert calls.get(path.format_map(five[2])).json() == five[2]


def test_a_stream_has_one_cloudevent_per_event_and_notices_as_they_are(
    app: App, calls: Calls, five: list[dict[str, Any]]
) -> None:
    log = app.services["log"].log
    with listening(app) as url:
        port = int(url.rpartition(":")[2])
        source = EventSource(port, "/v1/events/stream", calls.secret, accept=f"text/event-stream, {ONE}")
        try:
            source.open()
            events = source.events()
            received = [next(events) for _ in range(5)]  # from pages
            log.append("note.added", stream="note/5", payload={"text": "live"}, actor="user:bob")
            received.append(next(events))  # from the hub
            records = calls.get("/v1/events").json()["events"]
            require_equal(b"[" + b",".join(one.data.encode() for one in received) + b"]", records)
            log.purge("note/1", reason="asked to")
            reset = next(events)
            assert (reset.type, reset.json["reason"]) == ("reset", "purged")
        finally:
            source.close()
