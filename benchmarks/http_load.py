"""Send requests to a server as fast as it answers, from a process of its own.

    python -m benchmarks.http_load URL SECONDS CLIENTS [RATE] < request

The request is a template of HTTP/1.1 on standard input. `@KEY@` in it becomes a new text of 16 characters in every
request. The output is a line of JSON: how many were answered, in how many seconds, with how many errors, and the
processor time of this process.

With a rate, so many requests are sent per second, all clients together. The output then has `called`: when the
request that recorded a position was sent, on the clock of the machine; and `ack`, the 99th percentile of its answer.
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
        self._data = self._body = b""
        self._sent_at = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport  # uvloop's is not a subclass
        if self._load.rate:
            self._send_when_due()
        else:
            self._send()

    def data_received(self, data: bytes) -> None:
        if self._waiting:
            self._waiting -= len(data)
            self._body += data if self._load.rate else b""
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
        self._body = self._data[end + 4 :] if self._load.rate else b""
        self._data = b""
        if self._waiting <= 0:
            self._done()

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost += not self._load.ended

    def _done(self) -> None:
        self._waiting = 0
        self._load.answered += 1
        if self._load.rate:
            self._load.note(self._body, self._sent_at)
        if self._load.ended:
            self._transport.close()
        elif self._load.rate:
            self._send_when_due()
        else:
            self._send()

    def _send_when_due(self) -> None:
        asyncio.get_running_loop().call_at(self._load.due(), self._send)

    def _send(self) -> None:
        self._sent_at = time.monotonic()
        self._transport.write(self._load.request())


class Load:
    def __init__(self, template: bytes, rate: int = 0) -> None:
        self.rate = rate
        self.called: dict[int, float] = {}
        self._took: list[float] = []
        self._sent, self._began = 0, 0.0
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

    def due(self) -> float:
        """Return when the next request is due, on the clock of the loop."""
        self._began = self._began or asyncio.get_running_loop().time() + 0.1
        self._sent += 1
        return self._began + self._sent / self.rate

    def note(self, body: bytes, sent_at: float) -> None:
        self.called[int(body.partition(b'"position":')[2].partition(b",")[0])] = sent_at
        self._took.append(time.monotonic() - sent_at)

    def noted(self) -> dict[str, Any]:
        return {"called": self.called, "ack": sorted(self._took)[len(self._took) * 99 // 100]} if self.rate else {}


def request_of(
    method: str, path: str, token: str, body: bytes = b"", *, keyed: bool = False, kind: str = "json"
) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: 127.0.0.1",
        *([f"authorization: Bearer {token}"] if token else []),
        *(["idempotency-key: @KEY@"] if keyed else []),
        *([f"content-type: application/{kind}", f"content-length: {len(body)}"] if body else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def send(url: str, seconds: float, clients: int, template: bytes, rate: int = 0) -> dict[str, Any]:
    """Return how many requests were answered, and in how many seconds."""
    parts, load = urlsplit(url), Load(template, rate)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(clients):
        await loop.create_connection(lambda: Client(load), str(parts.hostname), parts.port or 80)
    await asyncio.sleep(seconds)
    answered, took = load.answered, time.perf_counter() - began
    load.ended = True
    await asyncio.sleep(0.2)
    found = {"answered": answered, "seconds": took, "errors": load.errors, "lost": load.lost}
    return {**found, "cpu_s": time.process_time(), **load.noted()}


if __name__ == "__main__":
    import uvloop

    url, seconds, clients, *rate = sys.argv[1:]
    given = (url, float(seconds), int(clients), sys.stdin.buffer.read(), int(rate[0]) if rate else 0)
    print(json.dumps(uvloop.run(send(*given))))
