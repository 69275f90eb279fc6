"""A node in PostgreSQL and one in another store: both converge over real HTTP, with purges, stubs and forks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.http_nodes import reachable, sync
from tests.support.nodes import STORES, close, new_log_id, open_node, texts, write
from tests.trust.signing import Author

from everlog.log.write.draft import Draft
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal
from everlog.testing.signing import key


@pytest.fixture(params=STORES)
def pair(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[list[Node]]:
    log_id = new_log_id()
    made = [
        open_node("postgresql", tmp_path, log_id, "pg", url=postgres_url, keys=[key(1)]),
        open_node(request.param, tmp_path, log_id, "other", keys=[key(2)]),
    ]
    yield made
    close(made)


def assert_equal(one: Node, other: Node) -> None:
    assert proven_equal(one.heads(), other.heads())
    assert texts(one) == texts(other)
    for node in (one, other):
        report = node.log.verify()
        assert report.ok, report.problems


def test_a_node_in_postgresql_converges_with_one_in_another_store(pair: list[Node]) -> None:
    for asks, answers in (pair, pair[::-1]):
        with reachable(answers) as (url,):
            for number in range(20):
                write(asks, number)
                write(answers, -number)
            asks.log.append_batch([Draft("note.written", f"note/{n % 3}", {"text": n}) for n in range(200)])
            assert sync(asks, url).equal
            assert sync(asks, url).round_trips == 1
        assert_equal(*pair)


@pytest.mark.parametrize("postgres_purges", [True, False])
def test_a_purge_is_followed_in_postgresql_and_from_there(pair: list[Node], postgres_purges: bool) -> None:
    one, other = pair if postgres_purges else pair[::-1]
    with reachable(other) as (url,):
        write(one, "old", "note/1")
        write(other, "kept", "note/2")
        assert sync(one, url).equal
        write(other, "meanwhile", "note/1")  # the purge does not list it
        one.log.purge("note/1", reason="a test")
        write(one, "later", "note/1")
        assert sync(one, url).equal
        assert_equal(one, other)
        assert [text for text in texts(other) if text] == ["kept", "meanwhile", "later"]


def test_a_node_in_postgresql_takes_stubs_and_proofs_of_forks(pair: list[Node]) -> None:
    one, other = pair
    author = Author(9, one.log_id)
    common, twin = author.write(2), author.twin()
    other.log.admit_each([*common, *author.write(1)])
    one.log.admit_each([*common, *twin.write(1, payload={"text": "twin"})])
    other.log.append_batch([Draft("note.written", f"note/{n % 2}", {"text": n}) for n in range(6)])
    other.log.purge("note/1", reason="before the other had it")
    with reachable(other) as (url,):
        sync(one, url)
        assert sync(one, url).equal
    assert [fork.origin_seq for fork in one.log.forks()] == [3]
    assert proven_equal(one.heads(), other.heads())
    assert one.log.verify().ok
