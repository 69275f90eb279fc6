"""A program that talks to others outlives their connections, although it lets SIGPIPE end `everlog log | head`."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest


@contextmanager
def running(*words: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "everlog", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=cwd, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=os.environ
    ) as found:
        assert found.stdout is not None
        line = found.stdout.readline()
        try:
            yield found, json.loads(line)["url"] if line.startswith("{") else line.split()[-1]
        finally:
            found.terminate()
            found.wait(20)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("sync", "--listen", "127.0.0.1:0", "--open"), "/sync/v1/heads"),
        (("serve", "--port", "0", "--json"), "/openapi.json"),
    ],
)
def test_a_connection_that_is_closed_before_the_answer_does_not_end_the_program(
    tmp_path: Path, words: tuple[str, ...], path: str
) -> None:
    subprocess.run(
        [sys.executable, "-m", "everlog", "init", "-q"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL
    )
    with running(*words, cwd=tmp_path) as (found, url):
        where = urlsplit(url)
        asked = f"GET {path} HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode()
        for number in range(40):
            with socket.create_connection((str(where.hostname), where.port or 80)) as connection:
                if number % 2:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(asked)  # the first piece of the answer is lost, and the next one finds it closed
        time.sleep(0.5)
        assert found.poll() is None
        with socket.create_connection((str(where.hostname), where.port or 80), timeout=20) as connection:
            connection.sendall(asked)
            assert connection.recv(8) == b"HTTP/1.1"
