"""A node that joins begins with the snapshots of its peer, if a quorum of pinned keys signed them; over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.support.counting_view import Counting

from everlog import wiring
from everlog.application.folder.create import create_log
from everlog.application.sync.join import Joined, join
from everlog.application.sync.listen import listen
from everlog.application.sync.node import location_of, node_of
from everlog.application.sync.peers import add_peer
from everlog.application.sync.places import sync_with_url
from everlog.application.sync.shared_snapshots import Shared, Shelf, share, shared_views
from everlog.errors import Conflict, NotAuthorized
from everlog.log.write.draft import Draft
from everlog.stores.small_state import NOTES
from everlog.sync.exchange import Node
from everlog.testing.signing import key
from everlog.trust.notes import parse_note
from everlog.trust.shared import has_quorum, signed_by, signers, statement_of

STREAMS, EVENTS = 300, 1_500
VIEW = Counting.name


@pytest.fixture(autouse=True)
def views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_VIEWS", "tests.support.counting_view:Counting")


class Town:
    """Nodes in folders, each of which listens."""

    def __init__(self, folder: Path, count: int) -> None:
        self._stack = ExitStack()
        self.folder = folder
        self.nodes: list[Node] = []
        self.urls: list[str] = []
        create_log(folder / "n0", signed=True, warn=print)
        self._start("n0")
        log = self.nodes[0].log
        log.append_batch([_note(number) for number in range(EVENTS)])
        for number in range(1, count):
            self.join(f"n{number}")
            self._start(f"n{number}")

    def _start(self, name: str) -> None:
        inside = self.folder / name / ".everlog"
        log = self._stack.enter_context(wiring.open_folder(inside))
        node = node_of(log, location_of(inside))
        listener = listen(node, "127.0.0.1:0", open_to_all=False)
        self._stack.callback(listener.close)
        self.nodes.append(node)
        self.urls.append(listener.url)

    def join(self, name: str, *, at: int = 0, authors: str = "", quorum: int = 0) -> Joined:
        """Join with a node that does not know the key of the new one at first."""
        try:
            return join(self.urls[at], self.folder / name, store="sqlite:log.db", authors=authors, warn=print)
        except NotAuthorized as error:
            new = error.hint.split("peers add ")[1].split(";")[0]
            add_peer(self.nodes[at].log, new)
        return join(
            self.urls[at], self.folder / name, store="sqlite:log.db", authors=authors, quorum=quorum, warn=print
        )

    @property
    def keys(self) -> str:
        return ",".join(node.log.identity.origin for node in self.nodes)

    def digest(self, name: str) -> str:
        with wiring.open_folder(self.folder / name / ".everlog") as log:
            return log.view(Counting).digest()

    def close(self) -> None:
        self._stack.close()


def _note(number: int) -> Draft:
    return Draft("note.added", f"note/{number % STREAMS}", {"text": f"note {number}"})


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path, 3)
    yield made
    made.close()


def share_everywhere(town: Town) -> None:
    for node in town.nodes:
        share(node.log, VIEW)
    for node in town.nodes[1:]:
        assert sync_with_url(node, town.urls[0]).equal


def test_snapshot_assisted_join(town: Town) -> None:
    """The test of seed 002 with this name: a new node begins with a snapshot and the events after it."""
    share_everywhere(town)
    (shared,) = shared_views(town.nodes[0].log).values()
    assert signers(shared.parsed) == set(town.keys.split(","))
    town.nodes[0].log.append_batch([_note(number) for number in range(10)])  # after the snapshot

    Counting.applied.clear()
    joined = town.join("new", authors=town.keys)
    (used,) = joined.snapshots
    assert (used.view, used.keys, used.ok, len(used.signed_by)) == (VIEW, STREAMS, True, 3)
    assert joined.synced.equal
    by_join = len(Counting.applied)
    assert by_join < EVENTS  # only the keys that were derived again, and what came after the snapshot

    Counting.applied.clear()
    assert town.digest("new") == town.nodes[0].log.view(Counting).digest()
    assert len(Counting.applied) <= 2 * 10


def test_without_a_quorum_no_snapshot_is_used(town: Town) -> None:
    share(town.nodes[0].log, VIEW)  # one of three keys
    joined = town.join("new", authors=town.keys)
    assert joined.snapshots == []
    assert town.digest("new") == town.nodes[0].log.view(Counting).digest()


def test_a_quorum_can_be_set(town: Town) -> None:
    share(town.nodes[0].log, VIEW)
    (used,) = town.join("new", authors=town.keys, quorum=1).snapshots
    assert used.ok


def test_without_pinned_keys_no_snapshot_is_used(town: Town) -> None:
    share_everywhere(town)
    assert town.join("new").snapshots == []


def test_rows_that_were_not_signed_are_not_used(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    share_everywhere(town)
    honest = Shelf.body

    def changed(shelf: Shelf, rows: str) -> bytes:
        return honest(shelf, rows).replace(b"note 17", b"note 99")

    monkeypatch.setattr(Shelf, "body", changed)
    assert town.join("new", authors=town.keys).snapshots == []
    assert town.digest("new") == town.nodes[0].log.view(Counting).digest()


def test_a_wrong_snapshot_of_a_lying_quorum_is_found_by_replay(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pinned nodes sign rows that do not follow from the events."""
    from everlog.application.sync import shared_snapshots

    real = shared_snapshots._hash_of_rows
    lies: dict[str, bool] = {}

    def lie(rows: dict[str, bytes]) -> dict[str, bytes]:
        return {name: text.replace(b"note ", b"lie ") for name, text in rows.items()}

    def hash_of_lies(rows: dict[str, bytes]) -> str:
        return real(lie(rows)) if not lies.get("done") else real(rows)

    monkeypatch.setattr(shared_snapshots, "_hash_of_rows", hash_of_lies)
    share_everywhere(town)
    lies["done"] = True
    honest = Shelf.body
    monkeypatch.setattr(Shelf, "body", lambda shelf, rows: honest(shelf, rows).replace(b"note ", b"lie "))
    (used,) = town.join("new", authors=town.keys).snapshots
    assert not used.ok
    assert town.digest("new") == town.nodes[0].log.view(Counting).digest()


