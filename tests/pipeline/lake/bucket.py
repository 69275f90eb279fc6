"""A stand-in for S3, on the loopback address: a process of its kind for each test run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

ENDPOINT = "AWS_ENDPOINT_URL"
WAIT_S = 60.0


@contextmanager
def stand_in() -> Iterator[str]:
    """Run the server; the environment names it, for this process and its workers."""
    import moto.server  # noqa: F401 - it runs as a process; a missing one is named here

    from everlog.pipeline.lake.bucket import file_system

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A process: the library that commits tables keeps the interpreter's lock while it waits for an answer.
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    named = {
        ENDPOINT: f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in named}
    os.environ.update(named)
    file_system.cache_clear()
    try:
        _make_bucket(f"{named[ENDPOINT]}/lakes")
        yield named[ENDPOINT]
    finally:
        file_system.cache_clear()
        server.terminate()
        server.wait(WAIT_S)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _make_bucket(url: str) -> None:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()
            return
        except URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def place(name: str) -> Path:
    return Path(f"s3:/lakes/{name}")
