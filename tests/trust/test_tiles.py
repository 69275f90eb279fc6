"""The tree of a log in tiles: on every store, beside other processes, after a purge, a restore and damage."""

from __future__ import annotations

import logging
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import everlog
from everlog.core.codec import header_hash, purge_bytes
from everlog.core.event import Position, Purge, Purged
from everlog.core.merkle import consistency, is_consistent, path, root, root_of_path
from everlog.errors import Damaged, NotFound, ReadOnly
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.trust import tiles
from everlog.trust.leaves import leaves
from everlog.trust.tiles import SPACE, Tree

STORES = ("memory", "sqlite", "jsonl", "segments", "postgres")


@pytest.fixture(params=STORES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Log]]:
    """Return a function that opens one more handle on one log."""
    kind = request.param
    url = f"{kind}:{tmp_path}/log"
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
    opened: list[Log] = []

    def open_one() -> Log:
        if kind != "memory" or not opened:
            opened.append(everlog.open("memory:" if kind == "memory" else url, actor="user:ada"))
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


def record(log: Log, count: int, *, at_once: int = 100) -> None:
    head = log.head()
    for first in range(head, head + count, at_once):
        numbers = range(first, min(first + at_once, head + count))
        log.append_batch([Draft("note.added", f"note/{n % 7}", {"text": f"note {n}"}) for n in numbers])


def by_definition(log: Log) -> list[bytes]:
    """Return the leaves, from the slots and purges alone."""
    found = {purge.reserved: header_hash(purge_bytes(purge)) for purge in log.stored.purges()}
    for place in log.stored.slots():
        found[place.position] = place.hash if isinstance(place, Purged) else header_hash(place.header)
    return [found[Position(position)] for position in range(1, log.head() + 1)]


def require_proofs(log: Log, expected: Sequence[bytes], *, seed: int = 0) -> None:
    """Compare roots and proofs of some sizes with those of the whole list of leaves."""
    chosen = random.Random(seed)
    size = len(expected)
    for _ in range(8):
        new = chosen.randint(1, size)
        old, index = chosen.randint(1, new), chosen.randrange(new)
        now, before = list(expected[:new]), root(expected[:old])
        assert log.tree.root(new) == root(now)
        found = log.tree.inclusion(index, new)
        assert tuple(found) == path(now, index)
        assert root_of_path(log.tree.leaf(index), index, new, found) == root(now)
        assert log.tree.consistency(old, new) == consistency(now, old)
        assert is_consistent(old, before, new, root(now), log.tree.consistency(old, new))


def test_the_tree_is_that_of_all_positions_in_order(open_again: Callable[[], Log]) -> None:
    log = open_again()
    assert log.tree.head().size == 0
    assert log.tree.head().root == root([])
    for more in (1, 254, 1, 1, 700):
        record(log, more)
        head = log.tree.head()
        expected = by_definition(log)
        assert (head.size, head.root) == (log.head(), root(expected))
        require_proofs(log, expected, seed=more)
    with pytest.raises(NotFound):
        log.tree.root(log.head() + 1)


def test_a_purge_changes_no_leaf(open_again: Callable[[], Log]) -> None:
    log, other = open_again(), open_again()
    record(log, 300)
    before, leaves_before = log.tree.head(), by_definition(log)
    log.purge("note/3", reason="asked to")
    record(log, 20)

    head = other.tree.head()
    assert by_definition(other)[:300] == leaves_before
    assert is_consistent(300, before.root, head.size, head.root, other.tree.consistency(300, head.size))
    require_proofs(other, by_definition(other))
    (purge,) = other.stored.purges()
    assert other.tree.leaf(purge.reserved - 1) == header_hash(purge_bytes(purge))
    # Also where nothing is known from before.
    assert [hash for piece in leaves(other.stored, after=0, upto=head.size) for hash in piece] == by_definition(other)


