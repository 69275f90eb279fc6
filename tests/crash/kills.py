"""SIGKILL at any moment, hundreds of times: the victim dies, its log goes on (G1, G2, R4)."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.crash.ledger import Ledger
from tests.crash.rows import Row, Skip
from tests.crash.victims import Nursery

from everlog.demo.postgres_server import NoServer, start_server

ROUNDS_PER_LOG = 20  # then a new one: reading it all after each kill would take ever longer
ALIVE_S = 0.06


def kill_writers(row: Row, *, url: str, kills: int, seed: int = 4) -> None:
    """Kill writers of a log of this URL; `{}` in it stands for a number."""
    chance = random.Random(f"{seed} {row.subject}")
    began = 0
    with Nursery() as nursery:
        while row.count < kills:
            ledger = Ledger(url.format(row.count))
            for _ in range(min(ROUNDS_PER_LOG, kills - row.count)):
                victim = nursery.start(ledger.url, name=f"w{row.count}")
                output = victim.watch(5, until_bytes=chance.choice([0, 1, 1, 1]))
                output += victim.watch(chance.uniform(0, ALIVE_S))
                ledger.take(output + victim.kill(), row)
                row.count += 1
                _judge(ledger, row)
            for failure in ledger.failures:
                row.broken(failure)
            began += ledger.began
    if began < kills // 2:
        row.broken(f"only {began} of {kills} victims got as far as appending: the kills came too early to mean much")
    row.remark = f"{began} of them while appending"


def _judge(ledger: Ledger, row: Row) -> None:
    if ledger.began:
        # Of a cut write at most a batch can be there without its acknowledgement. A server ends the write of a client
        # that was killed, perhaps only after it was looked at: then it is there with the next one's.
        at_most = 6 if ledger.url.startswith("postgresql:") else 3
        ledger.judge(row, unacknowledged_max=at_most, when=f"kill {row.count}")


def crash_servers(row: Row, *, crashes: int, seed: int = 5) -> None:
    """Stop a PostgreSQL server at once, while somebody appends; start it again, and look."""
    chance = random.Random(seed)
    try:
        server = start_server()
    except NoServer as error:
        raise Skip(f"no PostgreSQL: {error}") from error
    with server, Nursery() as nursery:
        ledger = Ledger(f"{server.url}&schema=crashed")
        for number in range(crashes):
            victim = nursery.start(ledger.url, name=f"w{number}")
            output = victim.watch(5, until_bytes=1) + victim.watch(chance.uniform(0, 0.3))
            server.crash()
            ledger.take(output + victim.kill(), row)
            server.start()
            row.count += 1
            if ledger.began:
                ledger.judge(row, unacknowledged_max=3, when=f"crash {row.count}")
    row.remark = f"{len(ledger.acknowledged)} events"


def kill_postgres_clients(row: Row, *, kills: int) -> None:
    try:
        server = start_server()
    except NoServer as error:
        raise Skip(f"no PostgreSQL: {error}") from error
    with server:
        kill_writers(row, url=f"{server.url}&schema=log{{}}", kills=kills)


def kill_file_writers(row: Row, *, kills: int) -> None:
    with tempfile.TemporaryDirectory(prefix="everlog-kill-") as folder:
        kill_writers(row, url=f"{row.subject}:{Path(folder)}/log{{}}", kills=kills)
