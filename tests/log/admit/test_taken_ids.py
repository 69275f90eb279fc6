"""Unsigned events under the ids of keys: nodes decide the same on them, as far as they know the same keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.log.admit.test_admission import author_of, kinds, stored
from tests.support.nodes import close, open_node, signed_nodes, write
from tests.trust.signing import LOG_ID, Author, id_of

from everlog.core.event import Event
from everlog.log.admit.admission import Gate
from everlog.log.log import Log
from everlog.testing.builders import event
from everlog.testing.signing import key
from everlog.trust.standing import Pinned


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments"])
def node(request: pytest.FixtureRequest, make_log: Callable[..., Log], tmp_path: Path) -> Log:
    return make_log(request.param, tmp_path / "node")


def squatter(of: Event) -> Event:
    """An event of nobody under the id of a signed one."""
    return event(id=of.id, origin="01TESTNODE0000000000000009", origin_seq=1, payload={"text": "forged"})


def test_the_id_of_a_key_that_has_a_chain_here_is_not_taken(node: Log) -> None:
    ada = author_of(node)
    node.admit_each(ada.write(1))
    (following,) = ada.write(1)
    assert kinds(node.admit_each([squatter(following)])) == ["id_conflict"]
    assert kinds(node.admit_each([following])) == ["recorded"]


@pytest.mark.parametrize("turned", [False, True])
def test_in_one_batch_the_signed_event_has_its_id(node: Log, turned: bool) -> None:
    (made,) = author_of(node).write(1)
    batch, expected = [squatter(made), made], ["id_conflict", "recorded"]
    if turned:
        batch, expected = batch[::-1], expected[::-1]
    assert kinds(node.admit_each(batch)) == expected
    assert stored(node) == [made]


def test_the_id_of_a_pinned_key_is_not_taken_before_anything_of_it_came(node: Log) -> None:
    ada = author_of(node)
    node.writer._made_gate = Gate(Pinned([ada.origin]))
    (made,) = ada.write(1)
    assert kinds(node.admit_each([squatter(made)])) == ["id_conflict"]
    assert kinds(node.admit_each([made])) == ["recorded"]


def test_what_waits_of_a_stranger_decides_nothing(tmp_path: Path) -> None:
    """One node has met the stranger, and the other has not: both take the event of nobody, and are equal."""
    members = [key(1).public.origin, key(2).public.origin]
    one, other = made = signed_nodes("memory", tmp_path, 2, make_standing=lambda: Pinned(members))
    stranger = Author(9, one.log_id)
    sent = stranger.write(2)
    assert {outcome.code for outcome in one.log.admit_each(sent)} == {"unknown_author"}
    for each in made:
        assert kinds(each.log.admit_each([squatter(sent[0])])) == ["recorded"]
    assert one.sync_with(other.answer).equal
    close(made)


def test_nobody_takes_an_id_that_this_log_is_going_to_make(tmp_path: Path) -> None:
    (one,) = signed_nodes("memory", tmp_path, 1)
    peer = open_node("memory", tmp_path, one.log_id, "peer")
    ahead = event(id=id_of(one.log.identity.origin, 1, 1_763_000_000_000), origin="01TESTNODE0000000000000009")
    assert kinds(one.log.admit_each([ahead])) == ["id_conflict"]
    write(one, "mine")
    assert one.log.verify().ok
    close([one, peer])


def test_an_id_that_was_taken_before_its_key_was_known_stays_taken_and_stops_that_chain_alone(tmp_path: Path) -> None:
    """What docs/decisions/0044 leaves open, where everybody counts: a new copy is right again."""
    one, other = made = [open_node("sqlite", tmp_path, LOG_ID, name) for name in ("one", "other")]
    ada, ben = Author(1, LOG_ID), Author(2, LOG_ID)
    sent = ada.write(3)
    assert kinds(one.log.admit_each([squatter(sent[1])])) == ["recorded"]
    other.log.admit_each(sent)
    other.log.admit_each(ben.write(1))
    for _ in range(2):
        assert not one.sync_with(other.answer).equal
    assert [kinds(one.log.admit_each([each])) for each in sent] == [["known"], ["id_conflict"], ["held out_of_order"]]
    assert kinds(other.log.admit_each([squatter(sent[1])])) == ["id_conflict"]
    assert ben.origin in one.heads().origins
    again = open_node("sqlite", tmp_path, LOG_ID, "again")
    assert again.sync_with(other.answer).equal
    assert all(each.log.verify().ok for each in (*made, again))
    close([*made, again])
