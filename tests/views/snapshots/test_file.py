"""The file of a snapshot: every changed byte is detected, and a signature is checked."""

from __future__ import annotations

import gzip
import hashlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.conftest import Said
from tests.views.snapshots.logs import (
    fill,
    with_snapshots,
)

from everlog.catalog.catalog import Catalog
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore
from everlog.testing.signing import key, signed_identity, signer
from everlog.views.snapshots.file import decompress, peek
from everlog.views.snapshots.sign import LogSigner, signer_of


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


def without_signature(packed: bytes) -> bytes:
    """Return a snapshot as somebody without the key could leave it: all right but the signature."""
    lines = gzip.decompress(packed).split(b"\n")
    seal = json.loads(lines[-2])
    lines[-2] = json.dumps({**seal, "key": "", "signature": ""}, separators=(",", ":")).encode()
    return gzip.compress(b"\n".join(lines), mtime=0)


def test_the_log_signs_its_snapshots_with_its_key(make_log: Callable[..., Log], folder: Path) -> None:
    store = MemoryStore(identity=signed_identity(key(1)))
    log = make_log("memory", **with_snapshots(folder, signer=LogSigner(signed_log(store))))
    fill(log, 3)
    entry = log.view(Said).snapshot()
    whole = entry.path.read_bytes()
    assert key(1).public.origin.encode() in gzip.decompress(whole)
    assert log.views.snapshots.folder.load(entry).header == entry.header
    # With the signature of another key, or without one, it is not used.
    mallory = LogSigner(signed_log(MemoryStore(identity=signed_identity(key(2)))))
    for other in (without_signature(whole), forged(whole, mallory)):
        entry.path.write_bytes(other)
        with pytest.raises(Damaged, match="sign"):
            log.views.snapshots.folder.load(entry)
        assert log.views.snapshots.newest(log.view(Said).view) is None


def signed_log(store: MemoryStore) -> Log:
    return Log(store, Catalog(), signer=signer(store, [key(1), key(2)]))


def forged(packed: bytes, by: LogSigner) -> bytes:
    end = gzip.decompress(packed).rfind(b"\n", 0, -1) + 1
    data = gzip.decompress(packed)[:end]
    name, signature = by.sign(b"everlog snapshot\n" + hashlib.sha256(data).digest())
    seal = {"sha256": hashlib.sha256(data).hexdigest(), "key": name, "signature": signature.hex()}
    return gzip.compress(data + json.dumps(seal).encode() + b"\n", mtime=0)


@pytest.mark.parametrize(
    ("line", "old", "new", "wrong"),
    [
        (0, b'"format":', b'"format":1', "another format"),
        (0, b'"cursor":"', b'"cursor":"x', "header cannot be read"),
        (0, b"{", b"[", "header cannot be read"),
        (1, b'"rows":', b'"lows":', "no body"),
        (2, b'"sha256":"', b'"sha256":"0', "not what was written"),
        (2, b"{", b"[", "no seal"),
        (2, b'"signature":"', b'"signature":"0', "signature is not valid"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_named(
    make_log: Callable[..., Log], folder: Path, line: int, old: bytes, new: bytes, wrong: str
) -> None:
    """A header or a body may be wrong although the seal is right."""
    own = LogSigner(signed_log(MemoryStore(identity=signed_identity(key(1)))))
    log = make_log("memory", **with_snapshots(folder, signer=own))
    fill(log, 3)
    entry = log.view(Said).snapshot()
    lines = gzip.decompress(entry.path.read_bytes()).splitlines(keepends=True)
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    changed = gzip.compress(b"".join(lines), mtime=0)
    entry.path.write_bytes(changed if line == 2 else forged(changed, own))
    with pytest.raises(Damaged, match=wrong):
        log.views.snapshots.folder.load(entry)


def test_a_log_without_a_key_has_unsigned_snapshots() -> None:
    assert signer_of(Log(MemoryStore(), Catalog())) is None
    assert signer_of(signed_log(MemoryStore(identity=signed_identity(key(1))))) is not None


BOMB = 50_000_000


def test_no_snapshot_is_decompressed_beyond_its_stated_size(make_log: Callable[..., Log], folder: Path) -> None:
    log = make_log("memory", **with_snapshots(folder))
    fill(log, 3)
    entry = log.view(Said).snapshot()
    whole = gzip.decompress(entry.path.read_bytes())
    head, rest = whole.split(b"\n", 1)
    bombs = {
        "more than its header states": gzip.compress(head + b"\n" + b" " * BOMB + rest),
        "more than its end states": gzip.compress(head + b"\n" + b" " * BOMB + rest)[:-4]
        + (100).to_bytes(4, "little"),
        "two files in one": gzip.compress(whole) + gzip.compress(b" " * BOMB),
        "no first line": gzip.compress(b" " * BOMB),
    }
    for name, bomb in bombs.items():
        entry.path.write_bytes(bomb)
        tracemalloc.start()
        with pytest.raises(Damaged):
            log.views.snapshots.folder.load(entry)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < BOMB / 10, name
    with pytest.raises(Damaged):
        peek(bombs["no first line"])
    with pytest.raises(Damaged):
        decompress(b"")
