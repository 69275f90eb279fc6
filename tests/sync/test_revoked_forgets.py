"""A forget whose author is revoked afterwards: nodes that followed it and nodes that did not become equal again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.nodes import STORES
from tests.sync.histories import History, node_lost, origin_of

from everlog.application.trust.forget import follow, forget, pending, status
from everlog.application.trust.owned_bytes import Owned
from everlog.errors import NotFound
from everlog.log.write import prepare
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal


class Three(History):
    """An admin, a member whose forgets are followed until it is revoked, and a member that learns of both late."""

    def person(self, text: str, *, sealed: bool) -> None:
        with patch.object(prepare, "_seal", prepare._seal if sealed else lambda *given: None):
            self.nodes[1].log.append("person.noted", stream="person/0", payload={"person": "p/0", "text": text})

    def sync(self, one: int, other: int) -> None:
        self.nodes[one].sync_with(self.nodes[other].answer)

    def revoke(self, upto: int) -> None:
        payload = {"origin": origin_of(2), "upto": upto}
        self.nodes[0].log.append("member.revoked", stream="member/1", payload=payload)


def shown(node: Node) -> list[str]:
    events = [one.event for one in node.log.counted(node.log.read()) if one.event.type == "person.noted"]
    return sorted(str(event.payload.get("text", "erased")) for event in events)


@pytest.fixture(params=STORES)
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Three]:
    made = Three(0, tmp_path, stores=[request.param] * 3)
    yield made
    made.close()


def require_equal(three: Three, texts: list[str]) -> None:
    three.sync_all()
    for node in three.nodes:
        assert shown(node) == texts
        assert proven_equal(three.nodes[0].heads(), node.heads())
        assert not node_lost(node)
        assert node.log.verify().ok
        assert not pending(node.log)


def test_who_followed_asks_others_for_the_same(three: Three) -> None:
    admin, member, late = three.nodes
    three.person("it was never sealed", sealed=False)
    three.person("it was sealed", sealed=True)
    end = member.log.stored.chains()[origin_of(2)].end.origin_seq
    three.sync_all()
    forget(member.log, "p/0", owned=Owned())
    three.sync(0, 1)
    assert shown(admin) == ["[sealed]", "erased"]
    three.revoke(end)
    assert node_lost(admin) == node_lost(late)  # its own record lists them
    three.sync(2, 0)
    require_equal(three, ["[sealed]", "erased"])
    records = len(status(late.log))
    three.sync_all()
    assert len(status(late.log)) == records  # nobody follows again


def test_an_admin_follows_a_record_that_does_not_count(three: Three) -> None:
    """It has nothing of the person: the event came without its payload, and the key never came."""
    admin, member, late = three.nodes
    three.person("it was never sealed", sealed=False)
    end = member.log.stored.chains()[origin_of(2)].end.origin_seq
    three.sync(2, 1)
    forget(member.log, "p/0", owned=Owned())
    three.sync(0, 1)
    three.revoke(end)
    three.sync(2, 0)
    assert (shown(admin), shown(late)) == (["erased"], ["it was never sealed"])
    assert node_lost(admin)
    with pytest.raises(NotFound):
        forget(admin.log, "p/0", owned=Owned())
    (asked,) = [one for one in status(admin.log) if not one.counts]
    assert asked.origin == origin_of(2)
    follow(admin.log, asked.record, owned=Owned())
    assert follow(admin.log, asked.record, owned=Owned()) == []
    require_equal(three, ["erased"])


def test_a_record_that_does_not_count_is_not_followed(three: Three) -> None:
    admin, member, late = three.nodes
    three.person("it was never sealed", sealed=False)
    three.person("it was sealed", sealed=True)
    end = member.log.stored.chains()[origin_of(2)].end.origin_seq
    three.sync_all()
    three.revoke(end)
    three.sync(2, 0)
    forget(member.log, "p/0", owned=Owned())
    for _ in range(2):
        three.sync(1, 2)
        three.sync(0, 2)
    assert shown(admin) == shown(late) == ["it was never sealed", "it was sealed"]
    assert shown(member) == ["[sealed]", "erased"]
    forget(admin.log, "p/0", owned=Owned())
    require_equal(three, ["[sealed]", "erased"])
