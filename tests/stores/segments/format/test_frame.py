"""A frame of which some records are decoded says the same of itself as the whole one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from everlog.core.event import Position
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.segments.format.frame import decode_frame, find_frame, mark_of


def test_a_frame_that_is_decoded_in_part_covers_the_same_positions(
    tmp_path: Path, make_log: Callable[..., Log]
) -> None:
    log = make_log("segments", tmp_path / "log")
    for _ in range(2):
        log.append_batch([Draft("thing.said", f"thing/{number}") for number in range(8)])
    (file,) = (tmp_path / "log" / "segments").iterdir()
    data, mark = memoryview(file.read_bytes()), mark_of(log.identity.log_id, 1)
    log.close()
    first = find_frame(data, 0, mark=mark, offset=0)
    assert first is not None
    at = first[1] + first[2]
    second = decode_frame(data, at, mark=mark, offset=at)
    assert second is not None
    whole, size = second
    assert (whole.before, whole.head, len(whole.records)) == (8, 16, 8)
    for after in range(8, 17):
        part = decode_frame(data, at, mark=mark, offset=at, after=Position(after))
        assert part is not None
        assert (part[0].before, part[0].head, part[1]) == (8, 16, size)
        assert [one.position for one in part[0].records if one.position > after] == list(range(after + 1, 17))
    for number, record in enumerate(whole.records):
        part = decode_frame(data, at, mark=mark, offset=at, holding=[f"thing/{number}".encode()])
        assert part is not None
        assert (part[0].before, part[0].head, part[0].records) == (8, 16, [record])
    # Between other bytes the frame is found, also behind bytes that only look like the start of one.
    sign = b"\xce" + mark.to_bytes(4, "big")
    noise = memoryview(b"x" * 20 + sign * 3 + b"y" * 7 + bytes(data[at:]))
    assert find_frame(noise, 0, mark=mark, offset=at - 42) == (whole, 42, size)
