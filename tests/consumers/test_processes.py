"""Consumers in processes of their own, killed and stopped at any moment: no event is skipped, no key out of order."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.consumers.consumer import LEASE_S, open_group

import everlog

CONSUMER = Path(__file__).with_name("consumer.py")
PROCESSES = 3
KILLS, KILLS_FULL = 6, 60
KEYS = 12


def test_killed_and_stopped_consumers_skip_nothing_and_keep_the_order(
    shared_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = KILLS_FULL if pytestconfig.getoption("--full") else KILLS
    chance = random.Random(8)
    effects = tmp_path / "effects"
    running: list[subprocess.Popen[bytes]] = []

    def start(number: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, str(CONSUMER), shared_url, str(effects), f"c{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    written: dict[int, str] = {}
    with everlog.open(shared_url) as log:
        group = open_group(log)

        def append(count: int) -> None:
            for _ in range(count):
                stream = f"note/{chance.randrange(KEYS)}"
                written[log.append("note.added", stream=stream, payload={"text": "x"}).position] = stream

        append(5)
        try:
            running = [start(number) for number in range(PROCESSES)]
            for round_number in range(kills):
                append(20)
                time.sleep(chance.uniform(0, 0.1))
                victim = running.pop(chance.randrange(len(running)))
                if round_number % 3 == 2:
                    # It sleeps for longer than its lease and wakes up in the middle of whatever it did.
                    victim.send_signal(signal.SIGSTOP)
                    time.sleep(LEASE_S * 1.5)
                    victim.send_signal(signal.SIGCONT)
                    running.append(victim)
                else:
                    victim.kill()
                    victim.communicate()
                    running.append(start(PROCESSES + round_number))
            append(20)
            deadline = time.monotonic() + 60
            while any(lag.events for lag in group.lag()) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert [lag for lag in group.lag() if lag.events] == []
            assert group.dead_letters() == []
        finally:
            for process in running:
                process.kill()
                process.communicate()
    lines = [line.split(" ") for line in effects.read_text().splitlines()]
    require_order(written, [(int(line[0]), int(line[2]), int(line[3])) for line in lines])
    assert len({line[4] for line in lines}) > 1, "one process did it all"
    print(f"{kills} kills and stops, {len(written)} events, {len(lines)} effects")


def require_order(written: dict[int, str], effects: list[tuple[int, int, int]]) -> None:
    """As a receiver sees it that refuses older tokens: each key in order, and everything at least once."""
    tokens: dict[int, int] = {}
    handled: set[int] = set()
    for position, partition, token in effects:
        if token < tokens.get(partition, 0):
            continue
        tokens[partition] = token
        earlier = {place for place, stream in written.items() if stream == written[position] and place < position}
        assert earlier <= handled, f"{position} came before {sorted(earlier - handled)}"
        handled.add(position)
    assert set(written) - handled == set(), "some were skipped"


@pytest.mark.parametrize(
    "effects",
    [
        [(1, 0, 1), (3, 0, 1)],
        [(2, 0, 1), (1, 0, 1), (3, 0, 1)],
        [(1, 0, 2), (2, 0, 1), (3, 0, 2)],
    ],
)
def test_the_check_of_the_order_can_fail(effects: list[tuple[int, int, int]]) -> None:
    with pytest.raises(AssertionError):
        require_order({1: "note/1", 2: "note/1", 3: "note/2"}, effects)
