"""Several servers of one log in PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.server.listen.follower import Follower
from tests.server.listen.test_slow_clients import wait_until
from tests.server.running import NOTE, Running, running

import everlog


def test_two_servers_of_one_log_share_its_events_its_keys_and_its_streams(postgres_url: str) -> None:
    everlog.open(postgres_url, actor="user:host").close()
    with running(postgres_url) as one, running(postgres_url) as other:
        follower = Follower(other)

        def append(n: int) -> tuple[int, bytes]:
            server = (one, other)[n % 2]
            with server.client() as client:
                event = {**NOTE, "payload": {"text": f"text {n // 2}"}}
                answer = client.post("/v1/events", json=event, headers={"idempotency-key": f"key {n // 2}"})
                assert answer.status_code == 201, answer.text
                return n // 2, answer.content

        # More requests at once than either has threads: each key is sent to both servers.
        with ThreadPoolExecutor(24) as pool:
            answers = set(pool.map(append, range(96)))
        assert len(answers) == 48
        with ThreadPoolExecutor(24) as pool:
            heads = set(pool.map(head_at, [one, other] * 24))
        assert heads == {48}
        wait_until(lambda: len(follower.positions) == 48, upto_s=10.0)
        assert follower.positions == list(range(1, 49))
        assert one.terminate() < 10.0
        with other.client() as client:
            assert client.post("/v1/events", json=NOTE).status_code == 201
        wait_until(lambda: len(follower.positions) == 49, upto_s=10.0)
        assert other.terminate() < 10.0
        follower.end()
        assert follower.bye["reason"] == "shutdown"


def head_at(server: Running) -> int:
    with server.client() as client:
        return int(client.get("/v1/events").json()["head"])
