"""CloudEvents over HTTP, with the library of the CloudEvents project on the other side."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.calling import Calls

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
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    attributes = {name: value for name, value in EVENT.items() if name not in ("data", "time")}
    message = to_binary(CloudEvent(attributes | {"datacontenttype": "application/json"}, EVENT["data"]), JSONFormat())
    answer = calls.send("POST", "/v1/events", content=message.body, headers=dict(message.headers))
    assert answer.status_code == 201, answer.text
    recorded = app.services["log"].log.get(1)
    assert recorded is not None
    assert recorded.event.payload["text"] == "hello"


def test_a_batch_is_recorded_whole_and_read_back_by_the_library(app: App, calls: Calls) -> None:
    from cloudevents.core.formats.json import JSONFormat

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
