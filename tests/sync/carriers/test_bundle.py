"""A file that goes back and forth between two nodes that never meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.nodes import STORES, close, nodes, open_node, texts, write

from everlog.errors import BadFile, Conflict, RejectedMessage
from everlog.sync.carriers.bundle import sync_file

PEER = "peer:stick"


@pytest.mark.parametrize("store", STORES)
def test_a_file_brings_two_nodes_together(store: str, tmp_path: Path) -> None:
    one, other = nodes(store, tmp_path, 2)
    stick = tmp_path / "stick.everlog"
    for number in range(20):
        write(one, number)
        write(other, -number)
    assert sync_file(one, stick, peer=PEER).sent_count == 20
    back = sync_file(other, stick, peer=PEER)
    assert (back.received_count, back.sent_count) == (20, 20)
    home = sync_file(one, stick, peer=PEER)
    assert (home.received_count, home.sent_count) == (20, 0)
    assert sync_file(other, stick, peer=PEER).equal
    assert texts(one) == texts(other)
    write(other, "new")
    assert sync_file(other, stick, peer=PEER).sent_count == 2  # with `origin.knows`
    assert sync_file(one, stick, peer=PEER).received_count == 2
    close([one, other])


def test_a_file_that_was_cut_brings_what_it_has_and_is_reported(tmp_path: Path) -> None:
    one, other = nodes("memory", tmp_path, 2)
    stick = tmp_path / "stick.everlog"
    write(one, "a")
    sync_file(one, stick, peer=PEER)
    content = stick.read_bytes()
    stick.write_bytes(content[: content.rindex(b'{"end"')])
    with pytest.raises(BadFile, match="taken in"):
        sync_file(other, stick, peer=PEER)
    assert texts(other) == ["a"]
    for cut in range(1, len(content), 97):
        stick.write_bytes(content[:cut])
        with pytest.raises((BadFile, RejectedMessage)):
            sync_file(other, stick, peer=PEER)
        assert stick.read_bytes() == content[:cut]
    assert texts(other) == ["a"]


def test_another_file_is_left_as_it_is(tmp_path: Path) -> None:
    (one,) = nodes("memory", tmp_path, 1)
    other = tmp_path / "letter.txt"
    other.write_text("dear ada\n")
    with pytest.raises(BadFile):
        sync_file(one, other, peer=PEER)
    assert other.read_text() == "dear ada\n"
    stranger = open_node("memory", tmp_path, "01JANOTHERLOG0000000000000", "stranger")
    stick = tmp_path / "stick.everlog"
    sync_file(stranger, stick, peer=PEER)
    before = stick.read_bytes()
    with pytest.raises(Conflict):
        sync_file(one, stick, peer=PEER)
    assert stick.read_bytes() == before
