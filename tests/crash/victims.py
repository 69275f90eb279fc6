"""Processes that append until something happens to them, ready within milliseconds.

Starting Python and importing everlog takes a quarter of a second, and a killing loop needs hundreds of victims. So
one process, the nursery, imports everything once and forks each of them; nothing is open in it that
a fork could share.

    with Nursery() as nursery:
        victim = nursery.start("sqlite:log.db", count=1000, name="w1")
        output = victim.watch(0.05)     # the acknowledgements of 50 ms
        output += victim.kill()         # SIGKILL, and the rest

Acknowledgements come over a socket, by `sendto`: a fault that is injected into `write` hits the store alone.
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
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
FAILED = b"failed: "
_BUFFER = 4 * 1024 * 1024


class Victim:
    def __init__(self, nursery: Nursery, pid: int, acks: socket.socket) -> None:
        self.pid = pid
        self._nursery = nursery
        self._acks = acks

    def go(self) -> None:
        """Let one that was started with `wait` begin."""
        self._acks.send(b"g")

    def watch(self, seconds: float, *, until_bytes: int = sys.maxsize) -> bytes:
        """What it says in this time, or until it has said so much, or has ended."""
        deadline = time.monotonic() + seconds
        output = b""
        while len(output) < until_bytes:
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self._acks], [], [], left)[0]:
                break
            data = self._read()
            if not data:
                break
            output += data
        return output

    def kill(self) -> bytes:
        """SIGKILL; what it had said until then. It is gone when this returns."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)  # it is not reaped before `wait`, so that the pid is its own

    def await_stop(self) -> bytes:
        """What it says until it has stopped itself."""
        output = b""
        while not Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].startswith(" T"):
            output += self.watch(0.01)
        while select.select([self._acks], [], [], 0)[0] and (data := self._read()):  # sent before it stopped
            output += data
        return output

    def wait(self) -> bytes:
        output = b""
        while data := self._read():
            output += data
        self._acks.close()
        self.status = self._nursery.reap(self.pid)
        return output

    def _read(self) -> bytes:
        try:
            return self._acks.recv(1 << 20)
        except ConnectionResetError:
            return b""


class Nursery:
    """`preload` is a library that stands before the system's own in every victim."""

    def __init__(self, *, preload: str = "", environ: Mapping[str, str] | None = None) -> None:
        self._preload = preload
        self._environ = dict(environ or {})

    def __enter__(self) -> Self:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {**os.environ, **self._environ}
        environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), environ.get("PYTHONPATH", "")])
        if self._preload:
            environ["LD_PRELOAD"] = self._preload
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.victims", str(theirs.fileno())],
                env=environ,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._control.close()  # its end is the nursery's end, and that of every victim that is left
        self._process.wait(timeout=60)

    def start(self, url: str, *, count: int = 1_000_000, name: str, **options: Any) -> Victim:
        """`wait`: only at `go`. `file_bytes_max`: no file may grow beyond it. Others: see `append_events`."""
        mine, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        order = {"url": url, "count": count, "name": name, **options}
        with theirs:
            socket.send_fds(self._control, [json.dumps(order).encode()], [theirs.fileno()])
        pid = int(self._answer())
        return Victim(self, pid, mine)

    def reap(self, pid: int) -> int:
        """The wait status of a victim that has ended or is about to."""
        self._control.send(json.dumps({"reap": pid}).encode())
        return int(self._answer())

    def _answer(self) -> bytes:
        answer = self._control.recv(64)
        if not answer:
            raise RuntimeError("the nursery has ended")
        return answer


# ---- in the nursery


def main(control: socket.socket) -> None:
    import everlog.wiring  # noqa: F401 - once, here, for every victim

    living: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 65536, 1)
        if not data:
            break
        order = json.loads(data)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            living.discard(order["reap"])
            control.send(str(status).encode())
            continue
        _load(order["url"])
        pid = os.fork()
        if pid == 0:
            control.close()
            _live(socket.socket(fileno=descriptors[0]), order)
        os.close(descriptors[0])
        living.add(pid)
        control.send(str(pid).encode())
    for pid in living:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _load(url: str) -> None:
    scheme = url.partition(":")[0]
    __import__(f"everlog.stores.{'postgres' if scheme == 'postgresql' else scheme}.store")
    __import__("tests.crash.writer")


def _live(acks: socket.socket, order: dict[str, Any]) -> None:
    from tests.crash.writer import append_events

    code = 1
    try:
        if order.get("wait"):
            acks.recv(1)
        if order.get("file_bytes_max"):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            limit = order["file_bytes_max"]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        options = {name: order[name] for name in ("stop_after", "insist") if name in order}
        append_events(order["url"], order["count"], order["name"], acks.sendall, **options)
        code = 0
    except BaseException as error:
        acks.sendall(FAILED + f"{type(error).__name__}: {error}\n".replace("\n", " ").encode() + b"\n")
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
