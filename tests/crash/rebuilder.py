"""A process that appends, takes snapshots and rebuilds again and again: the victim of the crash tests of views.

Run as `python rebuilder.py URL`. It tells of everything that it begins and of everything that it has done, so that it
can be killed in the middle of any of it, however slow the machine is:

    ready                  it begins
    snap, snapped VIEW N   before and after a snapshot, with the position that it covers
    step                   after each page of a rebuild
    switch, switched       before and after a build takes the place of another
"""

from __future__ import annotations

import os
import sys

import everlog
from everlog.log.log import Log
from everlog.stores.small_state import SmallState
from everlog.views.builds.open_build import OpenBuild
from everlog.views.builtin import Streams, Types
from everlog.views.rebuild import blue_green


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(url: str) -> None:
    activate = blue_green.activate

    def told(log: Log, small_state: SmallState, opened: OpenBuild) -> bool | None:
        tell("switch")
        done = activate(log, small_state, opened)
        tell("switched")
        return done

    blue_green.activate = told
    with everlog.open(url, actor="agent:rebuilder") as log:
        streams = log.views.register(Streams, mode="inline")
        types = log.view(Types)
        tell("ready")
        for number in range(1_000_000):
            log.append("note.added", stream=f"note/{log.head() % 7}", payload={"text": "more"})
            for handle in (streams, types):
                tell("snap")
                entry = handle.snapshot(full=number % 3 == 0)
                tell(f"snapped {handle.view.name} {entry.position}")
                done = handle.rebuild(limit=5, progress=lambda position: tell("step"))
                assert done.same is not False, done


if __name__ == "__main__":
    main(sys.argv[1])
