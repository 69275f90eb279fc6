"""A file that goes back and forth between two nodes that never meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.nodes import STORES, close, nodes, open_node, texts, write

from everlog.errors import BadFile, Conflict, RejectedMessage
from everlog.log.write.draft import Draft
from everlog.sync.carriers.bundle import sync_file
from everlog.sync.exchange import HEADS, Node
from everlog.sync.wire import Heads, decode

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


@pytest.mark.parametrize("request_", [HEADS, "a file"])
def test_what_must_be_done_first_is_done_before_anything_leaves(request_: str, tmp_path: Path) -> None:
    """Such as a forget that was interrupted."""
    (one,) = nodes("memory", tmp_path, 1)
    write(one, "a")
    one.log.writer.first = lambda: write(one, "first")  # type: ignore[assignment]
    if request_ == HEADS:
        assert decode(one.answer(HEADS, b""), Heads).count == 2
    else:
        assert sync_file(one, tmp_path / "stick.everlog", peer=PEER).sent_count == 2


def test_forgets_are_followed_once_more_when_all_of_a_file_came(tmp_path: Path) -> None:
    one, other = nodes("memory", tmp_path, 2)
    seen: list[int] = []
    other = Node(other.log, on_forgotten=lambda: seen.append(other.log.head()))
    one.log.append_batch([Draft("note.written", "note/1", {"text": "x"})] * 2_500)  # three batches
    sync_file(one, tmp_path / "stick.everlog", peer=PEER)
    sync_file(other, tmp_path / "stick.everlog", peer=PEER)
    assert seen[-1] == 2_500


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
