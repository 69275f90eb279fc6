"""Send requests to a server as fast as it answers, from a process of its own.

    python -m benchmarks.http_load URL SECONDS CLIENTS < request

The request is a template of HTTP/1.1 on standard input. `@KEY@` in it becomes a new text of 16 characters in every
request. The output is a line of JSON: how many were answered, in how many seconds, with how many errors.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any
from urllib.parse import urlsplit

KEY = b"@KEY@"
KEY_CHARS = 16


class Client(asyncio.Protocol):
    """One connection: the next request is sent when the answer to the last one is complete."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._waiting = 0  # bytes of an answer that are still to come
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport  # uvloop's is not a subclass
        self._send()

    def data_received(self, data: bytes) -> None:
        if self._waiting:
            self._waiting -= len(data)
            if self._waiting <= 0:
                self._done()
            return
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end].lower()
        self._load.errors += head[9:10] != b"2"
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        self._waiting = length - (len(self._data) - end - 4)
        self._data = b""
        if self._waiting <= 0:
            self._done()

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost += not self._load.ended

    def _done(self) -> None:
        self._waiting = 0
        self._load.answered += 1
        if self._load.ended:
            self._transport.close()
        else:
            self._send()

    def _send(self) -> None:
        self._transport.write(self._load.request())


class Load:
    def __init__(self, template: bytes) -> None:
        self._pieces = template.split(KEY)
        self._number = 0
        self._salt = os.urandom(4).hex()
        self.answered = self.errors = self.lost = 0
        self.ended = False

    def request(self) -> bytes:
        if len(self._pieces) == 1:
            return self._pieces[0]
        self._number += 1
        return f"{self._salt}{self._number:08d}".encode().join(self._pieces)


async def send(url: str, seconds: float, clients: int, template: bytes) -> dict[str, float]:
    """Return how many requests were answered, and in how many seconds."""
    parts, load = urlsplit(url), Load(template)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(clients):
        await loop.create_connection(lambda: Client(load), str(parts.hostname), parts.port or 80)
    await asyncio.sleep(seconds)
    answered, took = load.answered, time.perf_counter() - began
    load.ended = True
    await asyncio.sleep(0.2)
    return {"answered": answered, "seconds": took, "errors": load.errors, "lost": load.lost}


if __name__ == "__main__":
    import uvloop

    found = uvloop.run(send(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.stdin.buffer.read()))
    print(json.dumps(found))
