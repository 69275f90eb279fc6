"""Where a passphrase comes from: a file (also a file descriptor, /dev/fd/3), or the terminal.

Never an argument or the environment, which other processes can read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from everlog.errors import NoKey
from everlog.files import DiskFiles
from everlog.trust.key_files import Passphrase

_BYTES_MAX = 4096


def asked_for(file: Path | None) -> Passphrase:
    """Return what gives passphrases. They are remembered in this process."""
    known: dict[str, bytes] = {}

    def ask(name: str) -> bytes:
        if name not in known:
            known[name] = _from_file(file) if file is not None else _from_terminal(name)
        return known[name]

    return ask


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
    return bytes(found).rstrip(b"\r\n")


def _from_pipe(descriptor: int) -> bytes:
    import os

    found = b""
    while len(found) < _BYTES_MAX and (more := os.read(descriptor, _BYTES_MAX)):
        found += more
    return found


def _from_terminal(name: str) -> bytes:
    if not sys.stdin.isatty():
        raise NoKey(
            f"the key {name} has a passphrase, and there is no terminal to ask for it",
            why="a passphrase is typed, or read from a file",
            hint="everlog config set passphrase_file /dev/fd/3, or run the command on a terminal",
        )
    import getpass

    return getpass.getpass(f"passphrase of {name}: ").encode()
