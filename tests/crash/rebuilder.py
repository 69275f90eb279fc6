"""A process that rebuilds a view again and again while it appends: the victim of the crash tests of views.

Run as `python rebuilder.py URL`. It tells when it is ready, and a line for every rebuild that ended.
"""

from __future__ import annotations

import os
import sys

import everlog
from everlog.views.builtin import Streams, Types


def main(url: str) -> None:
    with everlog.open(url, actor="agent:rebuilder") as log:
        streams = log.views.register(Streams, mode="inline")
        types = log.view(Types)
        os.write(1, b"ready\n")
        while True:
            log.append("note.added", stream=f"note/{log.head() % 7}", payload={"text": "more"})
            for handle in (streams, types):
                done = handle.rebuild(limit=20)
                assert done.same is not False, done
                os.write(1, f"{done.resumed_at} {done.build}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1])
