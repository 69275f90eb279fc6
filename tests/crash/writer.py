"""A process that appends and tells what was acknowledged: the victim of the crash tests.

Run as `python writer.py PATH COUNT NAME`. Every acknowledged append is one line on standard output, written with a
single system call right after the append returned, so that a kill can only lose acknowledgements, never invent them.
"""

from __future__ import annotations

import os
import sys

import everlog


def main(path: str, count: int, name: str) -> None:
    with everlog.open(f"sqlite:{path}", actor=f"agent:{name}") as log:
        os.write(1, b"ready\n")
        for number in range(count):
            text = f"{name} {number}"
            if number % 3 == 2:
                batch = [
                    everlog.Draft(type="note.added", stream=f"note/{name}-{part}", payload={"text": f"{text} {part}"})
                    for part in range(3)
                ]
                records = log.append_batch(batch, key=f"{name}-{number}")
            else:
                records = [log.append("note.added", stream=f"note/{name}", payload={"text": text})]
            for recorded in records:
                line = f"{recorded.position} {recorded.event.id} {recorded.event.payload['text']}\n"
                os.write(1, line.encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
