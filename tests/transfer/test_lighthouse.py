"""Segment files of seed 001 are read, whole or packed, and every stretch of damage in them is named."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import struct
from typing import Any

import msgspec
import pytest
from tests.transfer.foreign import AGENTS
from tests.transfer.test_exporting import a_log, imported
from tests.transfer.test_set_aside import set_aside

from everlog.errors import BadFile
from everlog.transfer import lines

ROOM = 4 + 32


def record(value: Any) -> bytes:
    body = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(body)) + body + hashlib.sha256(body).digest()


def events(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {**AGENTS, "event_id": f"0194a7f0-1234-7abc-8def-{number:012x}", "payload": {"n": number}, **fields}
        for number in range(count)
    ]


def segment(count: int) -> list[bytes]:
    return [record(event) for event in events(count)]


def numbers(log: Any) -> list[int]:
    return [recorded.event.payload["n"] for recorded in log.read()]


@pytest.mark.parametrize("chunk", [1, 7, 1024 * 1024])
def test_a_segment_file_is_read_however_it_is_cut(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_CHUNK", max(chunk, 400))  # the first piece tells what kind of file it is
    log = a_log()
    result = imported(log, b"".join(segment(30)))
    assert (result.new, result.shapes) == (30, {"agents": 30})
    assert numbers(log) == list(range(30))


def test_an_archived_segment_is_unpacked() -> None:
    log = a_log()
    assert imported(log, gzip.compress(b"".join(segment(30)))).new == 30


def test_an_archive_that_is_cut_off_is_noticed() -> None:
    data = gzip.compress(b"".join(segment(300)))
    with pytest.raises(BadFile) as caught:
        imported(a_log(), data[:-200])
    assert "gzip" in caught.value.why


def test_a_small_archive_cannot_fill_the_memory() -> None:
    bomb = gzip.compress(b"\0" * 40_000_000)
    assert len(bomb) < 50_000
    with pytest.raises(BadFile):
        imported(a_log(), bomb)


def test_a_flipped_bit_costs_one_record_and_is_named_with_its_place() -> None:
    pieces = segment(20)
    place = sum(map(len, pieces[:7]))
    data = bytearray(b"".join(pieces))
    data[place + 20] ^= 4
    log = a_log()
    result, aside = set_aside(log, bytes(data))
    assert numbers(log) == [number for number in range(20) if number != 7]
    assert (result.set_aside, len(aside)) == (1, 1)
    assert f"from byte {place:,} on are damaged" in aside[0]["reason"]
    assert aside[0]["line"] == 8
    with pytest.raises(BadFile, match="1 line is wrong"):
        imported(a_log(), bytes(data))


def test_a_torn_tail_is_named() -> None:
    data = b"".join(segment(5))[:-10]
    log = a_log()
    _, aside = set_aside(log, data)
    assert numbers(log) == [0, 1, 2, 3]
    assert "ends in the middle of a record" in aside[0]["reason"]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_the_other_records_are_read(seed: int) -> None:
    """Bytes flipped, cut out and put in anywhere, also at the very beginning: no whole record is lost."""
    rng = random.Random(seed)
    pieces = segment(60)
    hit = sorted(rng.sample(range(60), 4)) if seed else [0, 1]
    for number in hit:
        piece = bytearray(pieces[number])
        match rng.choice(["flip", "cut", "put"]):
            case "flip":
                piece[rng.randrange(len(piece))] ^= 1 << rng.randrange(8)
            case "cut":
                del piece[rng.randrange(len(piece) - 1) :]
            case _:
                at = rng.randrange(1, len(piece))
                piece[at:at] = rng.randbytes(rng.randrange(1, 300))
        pieces[number] = bytes(piece)
    log = a_log()
    result, aside = set_aside(log, b"".join(pieces))
    assert set(range(60)) - set(hit) <= set(numbers(log))
    assert result.set_aside == len(aside) >= 1


def test_a_record_that_has_no_form_in_json_is_set_aside() -> None:
    odd = [record({**AGENTS, "payload": {"raw": b"\xff"}}), record({**AGENTS, "payload": {1: "x"}})]
    nan = [record({**AGENTS, "payload": {"n": float("nan")}})]
    log = a_log()
    result, aside = set_aside(log, b"".join([segment(1)[0], *odd, *nan]))
    assert (result.new, len(aside)) == (1, 3)
    assert "NaN" in aside[2]["reason"]
    assert json.loads(json.dumps(aside)) == aside


def test_text_is_not_taken_for_a_segment() -> None:
    with pytest.raises(BadFile) as caught:
        imported(a_log(), '{"a": 1}\n'.encode("utf-16"))
    assert "UTF-8" in caught.value.why
