"""What the server costs: `everlog bench http`, or `python -m benchmarks.http [--only PART]`.

Appends and pages are ratios inside one round, the median of some rounds. The load comes from a process of its own
on the same machine (`http_load.py`), so both cores are busy with both sides.

    F    a bare server: raw ASGI on the same uvicorn, a body decoded with msgspec, and a short answer
    A    the same log in this process, with 64 tasks that append
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks import http_pages, http_streams
from benchmarks.bench.directory import choose_directory
from benchmarks.http_load import request_of
from benchmarks.http_streams import UNLIMITED
from benchmarks.rows import Row, Setup

import everlog
from everlog.log.write.draft import Draft

STORES = ("sqlite", "segments")
APPEND_MIN, BATCH_MIN = 0.8, 0.9
CLIENTS, BATCH = 64, 1000
PAYLOAD = {"text": "The door squeaks, and the neighbours have begun to notice it at night.", "topic": "doors"}

ECHO = """
import msgspec, sys, socket, uvicorn
decode = msgspec.json.Decoder(dict).decode
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = msgspec.json.encode({"type": decode(body)["type"]})
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
given = {"http": "httptools", "loop": "uvloop", "log_config": None, "lifespan": "off"}
config = uvicorn.Config(app, host="127.0.0.1", port=0, **given)
listening = config.bind_socket()
print('{"url": "http://127.0.0.1:%d", "token": ""}' % listening.getsockname()[1], flush=True)
uvicorn.Server(config).run(sockets=[listening])
"""


@contextmanager
def process(*command: str, cwd: Path) -> Iterator[dict[str, str]]:
    """Run a server, and return the line that it prints when it is ready."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **UNLIMITED}
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, cwd=cwd, env=environment) as running:
        assert running.stdout is not None
        try:
            ready: dict[str, str] = json.loads(running.stdout.readline())
            yield ready
        finally:
            running.terminate()
            running.wait(20)


def load(ready: dict[str, str], request: bytes, *, seconds: float, clients: int) -> float:
    """Return how many requests per second a server answers."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.http_load", ready["url"], str(seconds), str(clients)],
        input=request,
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found = json.loads(done.stdout)
    assert not found["errors"], found
    return float(found["answered"]) / float(found["seconds"])


def in_process_appends(log: everlog.Log, seconds: float) -> float:
    """Return how many events per second 64 tasks append to a log in this process, each with a key."""

    async def run() -> float:
        count, end, began = 0, time.perf_counter() + seconds, time.perf_counter()

        async def append(task: int) -> None:
            nonlocal count
            number = 0
            while time.perf_counter() < end:
                number += 1
                key = f"{task}-{number}-{began}"
                await everlog.aio.append(log, "note.added", stream=f"note/{task}", payload=PAYLOAD, key=key)
                count += 1

        await asyncio.gather(*map(append, range(CLIENTS)))
        return count / (time.perf_counter() - began)

    return asyncio.run(run())


def in_process_batches(log: everlog.Log, seconds: float) -> float:
    drafts = [Draft("note.added", f"note/{n % 50}", PAYLOAD) for n in range(BATCH)]
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        log.append_batch(drafts)
        count += BATCH
    return count / (time.perf_counter() - began)


def appends(setup: Setup) -> Iterator[Row]:
    seconds, rounds = (1.0, 1) if setup.quick else (5.0, setup.rounds)
    body = json.dumps({"type": "note.added", "stream": "note/1", "payload": PAYLOAD}).encode()
    batch = b"\n".join(
        json.dumps({"type": "note.added", "stream": f"note/{n % 50}", "payload": PAYLOAD}).encode()
        for n in range(BATCH)
    )
    for store in STORES:
        found: dict[str, list[float]] = {"append": [], "batch": []}
        rates: dict[str, list[float]] = {}
        for number in range(rounds):
            setup.progress(f"http: {store}, round {number + 1} of {rounds}")
            folder = Path(tempfile.mkdtemp(dir=setup.directory))
            url = f"{store}:{folder / 'log'}"
            with everlog.open(url, actor="service:bench") as log:
                a = in_process_appends(log, seconds)
                own_batches = in_process_batches(log, seconds)
            with process("-c", ECHO, cwd=folder) as ready:
                f = load(ready, request_of("POST", "/", "", body), seconds=seconds, clients=CLIENTS)
            with process("-m", "everlog", "--log", url, "serve", "--port", "0", "--json", cwd=folder) as ready:
                token = ready["token"]
                one = request_of("POST", "/v1/events", token, body, keyed=True)
                many = request_of("POST", "/v1/events:batch", token, batch, kind="x-ndjson")
                ours = load(ready, one, seconds=seconds, clients=CLIENTS)
                batches = load(ready, many, seconds=seconds, clients=4) * BATCH
            found["append"].append(ours * (1 / f + 1 / a))
            found["batch"].append(batches / own_batches)
            for name, value in (("F", f), ("A", a), ("ours", ours), ("batches", batches)):
                rates.setdefault(name, []).append(value)
        noted = ", ".join(f"{name} {median(values):,.0f}/s" for name, values in rates.items())
        yield Row(
            "64 clients append / (1/(1/F + 1/A))",
            store,
            median(found["append"]),
            "",
            APPEND_MIN,
            at_most=False,
            note=noted,
        )
        yield Row(
            f"batches of {BATCH} from 4 clients / in process",
            store,
            median(found["batch"]),
            "",
            BATCH_MIN,
            at_most=False,
        )


PARTS = (appends, http_pages.rows, *http_streams.PARTS)


def run_http(
    *,
    rounds: int = 5,
    quick: bool = False,
    directory: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
    only: str = "",
) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="everlog-bench-", dir=choose_directory(directory)) as made:
        setup = Setup(Path(made), 1 if quick else rounds, quick, progress)
        return [row for part in PARTS if only in ("", _name(part)) for row in part(setup)]


def _name(part: Callable[[Setup], Iterator[Row]]) -> str:
    return part.__module__.rpartition("_")[2] if part.__name__ == "rows" else part.__name__


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Small sizes, for a first impression.")
    parser.add_argument("--only", default="", choices=[_name(part) for part in PARTS])
    given = vars(parser.parse_args())
    for row in run_http(progress=lambda text: print(text, file=sys.stderr, flush=True), **given):
        must = "" if row.must is None else f"{'at most' if row.at_most else 'at least'} {row.must:g}"
        met = {None: "", True: "met", False: "NOT MET"}[row.met]
        print(f"{row.name:45} {row.store:8} {row.value:9.2f} {row.unit:4} {must:14} {met} {row.note}", flush=True)


if __name__ == "__main__":
    main()
