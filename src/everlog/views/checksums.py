"""Checksums of what views keep: one in every row and in every record of a view, so that damage is noticed on reading.

    row      MessagePack: [count, lamport, id, sources, state, checksum], the lowest byte of the checksum first
    record   JSON: {"sum":"0123abcd", ...}

The checksum is the CRC-32 of the space, the key and the bytes before (row) or behind (record) the checksum. The space
is the name of the view and the number of the build, so that a row that belongs to another key or another build does
not match either. It detects accidents. Somebody who may write to the database can also write a checksum:
`everlog views audit` folds the events again and compares the states.

A row that does not match is folded again from the events; see `Builder.mend`. If a record does not match, all that
the view keeps is removed and derived again, because the record says how far the view is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from struct import Struct
from zlib import crc32

from everlog.core.counted import counted
from everlog.errors import Damaged

_logger = logging.getLogger("everlog")

_RESIDUE = 0x2144DF1C
"""The CRC-32 of any bytes with their own CRC-32 behind them, the lowest byte first."""

_four_bytes = Struct("<I").pack
_SUM = b'{"sum":"'
_BODY = len(_SUM) + 8 + len(b'",')


class DamagedRows(Damaged):
    """Rows of a view that do not match their checksums."""

    def __init__(self, view: str, keys: Collection[str]) -> None:
        self.keys = frozenset(keys)
        some = sorted(map(repr, keys))
        super().__init__(
            f"{counted(len(some), 'row')} of the view {view} {'does' if len(some) == 1 else 'do'} not match"
            f" {'its checksum' if len(some) == 1 else 'their checksums'}, such as {some[0]}",
            why="what the view keeps was changed or damaged on the disk; the events are not concerned",
            hint=f"everlog views rebuild {view}",
            view=view,
            keys=sorted(map(str, keys))[:20],
        )


class LostRows(Damaged):
    """A view has fewer rows than it kept, or more: nobody knows which."""

    def __init__(self, view: str, found: int, kept: int) -> None:
        super().__init__(
            f"the view {view} has {counted(found, 'row')}, and {kept} were kept",
            why="what the view keeps was changed or damaged on the disk; the events are not concerned",
            hint=f"everlog views rebuild {view}",
            view=view,
            found=found,
            kept=kept,
        )


class DamagedRecord(Damaged):
    """A record of a view, such as which build answers, that cannot be read."""

    def __init__(self, view: str, what: str) -> None:
        super().__init__(
            f"{what} of the view {view} is damaged",
            why="what the view keeps was changed or damaged on the disk; the events are not concerned",
            hint=f"everlog views rebuild {view}",
            view=view,
        )


def warn_of_damage(view: str, keys: Collection[str]) -> None:
    _logger.warning(
        "%s of the view %s did not match the checksum: %s%s. The events are folded again; the answer is right."
        " Check the disk, and the rest of the view: everlog views audit %s",
        counted(len(keys), "row"),
        view,
        ", ".join(sorted(map(repr, keys))[:5]),
        ", ..." if len(keys) > 5 else "",
        view,
    )


def begin(space: str) -> int:
    """What the checksums of all rows of a space begin with."""
    return crc32(f"{space}\n".encode())


def seal_row(begun: int, key: str, row: bytes) -> bytes:
    """Add its checksum to a row of five values."""
    body = b"\x96" + row[1:] + b"\xce"
    return body + _four_bytes(crc32(key.encode() + b"\n" + body, begun))


def row_matches(begun: int, key: str, data: object, *, sealed: bool) -> bool:
    """Whether the bytes of a row are those that were kept. A build that is not `sealed` may have rows without one."""
    if type(data) is not bytes:
        return False
    if crc32(key.encode() + b"\n" + data, begun) == _RESIDUE:
        return data[:1] == b"\x96"
    return not sealed and data[:1] == b"\x95"


def all_match(begun: int, rows: list[tuple[str, bytes]]) -> bool:
    """Whether all of these rows have checksums, and match them. As `row_matches`, without a call for each row."""
    try:
        return [crc32(key.encode() + b"\n" + data, begun) for key, data in rows].count(_RESIDUE) == len(rows)
    except TypeError:  # something is not bytes
        return False


def is_sealed(data: bytes) -> bool:
    return data[:1] == b"\x96"


def seal_record(space: str, key: str, record: bytes) -> bytes:
    """Add its checksum to a JSON object."""
    body = record[1:]
    return b'{"sum":"%08x",%b' % (_sum(space, key, body), body)


def record_matches(space: str, key: str, data: object, *, earlier: tuple[bytes, ...]) -> bool:
    """Whether the bytes of a record are those that were kept. One of an earlier everlog has no checksum, and begins
    in one of the ways that are given."""
    if type(data) is not bytes:
        return False
    if not data.startswith(_SUM):
        return data.startswith(earlier)
    return data[len(_SUM) : _BODY] == b'%08x",' % _sum(space, key, data[_BODY:])


def _sum(space: str, key: str, body: bytes) -> int:
    return crc32(body, crc32(f"{space}\n{key}\n".encode()))
