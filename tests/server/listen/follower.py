"""A stream that a thread reads."""

from __future__ import annotations

import threading

from tests.server.event_source import EventSource
from tests.server.running import Running


class Follower:
    """A stream in a thread: the positions that it was given, up to the bye."""

    def __init__(self, server: Running, last_id: str = "") -> None:
        self.source = EventSource(server.port, "/v1/events/stream", server.token, last_id=last_id)
        self.positions: list[int] = []
        self.bye: dict[str, str] = {}
        self.error: OSError | None = None
        self.thread = threading.Thread(target=self._follow)
        self.source.open()
        self.thread.start()

    def _follow(self) -> None:
        try:
            for event in self.source.events():
                if event.type == "bye":
                    self.bye = event.json
                else:
                    self.positions.append(event.json["position"])
        except OSError as error:  # the connection ended without a bye
            self.error = error

    def end(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive(), "the stream did not end"
        self.source.close()

    def leave(self) -> None:
        """Close the stream from this side."""
        assert self.source.socket is not None
        self.source.socket.shutdown(2)
        self.end()
