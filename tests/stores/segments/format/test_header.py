"""The head of a segment as it is on the disk."""

from __future__ import annotations

from msgspec.structs import replace

from everlog.core.event import Position
from everlog.stores.contract import Identity
from everlog.stores.formats import FORMAT
from everlog.stores.segments.format.header import END_MARK, SegmentHeader, StartState, decode_header, encode_header

HEADER = SegmentHeader(
    FORMAT, Identity("log", "origin", "epoch", 0), 3, 1, Position(7), 5, StartState(), generation=1, end_mark=END_MARK
)


def test_the_size_of_a_segment_that_was_written_again_is_found_in_the_number_that_files_hold() -> None:
    stored = encode_header(replace(HEADER, end_mark=4_294_967_296 + 1234))
    found = decode_header(stored, name="segment 3")
    assert found is not None
    header, head_bytes = found
    assert (header.end, head_bytes) == (1234, len(stored))


def test_the_head_is_as_long_before_the_size_is_known_as_after() -> None:
    lengths = {len(encode_header(replace(HEADER, end_mark=END_MARK + size))) for size in (0, 1, 2**16, 2**31, 2**40)}
    assert len(lengths) == 1
