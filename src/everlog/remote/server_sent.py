"""Server-sent events (text/event-stream), read piece by piece, wherever the pieces were cut."""

from __future__ import annotations

import msgspec

LINE_BYTES_MAX = 16 * 1024 * 1024


class ServerSent(msgspec.Struct, frozen=True):
    """One event of a stream: its kind, its id and its data."""

    kind: str
    id: str
    data: str


class TooLong(ValueError):
    """A line that no server of everlog sends."""


class Parser:
    """Reads a stream. What is not complete yet waits for the next piece."""

    def __init__(self) -> None:
        self._rest = b""
        self._kind, self._id, self._data = "", "", list[str]()

    def feed(self, piece: bytes) -> list[ServerSent]:
        """Return the events that are complete with this piece."""
        found = []
        # A line ends with LF, CR LF or CR. A CR at the end of a piece may be the first half of CR LF.
        text = self._rest + piece
        held = text[-1:] == b"\r"
        lines = (text[:-1] if held else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if held else b"")
        if len(self._rest) > LINE_BYTES_MAX:
            raise TooLong(f"a line is longer than {LINE_BYTES_MAX:,} bytes")
        for line in lines:
            if line:
                self._take(line.decode())
            elif self._data or self._kind:
                found.append(ServerSent(self._kind or "message", self._id, "\n".join(self._data)))
                self._kind, self._data = "", []
        return found

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._id = value
        # A line without a name is a comment, such as a heartbeat.
