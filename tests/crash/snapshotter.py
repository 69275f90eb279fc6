"""Appends and makes snapshots until it is killed. Says `ready`, then the position of every snapshot that was made."""

from __future__ import annotations

import sys

import everlog
from everlog.views.fields import Fields


def main(path: str) -> None:
    with everlog.open(f"sqlite:{path}", actor="user:ada") as log:
        view = log.view(Fields)
        view.catch_up()
        print("ready", flush=True)
        for number in range(1_000_000):
            drafts = [
                everlog.Draft(
                    type="note.added", stream=f"note/{number % 7}-{part}", payload={"text": f"{number}" * 9}
                )
                for part in range(3)
            ]
            log.append_batch(drafts)
            entry = view.snapshot(full=number % 3 == 0)
            print(entry.position, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
