"""Damage to one file, as disks, people and other programs do it. Each function takes a path and changes its file.

    damages = {**cuts(path), **additions(path), **flips(path, count=20)}
    for name, damage in damages.items():
        with_copy_of(log, lambda: damage(path))

`older_copy` and `swap` need a second file. A damage that would leave the file as it is, such as a cut of an empty
one, is left out, so that every one that is listed changes something.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

Damage = Callable[[Path], None]

GARBAGE = bytes(random.Random(7).randbytes(700))


def delete(path: Path) -> None:
    path.unlink()


def truncate(path: Path, *, to: int) -> None:
    """Cut the file to so many bytes."""
    with path.open("r+b") as file:
        file.truncate(to)


def zero_from(path: Path, *, start: int) -> None:
    """Keep the size, and write zeros from there on: as space that was never written."""
    content = path.read_bytes()
    path.write_bytes(content[:start] + bytes(len(content) - start))


def lengthen(path: Path, *, more: bytes) -> None:
    with path.open("ab") as file:
        file.write(more)


def flip(path: Path, *, at: int, bit: int = 0) -> None:
    """Change one bit."""
    with path.open("r+b") as file:
        file.seek(at)
        (found,) = file.read(1)
        file.seek(at)
        file.write(bytes([found ^ (1 << bit)]))


def older_copy(path: Path, *, content: bytes) -> None:
    """Put back what the file was at an earlier time."""
    path.write_bytes(content)


def swap(path: Path, other: Path) -> None:
    """Exchange the content of two files."""
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def cuts(path: Path, *, at: tuple[int, ...] = ()) -> dict[str, Damage]:
    """The file deleted, emptied, and cut or zeroed at several places; also at these."""
    size = path.stat().st_size
    places = sorted({0, 1, size // 4, size // 2, size * 9 // 10, size - 33, size - 1, *at} & set(range(size)))
    return {
        "deleted": delete,
        **{f"cut at {place}": partial(truncate, to=place) for place in places},
        **{
            f"zeros from {place}": partial(zero_from, start=place)
            for place in places
            if any(path.read_bytes()[place:])
        },
    }


def additions(path: Path) -> dict[str, Damage]:
    """The file made longer: by garbage, zeros, text, its own first and last bytes, and itself."""
    content = path.read_bytes()
    more = {
        "garbage": GARBAGE,
        "one byte": b"\1",
        "zeros": bytes(5000),
        "text": b"<<<<<<< HEAD\n",
        "its beginning": content[:300],
        "its end": content[-300:],
        "itself": content,
    }
    return {f"longer by {name}": partial(lengthen, more=added) for name, added in more.items() if added}


def flips(path: Path, *, count: int, seed: int = 1) -> dict[str, Damage]:
    """One bit changed, at places spread over the file."""
    size = path.stat().st_size
    chance = random.Random(f"{seed} {path.name}")
    places = sorted({chance.randrange(size) for _ in range(count)} | {0, size - 1}) if size else []
    return {
        f"bit {bit} of byte {place} flipped": partial(flip, at=place, bit=bit)
        for place in places
        for bit in (chance.randrange(8),)
    }
