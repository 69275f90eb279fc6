"""The key ring: durable, shared by processes, and without what was destroyed."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from everlog.errors import Damaged, NoKey
from everlog.trust.keys import PrivateKey
from everlog.trust.ring import KeyRing
from everlog.trust.unfinished import Unfinished


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_key_survives_reopening(tmp_path: Path) -> None:
    key = KeyRing(tmp_path / "keys" / "ring").keys_of(["ada"])["ada"]
    again = KeyRing(tmp_path / "keys" / "ring")
    assert again.keys_of(["ada"])["ada"] == key
    assert again.key(key.id) == key.secret
    assert again.ids_of("ada") == [key.id]
    assert again.ids_of("bob") == []


def test_files_are_private_and_show_no_name(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys" / "ring")
    key = ring.keys_of(["ada-lovelace"])["ada-lovelace"]
    for path in (tmp_path / "keys").rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert path.name.startswith("lock") or path.stat().st_mode & 0o777 == wanted, path
    assert b"ada-lovelace" not in everything_in(tmp_path)
    assert key.secret not in everything_in(tmp_path)


def test_a_destroyed_key_is_gone_from_every_file(tmp_path: Path) -> None:
    ring, beside = KeyRing(tmp_path), KeyRing(tmp_path)
    keys = ring.keys_of(["ada", "bob"])
    assert beside.key(keys["ada"].id) == keys["ada"].secret
    wrapped = next(line for line in (tmp_path / "keys").read_bytes().splitlines() if keys["ada"].id.encode() in line)
    ring.destroy(ring.ids_of("ada"))

    assert wrapped not in everything_in(tmp_path)
    for one in (ring, beside, KeyRing(tmp_path)):
        assert one.ids_of("ada") == []
        assert one.key(keys["ada"].id) is None
        assert one.is_destroyed(keys["ada"].id)
        assert one.key(keys["bob"].id) == keys["bob"].secret
        assert not one.is_destroyed(keys["bob"].id)
    assert beside.keys_of(["ada"])["ada"].id != keys["ada"].id


def test_a_destroyed_key_does_not_come_back(tmp_path: Path) -> None:
    here, there = PrivateKey.new(), PrivateKey.new()
    ring, peer = KeyRing(tmp_path / "here", node_keys=[here]), KeyRing(tmp_path / "there", node_keys=[there])
    keys = ring.keys_of(["ada", "bob"])
    ids = [key.id for key in keys.values()]
    assert sorted(peer.take_in(ring.sealed_for(there.public, ids))) == sorted(ids)
    assert peer.key(keys["ada"].id) == keys["ada"].secret
    assert peer.ids_of("ada") == [keys["ada"].id]
    ring.destroy([keys["ada"].id])

    assert ring.take_in(peer.sealed_for(here.public, ids)) == []
    assert ring.key(keys["ada"].id) is None
    with pytest.raises(NoKey):
        peer.take_in(peer.sealed_for(here.public, ids))


def test_a_ring_does_not_use_a_key_that_the_log_knows_to_be_destroyed(tmp_path: Path) -> None:
    """An older copy of the ring was put back, and perhaps it cannot be written."""
    keys = KeyRing(tmp_path).keys_of(["ada", "bob"])
    ring = KeyRing(tmp_path, gone=[keys["ada"].id])
    assert (ring.key(keys["ada"].id), ring.key(keys["bob"].id)) == (None, keys["bob"].secret)
    assert ring.ids_of("ada") == []
    assert ring.held([keys["ada"].id, "unknown"]) == [keys["ada"].id]
    assert ring.keys_of(["ada"])["ada"].id != keys["ada"].id

    ring.destroy([keys["ada"].id])
    assert ring.held([keys["ada"].id]) == []
    assert KeyRing(tmp_path).key(keys["ada"].id) is None


def test_a_key_that_was_never_here_can_be_destroyed(tmp_path: Path) -> None:
    node = PrivateKey.new()
    peer = KeyRing(tmp_path / "peer")
    key = peer.keys_of(["ada"])["ada"]
    ring = KeyRing(tmp_path / "ring", node_keys=[node])
    ring.destroy([key.id])
    assert ring.take_in(peer.sealed_for(node.public, [key.id])) == []
    assert ring.destroyed == {key.id}


def test_a_ring_of_a_signed_log_needs_the_key_of_the_node(tmp_path: Path) -> None:
    node = PrivateKey.new()
    key = KeyRing(tmp_path, node_keys=[node]).keys_of(["ada"])["ada"]
    assert KeyRing(tmp_path, node_keys=[node]).key(key.id) == key.secret
    for others in ((), (PrivateKey.new(),)):
        without = KeyRing(tmp_path, node_keys=others)
        assert without.key(key.id) is None
        with pytest.raises(NoKey):
            without.keys_of(["bob"])


def test_a_ring_follows_a_rotated_key_and_a_log_that_is_signed_later(tmp_path: Path) -> None:
    old, new = PrivateKey.new(), PrivateKey.new()
    key = KeyRing(tmp_path).keys_of(["ada"])["ada"]
    KeyRing(tmp_path, node_keys=[old]).keys_of(["bob"])
    assert KeyRing(tmp_path).key(key.id) is None
    KeyRing(tmp_path, node_keys=[new, old]).keys_of(["eve"])
    assert KeyRing(tmp_path, node_keys=[new]).key(key.id) == key.secret
    assert KeyRing(tmp_path, node_keys=[old]).key(key.id) is None


def test_what_a_killed_process_left_of_a_line_is_replaced(tmp_path: Path) -> None:
    first = KeyRing(tmp_path).keys_of(["ada"])["ada"]
    with (tmp_path / "keys").open("ab") as file:
        file.write(b'["half of a li')
    ring = KeyRing(tmp_path)
    assert ring.key(first.id) == first.secret
    second = ring.keys_of(["bob"])["bob"]
    assert KeyRing(tmp_path).key(second.id) == second.secret


def test_a_damaged_ring_is_reported(tmp_path: Path) -> None:
    key = KeyRing(tmp_path).keys_of(["ada"])["ada"]
    path = tmp_path / "keys"
    good = path.read_bytes()
    path.write_bytes(b"nonsense\n" + good)
    with pytest.raises(Damaged):
        KeyRing(tmp_path).key(key.id)
    path.write_bytes(good.replace(key.id.encode(), b"B" * 22))
    with pytest.raises(Damaged):
        KeyRing(tmp_path).key("B" * 22)
    path.write_bytes(good[:-6] + b'A"]\n')
    with pytest.raises(Damaged):
        KeyRing(tmp_path).key(key.id)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"":"!"}', b'{"":"AAAA"}', None])
def test_a_damaged_secret_is_reported_and_not_replaced(tmp_path: Path, content: bytes | None) -> None:
    """With another secret, the one of a backup would be of no use any more."""
    key, path = KeyRing(tmp_path).keys_of(["ada"])["ada"], tmp_path / "secret"
    good = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(Damaged):
        KeyRing(tmp_path).keys_of(["ben"])
    assert (path.read_bytes() if path.exists() else None) == content
    path.write_bytes(good)
    assert KeyRing(tmp_path).key(key.id) == key.secret


def test_a_note_that_cannot_be_read_is_reported_with_what_to_do(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.make_folder()
    Unfinished(ring).write(b"a note")
    note = tmp_path / "forgetting"
    note.write_bytes(b"nonsense")
    with pytest.raises(Damaged) as caught:
        Unfinished(KeyRing(tmp_path)).read()
    assert str(note) in caught.value.hint


def _take_keys(folder: Path, results: multiprocessing.Queue[dict[str, str]]) -> None:
    ring = KeyRing(folder)
    found: dict[str, str] = {}
    for number in range(40):
        found |= {name: key.id for name, key in ring.keys_of([f"s{number}", f"own/{os.getpid()}/{number}"]).items()}
    results.put(found)


def test_several_processes_share_one_ring(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[dict[str, str]] = context.Queue()
    processes = [context.Process(target=_take_keys, args=(tmp_path, results)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    shared = [{name: key for name, key in one.items() if name.startswith("s")} for one in found]
    assert shared[0] == shared[1] == shared[2]
    ring = KeyRing(tmp_path)
    for one in found:
        for subject, key_id in one.items():
            assert ring.ids_of(subject) == [key_id]
