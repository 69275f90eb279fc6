"""What streams and waiting polls of a server cost: a part of `everlog bench http`.

    clients     one process with 500 sockets, which reads, counts and notes when each event arrived
    appender    `http_load.py`: 64 connections that append single events, 1,000 per second, each durable
    server      `everlog serve` on SQLite, measured from /proc: processor time of all its threads, resident memory

All run on one machine, and times are of one clock. The latency is from the call of an append to the arrival of its
event at a client, over all pairs of both.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.http_load import request_of
from benchmarks.rows import Row, Setup

CLIENTS = 500
RATE = 1_000
CONNECTIONS = 64
UNLIMITED = {"EVERLOG_REQUESTS_PER_SECOND": "0"}
_MARK = b"\nid: "


class Server:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *, store: str = "sqlite", environment: Mapping[str, str] | None = None) -> None:
        run = [sys.executable, "-m", "everlog"]
        name = "log.db" if store == "sqlite" else "log"
        subprocess.run([*run, "init", "--store", f"{store}:{name}"], cwd=folder, check=True, capture_output=True)
        self.url_of_log = f"{store}:{folder / '.everlog' / name}"
        self._process = subprocess.Popen(
            [*run, "serve", "--port", "0", "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        self.port, self.token = int(ready["url"].rpartition(":")[2]), ready["token"]
        self.pid = self._process.pid
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.05)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def request(self, path: str, *, more: str = "") -> bytes:
        return (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n{more}\r\n"
        ).encode()


@contextmanager
def serving(
    directory: Path, *, store: str = "sqlite", environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        server = Server(Path(folder), store=store, environment=environment)
        try:
            yield server
        finally:
            server.close()


class Stream:
    """One client: counts the events that it gets, and notes the last one of each read and when it came."""

    def __init__(self, server: Server, path: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.sendall(server.request(path))
        self.socket.setblocking(False)
        self._rest = b"\n"
        self.last = 0
        self.in_order = True
        self.reads: list[tuple[float, int, int]] = []  # when, the first and the last position
        self.ended = False

    def read(self) -> None:
        try:
            data = self.socket.recv(65_536)
        except BlockingIOError:
            return
        now = time.monotonic()
        if not data:
            self.ended = True
            return
        text = self._rest + data
        end = text.rfind(b"@") + 1  # a cursor is POSITION@…, and nothing else in these events has this character
        if not end:
            self._rest = text[-400:]
            return
        whole, self._rest = text[:end], text[end:]
        count = whole.count(_MARK)
        if not count:
            return
        first = _position(whole, whole.find(_MARK))
        last = _position(whole, whole.rfind(_MARK))
        self.in_order &= last - first + 1 == count and (not self.last or first == self.last + 1)
        self.last = last
        self.reads.append((now, first, last))


def _position(text: bytes, at: int) -> int:
    start = at + len(_MARK)
    return int(text[start : text.index(b"@", start)])


def _open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


def _append(
    server: Server, seconds: float, *, rate: int = RATE, connections: int = CONNECTIONS
) -> subprocess.Popen[bytes]:
    body = json.dumps({"type": "note.added", "stream": "note/1", "payload": {"text": "x" * 140}}).encode()
    url = f"http://127.0.0.1:{server.port}"
    running = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.http_load", url, str(seconds), str(connections), str(rate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert running.stdin is not None
    running.stdin.write(request_of("POST", "/v1/events", server.token, body))
    running.stdin.close()
    running.stdin = None
    return running


def live(setup: Setup) -> Iterator[Row]:
    """Streams at a steady rate, one of them stalled."""
    _open_files()
    seconds = 5.0 if setup.quick else 40.0
    clients = 100 if setup.quick else CLIENTS
    with serving(setup.directory) as server:
        warm = _append(server, 1.0)
        warm.communicate()
        setup.progress(
            f"streams: {clients} clients, {RATE} events per second for {seconds:.0f} s, one client stalled"
        )
        # Only new events: from the position that the log has now.
        at = _head(server)
        streams = [Stream(server, f"/v1/events/stream?after={at}") for _ in range(clients - 1)]
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        stalled.connect(("127.0.0.1", server.port))
        stalled.sendall(server.request(f"/v1/events/stream?after={at}"))
        time.sleep(1.0)
        poll = select.epoll()
        by_file = {one.socket.fileno(): one for one in streams}
        for number in by_file:
            poll.register(number, select.EPOLLIN)
        poll.register(stalled.fileno(), select.EPOLLRDHUP)
        memory, cpu, began = server.resident_mb(), server.cpu_s(), time.monotonic()
        appender = _append(server, seconds)
        answered: list[bytes] = []
        listener = threading.Thread(target=lambda: answered.append(appender.communicate()[0]))
        listener.start()
        stalled_s, done_at, highest = 0.0, 0.0, memory
        looked = began
        own_cpu = time.process_time()
        while True:
            for number, events in poll.poll(0.2):
                if number in by_file:
                    by_file[number].read()
                    if by_file[number].ended:
                        poll.unregister(number)
                elif events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR) and not stalled_s:
                    stalled_s = time.monotonic() - began
                    poll.unregister(number)
            now = time.monotonic()
            if now - looked > 0.5:
                looked, highest = now, max(highest, server.resident_mb())
            if answered and not done_at:
                done_at, used = now, server.cpu_s() - cpu
                own_used = time.process_time() - own_cpu
                newest = max(map(int, json.loads(answered[0])["called"]))
            waited = now - done_at if done_at else 0.0
            all_have_it = waited > 1.5 and all(one.last >= newest for one in streams)
            if (all_have_it or waited > 15) and (stalled_s or now - began > 60):
                break
        listener.join()
        found = json.loads(answered[0])
        called = {int(position): when for position, when in found["called"].items()}
        complete = [one for one in streams if one.last >= newest and one.in_order]
        delays = [
            when - called[p] for one in streams for when, a, b in one.reads for p in range(a, b + 1) if p in called
        ]
        delays.sort()
        span = done_at - began
        rate = len(called) / found["seconds"]
        deliveries = sum(len(one.reads) for one in streams)
        yield Row("clients that got every event, in order", "sqlite", len(complete), "", clients - 1, at_most=False)
        yield Row("append to arrival, p50", "sqlite", delays[len(delays) // 2] * 1e3, "ms")
        yield Row("append to arrival, p99", "sqlite", delays[len(delays) * 99 // 100] * 1e3, "ms", 250)
        yield Row("append to arrival, longest", "sqlite", delays[-1] * 1e3, "ms")
        yield Row("append to its answer, p99", "sqlite", found["ack"] * 1e3, "ms")
        yield Row("cores of the server", "sqlite", used / span, "", 1.2, note=f"{rate:.0f} appends/s over HTTP")
        yield Row("cores of the clients", "sqlite", own_used / span, "", note=f"{deliveries:,} reads")
        yield Row("cores of the appender", "sqlite", found["cpu_s"] / span, "")
        yield Row("memory growth", "sqlite", highest - memory, "MB", 32, note=f"from {memory:.0f} MB, all connected")
        yield Row("stalled client disconnected after", "sqlite", stalled_s or 999.0, "s", 30)
        for one in streams:
            one.socket.close()


def _head(server: Server) -> int:
    with socket.create_connection(("127.0.0.1", server.port)) as made:
        made.sendall(server.request("/v1/events?order=newest&limit=1", more="Connection: close\r\n"))
        data = b""
        while piece := made.recv(65536):
            data += piece
    return int(json.loads(data.partition(b"\r\n\r\n")[2])["head"])


def woken(setup: Setup) -> Iterator[Row]:
    """Waiting polls that one event wakes."""
    _open_files()
    clients = 100 if setup.quick else CLIENTS
    with serving(setup.directory) as server:
        _append(server, 0.5, rate=100, connections=1).communicate()
        setup.progress(f"polls: {clients} wait for one event")
        longest = []
        for _ in range(setup.rounds):
            at = _head(server)
            polls = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(clients)]
            for one in polls:
                one.sendall(server.request(f"/v1/events?after={at}&wait=30"))
            time.sleep(2.0)
            poll = select.epoll()
            for one in polls:
                poll.register(one.fileno(), select.EPOLLIN)
            assert not poll.poll(0), "a poll was answered before there was an event"
            body = json.dumps({"type": "note.added", "stream": "note/1", "payload": {"text": "wake up"}}).encode()
            sender = socket.create_connection(("127.0.0.1", server.port))
            head = server.request("/v1/events").replace(b"GET", b"POST").removesuffix(b"\r\n")
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            began = time.monotonic()
            sender.sendall(head + body)
            waiting, answers = (
                {one.fileno(): one for one in polls},
                dict.fromkeys([one.fileno() for one in polls], b""),
            )
            while waiting:
                for number, _ in poll.poll(5):
                    answers[number] += waiting[number].recv(65536)
                    if answers[number].endswith(b"}"):
                        assert b'"events":[{"position"' in answers[number]
                        del waiting[number]
                        poll.unregister(number)
            longest.append(time.monotonic() - began)
            for one in (*polls, sender):
                one.close()
        longest.sort()
        yield Row("all waiting polls answered after", "sqlite", longest[len(longest) // 2] * 1e3, "ms", 150)


def idle(setup: Setup) -> Iterator[Row]:
    """Streams of a log to which nobody writes."""
    _open_files()
    clients = 100 if setup.quick else CLIENTS
    seconds = 5.0 if setup.quick else 30.0
    with serving(setup.directory) as server:
        setup.progress(f"idle: {clients} streams for {seconds:.0f} s")
        streams = [Stream(server, "/v1/events/stream") for _ in range(clients)]
        time.sleep(2.0)
        cpu, began = server.cpu_s(), time.monotonic()
        time.sleep(seconds)
        used = (server.cpu_s() - cpu) / (time.monotonic() - began)
        for one in streams:
            one.socket.close()
        yield Row("cores of the server with idle streams", "sqlite", used * 100, "%", 2)


PARTS = (live, woken, idle)
