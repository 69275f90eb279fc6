"""A process that rebuilds a view again and again while it appends: the victim of the crash tests of views.

Run as `python rebuilder.py URL`. It tells when it is ready, and then of every step, so that it can be killed after
any of them, however slow the machine is.
"""

from __future__ import annotations

import os
import sys

import everlog
from everlog.views.builtin import Streams, Types


def tell(line: bytes) -> None:
    os.write(1, line)


def main(url: str) -> None:
    with everlog.open(url, actor="agent:rebuilder") as log:
        streams = log.views.register(Streams, mode="inline")
        types = log.view(Types)
        tell(b"ready\n")
        while True:
            log.append("note.added", stream=f"note/{log.head() % 7}", payload={"text": "more"})
            for handle in (streams, types):
                done = handle.rebuild(limit=2, progress=lambda position: tell(b"step\n"))
                assert done.same is not False, done


if __name__ == "__main__":
    main(sys.argv[1])
