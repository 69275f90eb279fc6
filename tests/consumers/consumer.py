"""A process that consumes and writes down what it does: the victim of the tests with kill -9.

Run as `python consumer.py URL EFFECTS NAME`. An effect is one line, written with a single system call before the
acknowledgement: position, stream, partition, token, name.
"""

from __future__ import annotations

import os
import sys

import everlog
from everlog.consumers import Group
from everlog.core.query import Query
from everlog.errors import LeaseLost

PARTITIONS = 6
LEASE_S = 1.0


def open_group(log: everlog.Log) -> Group:
    return Group(log, "victims", Query(kind="note"), partitions=PARTITIONS, lease_s=LEASE_S, prefetch=10)


def main(url: str, effects: str, name: str) -> None:
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with everlog.open(url, actor=f"agent:{name}") as log, open_group(log).member(name) as member:
        os.write(1, b"ready\n")
        for delivery in member:
            line = f"{delivery.position} {delivery.key} {delivery.partition} {delivery.token} {name}\n"
            os.write(file, line.encode())
            try:
                delivery.ack()
            except LeaseLost:
                continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
