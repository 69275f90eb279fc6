"""A client process that sends keyed appends until each is answered, and writes down every answer.

python -m tests.server.key_client PORT TOKEN KEYS SEED FILE

The keys come in an order of its own, some of them twice. It may be killed at any moment, and started again: a line of
the file that is whole is an answer that it got.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import sys
import time
from pathlib import Path


def main(port: int, token: str, keys: int, seed: int, path: Path) -> None:
    chosen = random.Random(seed)
    order = [*range(keys), *chosen.sample(range(keys), keys // 5)]
    chosen.shuffle(order)
    connection: http.client.HTTPConnection | None = None
    with path.open("a", encoding="utf-8") as file:
        for n in order:
            while True:
                try:
                    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                    status, body = send(connection, token, n)
                except (OSError, http.client.HTTPException):  # the server was killed; the next one has the same port
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(0.02)
                    continue
                if status not in (429, 503):
                    break
                time.sleep(0.02)
            file.write(f"{n} {status} {hashlib.sha256(body).hexdigest()}\n")
            file.flush()


def send(connection: http.client.HTTPConnection, token: str, n: int) -> tuple[int, bytes]:
    """Send the event of a key, and return the status and the body of the answer."""
    event = {"type": "note.added", "stream": f"note/{n % 7}", "payload": {"text": f"text {n}"}}
    headers = {
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "idempotency-key": f"key {n}",
    }
    connection.request("POST", "/v1/events", json.dumps(event), headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
