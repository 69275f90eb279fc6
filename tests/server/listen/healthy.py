"""Healthy clients, in a process of their own: how long each of their requests takes.

    python -m tests.server.listen.healthy SECONDS PORT TOKEN [PORT TOKEN …]

Each server has four clients: one appends, the others ask. Two servers are asked in turn by one loop, so that both
meet the same moments of a busy machine. The output is a list of latencies in seconds per server, as JSON.
"""

from __future__ import annotations

import heapq
import json
import select
import socket
import subprocess
import sys
import time

from tests.server.running import NOTE, Running, request

CLIENTS = 4
PAUSE_S = 0.010


def latencies(*servers: Running, for_s: float) -> list[list[float]]:
    """Return how long each request took, per server."""
    given = [str(one) for server in servers for one in (server.port, server.token)]
    command = [sys.executable, "-m", "tests.server.listen.healthy", str(for_s), *given]
    found: list[list[float]] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def p99(found: list[float]) -> float:
    return sorted(found)[int(len(found) * 0.99)]


class _Client:
    def __init__(self, port: int, token: str, *, appends: bool, took: list[float]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        signed = f"Authorization: Bearer {token}"
        body = json.dumps(NOTE).encode()
        length = f"Content-Length: {len(body)}"
        self._request = (
            request("POST", "/v1/events", signed, "Content-Type: application/json", length, body=body)
            if appends
            else request("GET", "/v1/events?limit=1", signed)
        )
        self._took = took
        self._data = b""
        self._sent_at = 0.0

    def send(self) -> None:
        self._sent_at = time.monotonic()
        self.socket.sendall(self._request)

    def read(self) -> bool:
        """Read what came, and return whether the answer is complete."""
        self._data += self.socket.recv(65536)
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return False
        assert head.startswith(b"HTTP/1.1 20"), head
        self._took.append(time.monotonic() - self._sent_at)
        self._data = b""
        return True


def main() -> None:
    until, targets = time.monotonic() + float(sys.argv[1]), list(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    took: list[list[float]] = [[] for _ in targets]
    clients = [
        _Client(int(port), token, appends=n == 0, took=own)
        for n in range(CLIENTS)
        for (port, token), own in zip(targets, took, strict=True)
    ]
    poll, by_file = select.epoll(), {one.socket.fileno(): one for one in clients}
    for number in by_file:
        poll.register(number, select.EPOLLIN)
    due = [(time.monotonic(), number) for number in by_file]
    while (now := time.monotonic()) < until:
        while due and due[0][0] <= now:
            by_file[heapq.heappop(due)[1]].send()
        for number, _ in poll.poll(max(0.0, min(due[0][0] if due else until, until) - now)):
            if by_file[number].read():
                heapq.heappush(due, (time.monotonic() + PAUSE_S, number))
    print(json.dumps(took))


if __name__ == "__main__":
    main()
