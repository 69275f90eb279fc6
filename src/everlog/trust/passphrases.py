"""Where a passphrase comes from: a file (also a file descriptor, /dev/fd/3), or the terminal.

Never an argument or the environment, which other processes can read.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from everlog.errors import NoKey
from everlog.files import DiskFiles
from everlog.trust.key_files import Passphrase

_BYTES_MAX = 4096


def asked_for(file: Path | None) -> tuple[Passphrase, Passphrase]:
    """Return what gives the passphrases of keys, and what gives those of new keys, which are typed twice.

    They are remembered in this process, and a file is read once: it may be a pipe.
    """
    known: dict[str, bytes] = {}

    def ask(name: str, *, twice: bool = False) -> bytes:
        place = "" if file is not None else name
        if place not in known:
            known[place] = _from_file(file) if file is not None else _from_terminal(name, twice=twice)
        return known[place]

    return ask, partial(ask, twice=True)


def _from_file(path: Path) -> bytes:
    files = DiskFiles()
    handle = files.open(path)
    try:
        found = bytearray()
        try:
            found += files.read(handle, _BYTES_MAX, at=0)
        except OSError:  # a pipe has no places in it
            found += _from_pipe(handle.number)
    finally:
        files.close(handle)
    if not (passphrase := bytes(found).rstrip(b"\r\n")):
        raise NoKey(f"{path} has no passphrase", why="the file is empty", hint="write the passphrase into it")
    return passphrase


def _from_pipe(descriptor: int) -> bytes:
    import os

    found = b""
    while len(found) < _BYTES_MAX and (more := os.read(descriptor, _BYTES_MAX)):
        found += more
    return found


def _from_terminal(name: str, *, twice: bool) -> bytes:
    if not sys.stdin.isatty():
        raise NoKey(
            f"the key {name} has a passphrase, and there is no terminal to ask for it",
            why="a passphrase is typed, or read from a file",
            hint="everlog config set passphrase_file /dev/fd/3, or run the command on a terminal",
        )
    import getpass

    passphrase = getpass.getpass(f"passphrase of {name}: ")
    if twice and (not passphrase or getpass.getpass("the same passphrase again: ") != passphrase):
        raise NoKey(
            "the new key was not written",
            why="the passphrase is empty, or the two that were typed differ",
            hint="try again",
        )
    return passphrase.encode()
