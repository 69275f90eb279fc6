"""Four clients that hold what they derived from events: one polls, one waits, one follows a stream, and one is the
client of everlog.

Each has a cursor, the ids of the events that it has by position, and the resets that it got. They honour a reset as
every client must: forget what was derived, fetch it again up to the cursor of the reset, and continue from there.
"""

from __future__ import annotations

import http.client
import json
import random
from typing import Any

from tests.remote.relay import Relay
from tests.server.event_source import EventSource, Received

import everlog
from everlog.core.codec import recorded_object
from everlog.core.query import Cursor, Query


class Follower:
    """What all of them share."""

    name = ""

    def __init__(self, token: str, chance: random.Random, *, filter: str = "") -> None:
        self.token = token
        self.chance = chance
        self.filter = filter
        self.port = 0
        self.cursor = "0"
        self.state: dict[int, str] = {}
        self.resets: list[tuple[str, str]] = []
        self.reconnects = 0
        self.lost = False  # the log was put back to before the cursor: a reset must come
        self._connection: http.client.HTTPConnection | None = None

    def serve_from(self, port: int) -> None:
        """The server has been started, perhaps on another port."""
        self.port = port
        self._disconnect()

    def catch_up(self, head: int) -> None:
        """Read until the cursor is at the head."""
        raise NotImplementedError

    @property
    def position(self) -> int:
        return int(Cursor.of(self.cursor).position)

    def get(self, path: str) -> dict[str, Any]:
        if self._connection is None or self.chance.random() < 0.3:
            self._disconnect()
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            self._connection.request("GET", path + self.filter, headers={"authorization": f"Bearer {self.token}"})
            answer = self._connection.getresponse()
        except ConnectionError:  # it was idle for long, and the server has closed it
            self._disconnect()
            return self.get(path)
        body = answer.read()
        assert answer.status == 200, body
        return dict(json.loads(body))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self.reconnects += 1

    def close(self) -> None:
        self._disconnect()

    def apply(self, record: dict[str, Any]) -> None:
        position = record["position"]
        assert position not in self.state, f"{self.name} got #{position} twice"
        assert position > max(self.state, default=0), f"{self.name} got #{position} out of order"
        self.state[position] = record["id"]

    def reset(self, reason: str, cursor: str) -> None:
        self.resets.append((reason, cursor))
        self.lost = False
        self.cursor = cursor
        self.state = {}
        looked_to = 0
        while looked_to < self.position:
            page = self.get(f"/v1/events?from={looked_to + 1}&limit={self.chance.randint(1, 9)}")
            looked_to = page["looked_to"]
            self.state |= {one["position"]: one["id"] for one in page["events"] if one["position"] <= self.position}


class Poller(Follower):
    name = "the poller"
    wait = ""

    def catch_up(self, head: int) -> None:
        while self.lost or self.position < head:
            page = self.get(f"/v1/events?after={self.cursor}&limit={self.chance.randint(1, 9)}{self.wait}")
            if page["reset_required"]:
                assert not page["events"]
                self.reset(page["reason"], page["next"])
                continue
            for record in page["events"]:
                self.apply(record)
            self.cursor = page["next"]


class LongPoller(Poller):
    name = "the long-poller"
    wait = "&wait=20"


class Streamer(Follower):
    name = "the streamer"

    def __init__(self, token: str, chance: random.Random, *, filter: str = "") -> None:
        super().__init__(token, chance, filter=filter)
        self._source: EventSource | None = None
        self._events: Any = None

    def serve_from(self, port: int) -> None:
        super().serve_from(port)
        self._close_stream()

    def catch_up(self, head: int) -> None:
        while self.lost or self.position < head:
            if self._source is None:
                self._open()
            try:
                received: Received = next(self._events)
            except StopIteration:
                self._close_stream()
                continue
            except TimeoutError:
                raise AssertionError(
                    f"{self.name} is at {self.position}, waits for {head}, and gets nothing"
                ) from None
            if received.type == "reset":
                self.reset(received.json["reason"], received.json["next"])
            elif received.type == "bye":
                self.cursor = received.json["next"]
                self._close_stream()
            else:
                self.apply(received.json)
            assert self._source is None or received.id == self._source.last_id
            self.cursor = received.id
            if self.chance.random() < 0.15:
                self._close_stream()

    def _open(self) -> None:
        last_id = "" if self.cursor == "0" else self.cursor
        path = "/v1/events/stream" + ("?" + self.filter.removeprefix("&") if self.filter else "")
        self._source = EventSource(self.port, path, self.token, last_id=last_id, timeout_s=12)  # before a heartbeat
        self._source.open()
        self._events = self._source.events()

    def _close_stream(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None
            self.reconnects += 1

    def close(self) -> None:
        super().close()
        self._close_stream()


class RemoteClient(Follower):
    """One subscription of `everlog.connect`, which outlasts every restart. Its connections are cut in the middle."""

    name = "the remote client"

    def __init__(self, token: str, chance: random.Random, *, filter: str = "") -> None:
        super().__init__(token, chance, filter=filter)
        self._relay = Relay()
        self._log = everlog.connect(f"http://127.0.0.1:{self._relay.port}", token=token)
        self._items = self._log.subscribe(query=Query(kind=filter.removeprefix("&kind=")))

    def serve_from(self, port: int) -> None:
        super().serve_from(port)
        self._relay.lead_to(port)

    def catch_up(self, head: int) -> None:
        while self.lost or self.position < head:
            item = next(self._items)
            if isinstance(item, everlog.Reset):
                self.reset(item.reason, str(item.cursor))
            else:
                self.apply(recorded_object(item))
                self.cursor = str(item.position)
            if self.chance.random() < 0.15:
                self.reconnects += self._relay.cut()

    def close(self) -> None:
        super().close()
        self._log.close()
        self._relay.close()
