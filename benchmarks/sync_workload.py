"""The program that `syncs.py` watches: it appends, and writes a line to a file for every acknowledgement.

    python sync_workload.py DIRECTORY one|threads|batch ACKS

Every event carries a word of its own (`token-000017`), so that the watcher finds the write that holds it. The line of
the acknowledgement names the words that it stands for.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from benchmarks.bench.events import CATALOG, TYPE
from benchmarks.bench.ours import BATCH

import everlog

THREADS = 8


def main(directory: Path, mode: str, acks: int) -> None:
    log = everlog.open(f"sqlite:{directory / 'log.db'}", catalog=CATALOG)
    handle = os.open(directory / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def acknowledge(first: int, last: int) -> None:
        os.write(handle, f"ack {first} {last}\n".encode())

    def append(number: int) -> None:
        log.append(TYPE, stream=f"item/{number % 10}", payload=payload(number), key=f"request-{number}")
        acknowledge(number, number)

    def append_many(numbers: range) -> None:
        for number in numbers:
            append(number)

    match mode:
        case "one":
            append_many(range(acks))
        case "threads":
            each = acks // THREADS
            threads = [
                threading.Thread(target=append_many, args=(range(index * each, (index + 1) * each),))
                for index in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        case "batch":
            for first in range(0, acks * BATCH, BATCH):
                numbers = range(first, first + BATCH)
                drafts = [everlog.Draft(type=TYPE, stream="item/1", payload=payload(number)) for number in numbers]
                log.append_batch(drafts, key=f"request-{first}")
                acknowledge(first, first + BATCH - 1)
        case _:
            raise SystemExit(f"{mode!r} is none of one, threads, batch")
    log.close()


def payload(number: int) -> dict[str, str]:
    return {"feature": f"token-{number:06}", "came_from": "planned", "went_to": "doing", "reason": "to be watched"}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