def test_a_purge_takes_the_shared_rows_with_it(town: Town) -> None:
    share_everywhere(town)
    town.nodes[0].log.purge("note/7", reason="erasure request")
    assert all("note 7" not in shelf_text(node) for node in town.nodes[:1])
    joined = town.join("new", authors=town.keys)
    assert (joined.snapshots, joined.synced.equal) == ([], True)


def shelf_text(node: Node) -> str:
    shelf = Shelf(node.log)
    return "".join(shelf.body(statement_of(parse_note(text.encode())).rows).decode() for text in shelf.notes())


def test_a_view_in_the_order_of_arrival_is_not_shared(town: Town) -> None:
    with pytest.raises(Conflict, match="not shared"):
        share(town.nodes[0].log, "streams")


def test_a_signature_that_is_wrong_counts_for_nobody(town: Town) -> None:
    share(town.nodes[0].log, VIEW)
    ((_, shared),) = shared_views(town.nodes[0].log).items()
    note, other = shared.parsed, key(5)
    stolen = msgspec.structs.replace(signed_by(note, other).signatures[-1], signature=bytes(64))
    forged = note.with_signature(stolen)
    pinned = [town.nodes[0].log.identity.origin, other.public.origin]
    assert signers(forged) == {pinned[0]}
    assert has_quorum(forged, pinned, 1)
    assert not has_quorum(forged, pinned, 0)
    assert has_quorum(signed_by(note, other), pinned, 0)
    assert not has_quorum(note, [], 0)


def test_signatures_of_others_are_taken_only_for_the_same_rows(town: Town) -> None:
    node = town.nodes[0]
    share(node.log, VIEW)
    text = str(signed_by(shared_views(node.log)[VIEW].parsed, key(5)))
    shelf = Shelf(node.log)
    other = text.replace(statement_of(parse_note(text.encode())).rows, "0" * 64)
    assert not shelf.take([other, "nonsense", text.replace(VIEW, "streams")])
    assert shelf.take([text])
    assert not shelf.take([text])
    assert key(5).public.origin in signers(shared_views(node.log)[VIEW].parsed)
    assert isinstance(shared_views(node.log)[VIEW], Shared)
    assert node.log.writer.small_state.get(NOTES, f"shared/{VIEW}")
