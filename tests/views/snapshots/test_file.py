"""The file of a snapshot: every changed byte is detected, and a signature is checked."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.conftest import Said
from tests.views.snapshots.logs import (
    fill,
    with_snapshots,
)

from everlog.errors import Damaged
from everlog.log.log import Log


def test_every_flipped_byte_is_noticed_or_harmless(make_log: Callable[..., Log], folder: Path) -> None:
    log = make_log("memory", **with_snapshots(folder))
    fill(log, 12)
    entry = log.view(Said).snapshot()
    whole = entry.path.read_bytes()
    right = log.views.snapshots.folder.load(entry)
    noticed = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        entry.path.write_bytes(damaged)
        try:
            found = log.views.snapshots.folder.load(entry)
        except Damaged:
            noticed += 1
        else:  # gzip's own header has bytes that mean nothing
            assert (found.header, found.body) == (right.header, right.body)
    assert noticed > len(whole) - 20


def test_a_signature_is_made_and_judged_where_there_is_a_key(make_log: Callable[..., Log], folder: Path) -> None:
    class Signer:
        accepted = True

        def sign(self, data: bytes) -> tuple[str, bytes]:
            return "key-1", data[-4:]

        def is_right(self, key: str, data: bytes, signature: bytes) -> bool:
            return self.accepted and key == "key-1" and signature == data[-4:]

    signer = Signer()
    log = make_log("memory", **with_snapshots(folder, signer=signer))
    fill(log, 3)
    entry = log.view(Said).snapshot()
    assert b'"key":"key-1"' in gzip.decompress(entry.path.read_bytes())
    assert log.views.snapshots.folder.load(entry).header == entry.header
    signer.accepted = False
    with pytest.raises(Damaged, match="signature"):
        log.views.snapshots.folder.load(entry)
