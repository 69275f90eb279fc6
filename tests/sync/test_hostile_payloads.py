"""Events that a member signs with payloads that no log would write, of the types that a log reads by itself.

They count, because the member does. Nothing may follow from them, and least of all an error on every other node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.application.trust.forgetting import CATALOG as PERSONS
from tests.application.trust.forgetting import register
from tests.programs.community.test_standing import World, counting, identity, member_names
from tests.programs.community.test_standing import node as community_node
from tests.support.nodes import CATALOG as NOTES
from tests.support.nodes import close, open_node, write
from tests.trust.signing import LOG_ID, Author

from everlog.application.conflicts import conflicts, record_detected
from everlog.application.sync.forgets import follow_pending
from everlog.application.trust.forget import find, status
from everlog.application.trust.owned_bytes import Owned
from everlog.catalog.builtin import DETECTED, KNOWS, RESOLVED
from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.errors import NotFound
from everlog.log.records import FORGETS, FORGOTTEN, PURGED, PURGES
from everlog.programs.community.events import CATALOG as COMMUNITY
from everlog.settings import Settings
from everlog.stores.memory import MemoryStore
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal
from everlog.testing.signing import key
from everlog.trust.ring import KeyRing
from everlog.trust.sealing import Sealing
from everlog.trust.standing import Pinned
from everlog.trust.succession import SUCCEEDED
from everlog.user_code import catalog_of
from everlog.views.registry import Views

ID, HASH = "01M7GNA1VYFX6R4DN7FYV6RCAF", "A" * 43 + "="
WELL_FORMED: dict[str, tuple[str, dict[str, Any]]] = {
    PURGED: (PURGES, {"stream": "note/1", "reason": "", "removed": {"z": [[1, HASH]]}}),
    FORGOTTEN: (FORGETS, {"keys": ["A" * 22], "erased": {"z": [[1, HASH]]}, "follows": ID}),
    SUCCEEDED: ("log/origin", {"successor": key(7).public.origin, "proof": HASH}),
    KNOWS: ("log/origin", {"ends": {"z": 1}, "since": 1}),
    DETECTED: (f"conflict/{ID}-{ID}", {"stream": "note/1", "winner": ID, "loser": ID}),
    RESOLVED: (f"conflict/{ID}-{ID}", {"stream": "note/1", "winner": ID, "loser": ID, "reason": ""}),
}
TYPES = Catalog()
for _types in (catalog_of(Settings(), None), NOTES, PERSONS):
    TYPES.include(_types)
ACTS = {one.type: [field.name for field in one.fields] for one in COMMUNITY.types()}
"""The types of the community program, with the names of their fields."""
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**53 - 1,
    0.5,
    "",
    "a\x00b",
    "é" * 500,
    [],
    [None],
    [[]],
    [{}],
    {},
    {"": {}},
)
NESTED: tuple[Any, ...] = (
    *([[1]], [[1, 2]], [[1, HASH, 3]], [["1", HASH]], [[2**53 - 1, "?"]], {"z": [[1, 5]]}, {"z": [[-1, HASH]]}),
    *({"z": None}, {"z": -1}, {"z": 2**53 - 1}, {"\x00": 1}, {"z": "1"}, ["A" * 22] * 3, ["\n" * 500]),
)


def spoiled(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a payload with each field replaced by each kind of junk, and without it."""
    yield {}
    for field in payload:
        yield {name: value for name, value in payload.items() if name != field}
        for junk in (*JUNK, *NESTED):
            yield {**payload, field: junk}
    yield {**payload, "more": JUNK[-2]}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Node]]:
    made = [opened(tmp_path, number, lambda: Pinned([key(n).public.origin for n in (1, 2, 9)])) for number in (1, 2)]
    yield made
    close(made)


def opened(folder: Path, number: int, standing: Callable[[], Any]) -> Node:
    ring = partial(KeyRing, folder / f"r{number}", node_keys=[key(number)])
    more: dict[str, Any] = {"keys": [key(number)], "sealing": Sealing(ring), "make_standing": standing}
    log = open_node("memory", folder, LOG_ID, f"n{number}", catalog=TYPES, make_views=Views, **more).log

    def follow() -> None:
        follow_pending(log, Owned)

    return Node(log, on_forgotten=follow, may_have_keys=lambda node: True)


def everything_works(nodes: list[Node], sent: list[Event]) -> None:
    one, other = nodes
    for node, name in ((one, "first"), (other, "second")):
        write(node, name)
        register(node.log, f"c/{name}", f"{name}@example.org")
    kinds = {outcome.kind for outcome in one.log.admit_each(sent)}
    assert kinds <= {"recorded", "held", "refused"}
    assert "recorded" in kinds
    for _ in range(3):
        one.sync_with(other.answer)
        other.sync_with(one.answer)
    assert proven_equal(one.heads(), other.heads())
    for node in nodes:
        log = node.log
        write(node, "still writes")
        assert log.verify().ok
        assert conflicts(log) is not None
        record_detected(log)
        status(log)
        find(log, "c/first")
        with pytest.raises(NotFound):
            find(log, "c/nobody")
        for view in log.views.names():
            log.view(view).digest()
        node.keys.lacking()
        log.purge("note/1", reason="it works")
    for _ in range(3):
        one.sync_with(other.answer)
    assert proven_equal(one.heads(), other.heads())


@pytest.mark.parametrize("event_type", WELL_FORMED)
def test_what_a_member_makes_up_harms_nobody(event_type: str, pair: list[Node]) -> None:
    author = Author(9)
    stream, payload = WELL_FORMED[event_type]
    sent = [made for one in spoiled(payload) for made in author.write(type=event_type, stream=stream, payload=one)]
    everything_works(pair, sent)


def test_acts_that_an_admin_makes_up_harm_nobody() -> None:
    world = World()
    eve, bob = world.member("eve", 9, role="admin"), world.member("bob", 8)
    for event_type, fields in ACTS.items():
        for payload in spoiled(dict.fromkeys(fields, bob.actor)):
            world.say(eve.author, eve.actor, event_type, f"community/{world.community}", payload)
    world.chat(bob, "is here")
    nodes = [Node(community_node(world, MemoryStore(identity=identity(number)))) for number in (1, 2)]
    nodes[0].log.admit_each(world.events)
    nodes[1].log.admit_each(world.events[::-1])
    for node in nodes:
        node.log.append("note.added", stream="note/1", payload={"text": "still writes"})
    for _ in range(2):
        nodes[0].sync_with(nodes[1].answer)
    assert proven_equal(nodes[0].heads(), nodes[1].heads())
    assert counting(nodes[0].log) == counting(nodes[1].log)
    assert member_names(nodes[0].log, world) == member_names(nodes[1].log, world)
    for node in nodes:
        assert node.log.verify().ok
        for view in node.log.views.names():
            node.log.view(view).digest()