def test_two_handles_make_one_tree(open_again: Callable[[], Log]) -> None:
    log, other = open_again(), open_again()
    record(log, 600)
    assert log.tree.head() == other.tree.head()
    record(log, 10)
    assert other.tree.head().size == 610
    record(log, 300)
    assert log.tree.head() == other.tree.head()
    require_proofs(log, by_definition(other))


def test_the_tiles_are_stored(open_again: Callable[[], Log], monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_again()
    record(log, 600)
    expected, head = by_definition(log), log.tree.head()
    if log.identity.log_id and log.stored.__class__.__name__ != "MemoryStore":
        log.close()
    again = open_again()
    monkeypatch.setattr(tiles, "leaves", None)  # nothing is computed again
    assert Tree(again._store).head() == head
    require_proofs(again, expected)


def test_a_tree_that_grows_in_pieces(open_again: Callable[[], Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "GROWTH", 100)
    log = open_again()
    record(log, 530)
    assert log.tree.head().root == root(by_definition(log))


@pytest.mark.parametrize("key", ["0/0", "0/1", "0/2", "1/0", "head"])
@pytest.mark.parametrize("how", ["changed", "removed", "cut"])
def test_a_damaged_tile_is_made_again_and_reported(
    open_again: Callable[[], Log], caplog: pytest.LogCaptureFixture, key: str, how: str
) -> None:
    log = open_again()
    record(log, 600)
    head, expected = log.tree.head(), by_definition(log)
    damage(log, key, how)

    caplog.set_level(logging.WARNING, "everlog")
    tree = Tree(log._store)
    for index in (0, 300, 599):
        assert tuple(tree.inclusion(index, 600)) == path(expected, index)
    assert tree.head() == head
    if (key, how) != ("head", "removed"):
        assert "rebuilt" in caplog.text
    caplog.clear()
    assert Tree(log._store).inclusion(300, 600) == list(path(expected, 300))
    assert caplog.text == ""


def damage(log: Log, key: str, how: str) -> None:
    state = log.writer.small_state
    data = state.get(SPACE, key)
    assert data is not None
    other = {"changed": data[:-1] + bytes([data[-1] ^ 1]), "removed": None, "cut": data[:-32]}[how]
    with state.change() as change:
        change.put(SPACE, {key: other})


@pytest.mark.parametrize("growth", [100, 1000])
def test_a_changed_event_is_noticed_when_the_tree_is_made_again(monkeypatch: pytest.MonkeyPatch, growth: int) -> None:
    monkeypatch.setattr(tiles, "GROWTH", growth)
    with everlog.open("memory:", actor="user:ada") as log:
        record(log, 300)
        log.tree.head()
        damage(log, "0/0", "cut")
        slots = vars(log._store)["_slots"]
        slots[99] = replace(slots[99], header=slots[99].header.replace(b"user:ada", b"user:eve"))
        for _ in range(2):  # and it is not forgotten
            with pytest.raises(Damaged, match="make another tree than before"):
                Tree(log._store).inclusion(1, 300)


def test_damage_of_the_log_is_not_signed_over(tmp_path: Path) -> None:
    with everlog.open(f"jsonl:{tmp_path}/log", actor="user:ada") as log:
        record(log, 20)
    (day,) = (tmp_path / "log" / "events").glob("*.jsonl")
    lines = day.read_text().splitlines(keepends=True)
    day.write_text("".join([*lines[:10], lines[10].replace("note", "node"), *lines[11:]]))
    with everlog.open(f"jsonl:{tmp_path}/log", actor="user:ada") as log, pytest.raises(Damaged):
        log.tree.head()


@pytest.mark.parametrize("kind", ["sqlite", "segments", "jsonl"])
def test_a_restored_log_has_another_tree(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    place, copy = tmp_path / "log", tmp_path / "copy"
    with everlog.open(f"{kind}:{place}", actor="user:ada") as log:
        record(log, 280)
    keep(place, copy)
    with everlog.open(f"{kind}:{place}", actor="user:ada") as log:
        record(log, 20)
        old = log.tree.head()
        prefix = log.tree.root(280)
    keep(copy, place)
    with everlog.open(f"{kind}:{place}", actor="user:ada") as log:
        record(log, 40)
        assert len(log.identity.lives) == 1
        new = log.tree.head()
        assert (new.size, new.root) == (320, root(by_definition(log)))
        assert log.tree.root(280) == prefix
        assert log.tree.root(300) != old.root
        assert not is_consistent(300, old.root, 320, new.root, log.tree.consistency(300, 320))


def keep(source: Path, target: Path) -> None:
    """Copy a log. What is beside it stays where it is: tiles in a separate file, and how far the log had come."""
    if source.is_file():
        shutil.copyfile(source, target)
        return
    for old in (target / "segments", target / "events"):
        shutil.rmtree(old, ignore_errors=True)
    beside = shutil.ignore_patterns("lock", "views*", "*.lock")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=beside)


def test_a_log_that_was_cut_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its tiles are in a separate file, and know more events than the log has."""
    place, copy = tmp_path / "log", tmp_path / "copy"
    with everlog.open(f"segments:{place}", actor="user:ada") as log:
        record(log, 280)
    keep(place, copy)
    with everlog.open(f"segments:{place}", actor="user:ada") as log:
        record(log, 20)
        log.tree.head()
    keep(copy, place)
    with everlog.open(f"segments:{place}", actor="user:ada") as log:
        assert log.tree.head().size == log.head() == 280
        assert log.tree.head().root == root(by_definition(log))
    assert "cut or put back" in caplog.text


def test_a_user_who_may_not_store_tiles_gets_proofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log", actor="user:ada") as log:
        record(log, 300)
        log.tree.head()
        record(log, 300)
        tree = Tree(log._store)

        def refuse() -> None:
            raise ReadOnly("this user may only read")

        monkeypatch.setattr(log.writer.small_state, "change", refuse)
        expected = by_definition(log)
        assert tree.head().root == root(expected)
        assert tuple(tree.inclusion(555, 600)) == path(expected, 555)


BUILDER = """
import sys, everlog
with everlog.open(sys.argv[1], actor="user:ada") as log:
    for _ in range(30):
        print(log.tree.head().size, flush=True)
"""


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_two_processes_make_tiles_while_a_third_writes(tmp_path: Path, kind: str) -> None:
    url = f"{kind}:{tmp_path}/log"
    with everlog.open(url, actor="user:ada") as log:
        record(log, 3000)
        builders = [
            subprocess.Popen([sys.executable, "-c", BUILDER, url], stdout=subprocess.PIPE, text=True) for _ in "12"
        ]
        for _ in range(40):
            record(log, 30)
        for builder in builders:
            sizes = [int(line) for line in builder.communicate(timeout=60)[0].split()]
            assert builder.returncode == 0
            assert len(sizes) == 30
            assert sizes == sorted(sizes)
        assert log.tree.head().root == root(by_definition(log))
        require_proofs(log, by_definition(log))


def test_copies_have_the_same_tree(tmp_path: Path) -> None:
    """The leaves are the same in every store, those of purges, too."""
    from everlog.testing.copy_contract import put, slots_of

    with everlog.open(f"sqlite:{tmp_path}/one", actor="user:ada") as log:
        record(log, 300)
        log.purge("note/3", reason="asked to, by “Ada”")
        record(log, 7)
        for kind in ("jsonl", "segments", "memory"):
            with everlog.open("memory:" if kind == "memory" else f"{kind}:{tmp_path}/{kind}") as copy:
                put(copy._store, slots_of(log._store))
                assert copy.tree.head().root == log.tree.head().root


def test_the_bytes_of_a_purge() -> None:
    purge = Purge(Position(9), "note/1", ("a/b", "c"), "user:ada", "asked “to”", 1_700_000_000_000_001, 4, 3)
    text = '["purge","note/1",["a/b","c"],"user:ada","asked “to”",1700000000000001]'
    assert purge_bytes(purge) == text.encode()
