"""A server that runs for long does not grow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.server.running import NOTE, Running, new_log, running

GROWTH_BYTES_MAX = 16 * 1024 * 1024


def test_requests_leave_no_memory_behind(tmp_path: Path) -> None:
    """The short form: as many requests again as it took to warm up."""
    with running(new_log(tmp_path), environment={"EVERLOG_REQUESTS_PER_SECOND": "0"}) as server:
        warm = resident_after(server, 1500)
        assert resident_after(server, 1500) - warm < GROWTH_BYTES_MAX


@pytest.mark.slow
def test_24000_requests_in_ten_minutes_leave_no_memory_behind(tmp_path: Path) -> None:
    with running(new_log(tmp_path)) as server:
        began = time.monotonic()
        warm = resident_after(server, 2400, until=began + 60.0)
        grown = [resident_after(server, 2400, until=began + 60.0 * minute) - warm for minute in range(2, 11)]
        assert time.monotonic() - began > 595.0
        print("growth by minute, in KB:", [one // 1024 for one in grown])
        assert max(grown) < GROWTH_BYTES_MAX


def resident_after(server: Running, requests: int, *, until: float = 0.0) -> float:
    """Send requests of every kind, spread over the time up to a moment, and return the memory of the server then."""
    with server.client() as client:
        for n in range(requests):
            match n % 6:
                case 0:
                    answer = client.post("/v1/events", json=NOTE, headers={"idempotency-key": f"{time.time_ns()}"})
                    assert answer.status_code == 201
                case 1:
                    assert client.get("/v1/events?limit=50&order=newest").status_code == 200
                case 2:
                    assert client.post("/v1/events", json={**NOTE, "type": "no.such"}).status_code == 422
                case 3:
                    assert client.get(f"/nothing/{n}").status_code == 404
                case 4:
                    assert client.get("/v1/ask/issues.list", headers={"x-request-id": f"r{n}"}).status_code == 200
                case _:
                    assert client.get("/v1/events", headers={"authorization": f"Bearer evl_{n}"}).status_code == 401
            left_s, left = until - time.monotonic(), requests - n
            if left_s > 0:
                time.sleep(left_s / left)
    return server.metrics()["process_resident_memory_bytes"]
