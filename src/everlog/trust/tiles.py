"""The tree of a log (RFC 9162) over all its positions in order, kept as tiles of 256 hashes.

    level 2    [ 0 1 2 … ]                            each hash is the root of a full tile below
    level 1    [ 0 1 … 255 ]  [ 256 … ]
    level 0    [ 0 … 255 ]  [ 256 … 511 ]  …          the leaves: position 1 is leaf 0

Tiles are derived: they are rows of the small state, made when a checkpoint or a proof is asked for, and cost nothing
at append. One row has the life of the log, the size of the tree and its root. The last tile of a level may be
incomplete; all incomplete tiles together lead to that root, and a full tile leads to its hash in the level above. So
each tile is checked before it is used. If one does not match, all of them are rebuilt from the events, and this is
reported; if the events then make another tree than the one that was there, the log was changed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import TypeVar
from zlib import crc32

import msgspec

from everlog.core.merkle import consistency_ranges, inclusion_ranges, node, root, split
from everlog.errors import Damaged, NotFound, ReadOnly
from everlog.stores.contract import Store
from everlog.stores.small_state import StateChanges, StateEmptied
from everlog.trust.leaves import leaves

TILE = 256
SPACE = "tree"
"""The space of the tiles in the small state."""

GROWTH = 256 * TILE
"""How many leaves are added with one change of the small state at the most."""

TILES_HELD_MAX = 256
"""How many tiles that were checked are held in memory, 16 KB each."""

_HASH = 32
_BITS = 8  # of an index within a tile
_FULL = TILE * _HASH
_HEAD = "head"
_ATTEMPTS = 5

_T = TypeVar("_T")

_logger = logging.getLogger("everlog")
_sha256 = hashlib.sha256


class TreeHead(msgspec.Struct, frozen=True, array_like=True):
    """The size and the root of a tree."""

    life: str
    size: int
    root: bytes
    was: tuple[int, bytes] = (0, b"")  # while it is rebuilt: a size and root that it must have had


class _DamagedTile(Exception):
    """A tile is missing, or does not lead to the hash above it."""


class Tree:
    """The tree of one log. Any number of processes may make its tiles at once: they make the same ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._row: bytes | None = None  # the stored row that `_head` was read from
        self._head = _nothing("")
        self._nodes = _Nodes(0, self._read_tile)
        self._unsaved: dict[str, bytes] | None = None  # the tiles of a user who may not store any

    # ---- what it answers

    def head(self) -> TreeHead:
        """Bring the tree up to the head of the log, and return it."""
        return self._sound(lambda: self._grown(self._store.head()))

    def root(self, size: int) -> bytes:
        """Return the root of the tree when it had so many leaves."""
        return self._ask(size, lambda nodes: nodes.hash_of(0, size))

    def leaf(self, index: int) -> bytes:
        return self._ask(index + 1, lambda nodes: nodes.hash_of(index, index + 1))

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the hashes that lead from a leaf to the root of the tree of this size."""
        ranges = inclusion_ranges(index, size)
        return self._ask(size, lambda nodes: [nodes.hash_of(*one) for one in ranges])

    def consistency(self, old: int, size: int) -> list[bytes]:
        """Return the proof that the tree of `old` leaves is the beginning of that of `size` leaves."""
        ranges = consistency_ranges(old, size)
        return self._ask(size, lambda nodes: [nodes.hash_of(*one) for one in ranges])

    def _ask(self, size: int, question: Callable[[_Nodes], _T]) -> _T:
        def answer() -> _T:
            if size > self._head.size or self._head.life != self._life():
                if size > (end := self._store.head()):
                    raise NotFound(
                        f"there is no tree of {size} leaves", why=f"the log ends at #{end}", hint="everlog checkpoint"
                    )
                self._grown(size)
            return question(self._nodes)

        return self._sound(answer)

    def _sound(self, work: Callable[[], _T]) -> _T:
        """Return what `work` returns. If it meets a damaged tile, all tiles are rebuilt."""
        for _ in range(_ATTEMPTS):
            try:
                return work()
            except _DamagedTile as damaged:
                _logger.warning("the tree of this log was damaged and is rebuilt: %s", damaged)
                self._begin_again((self._head.size, self._head.root))
            except StateEmptied:
                self._row, self._head = None, _nothing("")
        raise Damaged(
            "the tree of this log cannot be made",
            why="what is stored of it is damaged again and again",
            hint="everlog doctor",
        )

    # ---- growing

    def _grown(self, size: int) -> TreeHead:
        """Return the tree with at least so many leaves."""
        while True:
            head = self._current()
            end = self._store.head()  # after the tree: another process may have made it grow meanwhile
            if head.size > end >= size:
                _logger.warning(
                    "the tree of this log had %d leaves, and the log ends at #%d: the log was cut or put back, and"
                    " its tree is rebuilt",
                    head.size,
                    end,
                )
                self._begin_again((end, self._nodes.hash_of(0, end)))
            elif head.size >= size:
                return head
            else:
                self._grow(head, min(size, head.size + GROWTH))

    def _current(self) -> TreeHead:
        """Return the tree that is stored, after its incomplete tiles were checked."""
        life = self._life()
        row = None if self._unsaved is not None else self._store.small_state.get(SPACE, _HEAD)
        if row == self._row and self._head.life == life:
            return self._head
        head = _read_head(row)
        # Another life: the log was put back or renumbered, and the tree is another one.
        self._use(row, head if head is not None and head.life == life else _nothing(life))
        if self._head.size and self._nodes.hash_of(0, self._head.size) != self._head.root:
            raise _DamagedTile("its last tiles do not lead to its root")
        return self._head

    def _use(self, row: bytes | None, head: TreeHead) -> None:
        self._row, self._head = row, head
        self._nodes = _Nodes(head.size, self._read_tile)

    def _grow(self, head: TreeHead, end: int) -> None:
        """Add leaves up to `end`. If another process adds some meanwhile, nothing is changed here."""
        known = max(0, head.size - 1)  # the last leaf is computed again, too
        found = b"".join([hash for piece in leaves(self._store, after=known, upto=end) for hash in piece])
        if head.size:
            if found[:_HASH] != self._nodes.hash_of(known, head.size):
                raise _DamagedTile(f"position {head.size} has another hash")
            found = found[_HASH:]
        rows = self._new_tiles(head.size, found)
        nodes = _Nodes(end, lambda level, index: rows.get(_key(level, index)) or self._nodes.tile(level, index)[0])
        was = head.was if head.was[0] > end else (0, b"")
        if head.was != was and nodes.hash_of(0, head.was[0]) != head.was[1]:
            raise Damaged(
                f"the first {head.was[0]} positions of this log make another tree than before",
                why="an event was changed, removed or moved",
                hint="everlog verify, and with an earlier checkpoint: everlog verify --checkpoint FILE",
            )
        self._save(TreeHead(head.life, end, nodes.hash_of(0, end), was), rows)

    def _new_tiles(self, size: int, found: bytes) -> dict[str, bytes]:
        """Return the tiles that new leaves make or fill, as rows."""
        rows: dict[str, bytes] = {}
        for level in count():
            first, filled = divmod(size >> (_BITS * level), TILE)
            data = (self._nodes.tile(level, first)[0] if filled else b"") + found
            tiles = [data[place : place + _FULL] for place in range(0, len(data), _FULL)]
            rows |= {_key(level, first + place): tile for place, tile in enumerate(tiles)}
            found = b"".join([_inner(tile)[-1] for tile in tiles if len(tile) == _FULL])
            if not found:
                break
        return rows

    def _save(self, head: TreeHead, rows: Mapping[str, bytes]) -> None:
        if self._unsaved is not None:
            self._unsaved |= rows
            self._use(None, head)
            return
        row = _head_row(head)
        if self._change(lambda change: change.put(SPACE, {**rows, _HEAD: row}), clear=not self._head.size):
            self._use(row, head)

    def _begin_again(self, was: tuple[int, bytes]) -> None:
        """Remove all tiles. `was` is what the same events must make again."""
        empty = TreeHead(self._life(), 0, root(()), self._head.was if self._head.was[0] else was)
        row = _head_row(empty)
        if self._change(lambda change: change.put(SPACE, {_HEAD: row}), clear=True):
            self._use(row, empty)

    def _change(self, put: Callable[[StateChanges], None], *, clear: bool) -> bool:
        """Change the rows, unless another process has changed them: then `_current` takes what it made."""
        try:
            with self._store.small_state.change() as change:
                if change.get(SPACE, _HEAD) != self._row:
                    return False
                if clear:
                    change.clear(SPACE)
                put(change)
            return True
        except ReadOnly:
            self._unsaved = {}  # all of it is made in memory
            self._use(None, _nothing(self._life()))
            return False

    def _life(self) -> str:
        """Return a text that changes when the log is put back, restored or renumbered."""
        identity = self._store.identity
        return f"{identity.epoch} {identity.lives[-1][1]}" if identity.lives else identity.epoch

    def _read_tile(self, level: int, index: int) -> bytes | None:
        key = _key(level, index)
        return self._store.small_state.get(SPACE, key) if self._unsaved is None else self._unsaved.get(key)


class _Nodes:
    """The nodes of a tree of one size, from its tiles, each of which is checked when it is first used.

    A tile is a list: its hashes, the nodes over two of them, over four, and so on, each as bytes.
    """

    def __init__(self, size: int, read: Callable[[int, int], bytes | None]) -> None:
        self.size = size
        self._read = read
        self._tiles: dict[tuple[int, int], list[bytes]] = {}

    def hash_of(self, first: int, end: int) -> bytes:
        """Return the hash of a subtree, by its first leaf and the leaf after its last."""
        width = end - first
        if not width:
            return root(())
        if width & (width - 1) == 0:
            return self._whole(width.bit_length() - 1, first)
        middle = first + split(width)
        return node(self.hash_of(first, middle), self.hash_of(middle, end))

    def _whole(self, height: int, first: int) -> bytes:
        level, inside = divmod(height, _BITS)
        index, place = divmod(first >> (_BITS * level), TILE)
        place = (place >> inside) * _HASH
        return self.tile(level, index)[inside][place : place + _HASH]

    def tile(self, level: int, index: int) -> list[bytes]:
        held = self._tiles.get((level, index))
        if held is not None:
            return held
        data = self._read(level, index) or b""
        entries = min(TILE, (self.size >> (_BITS * level)) - index * TILE)
        if len(data) != entries * _HASH:
            raise _DamagedTile(f"tile {index} of level {level} has {len(data)} bytes")
        found = _inner(data)
        if entries == TILE and found[-1] != self._whole(_BITS * (level + 1), index << (_BITS * (level + 1))):
            raise _DamagedTile(f"tile {index} of level {level} does not lead to the hash above it")
        if len(self._tiles) >= TILES_HELD_MAX:
            self._tiles.clear()
        self._tiles[level, index] = found
        return found


def _inner(data: bytes) -> list[bytes]:
    """Return the hashes of a tile, and the complete nodes over them, level by level."""
    rows = [data]
    while len(data) >= 2 * _HASH:
        pairs = [data[place : place + 2 * _HASH] for place in range(0, len(data) - _HASH, 2 * _HASH)]
        data = b"".join([_sha256(b"\x01" + pair).digest() for pair in pairs])
        rows.append(data)
    return rows


def _nothing(life: str) -> TreeHead:
    return TreeHead(life, 0, root(()))


def _key(level: int, index: int) -> str:
    return f"{level}/{index}"


def _head_row(head: TreeHead) -> bytes:
    data = msgspec.msgpack.encode(head)
    return crc32(data).to_bytes(4, "big") + data


def _read_head(row: bytes | None) -> TreeHead | None:
    """Return the stored head, or None if there is none or it is damaged: then the tree is rebuilt."""
    if row is None:
        return None
    if crc32(row[4:]).to_bytes(4, "big") != row[:4]:
        _logger.warning("the tree of this log was damaged and is rebuilt: its size and root cannot be read")
        return None
    return msgspec.msgpack.decode(row[4:], type=TreeHead)
