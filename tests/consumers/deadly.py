"""A process with a handler that one event kills: a fault in a library, say, or too little memory.

Run as `python deadly.py URL`. It ends well when there is nothing more for it.
"""

from __future__ import annotations

import os
import signal
import sys

import everlog
from everlog.consumers import Group
from everlog.core.event import Recorded
from everlog.core.query import Query


def handle(recorded: Recorded) -> None:
    if recorded.event.payload["text"] == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)


def main(url: str) -> None:
    with everlog.open(url, actor="agent:deadly") as log:
        group = Group(log, "deadly", Query(kind="note"), partitions=2, attempts_max=2, retry_s=0.01)
        with group.member("only") as member:
            member.run(handle, to_end=True)


if __name__ == "__main__":
    main(sys.argv[1])
