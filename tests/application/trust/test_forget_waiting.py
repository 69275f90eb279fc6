"""What waits beside the log, and what comes back by other ways than sync: a forgotten value is in none of it."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.application.trust.forgetting import (
    BEFORE,
    CATALOG,
    OPEN,
    SUBJECT,
    files_with,
    fill,
    open_shop,
    owned,
    register,
)
from tests.support.nodes import close, new_log_id, open_node

import everlog
from everlog.application.trust.forget import find, follow, forget
from everlog.core.event import Event
from everlog.core.query import Query
from everlog.log.admit.quarantine import held_events, held_rows
from everlog.log.forget import forget_again
from everlog.log.log import Log
from everlog.sync.exchange import Node
from everlog.testing.signing import key
from everlog.transfer.exporting import Export, Format
from everlog.transfer.import_pass import Source
from everlog.transfer.importing import import_files
from everlog.trust.ring import KeyRing
from everlog.trust.sealing import Sealing
from everlog.views.registry import Views

STORES = ["sqlite", "jsonl", "segments"]


class Shop:
    """An author from before the field was personal, and nodes that know that it is."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.log_id, self.store = folder, new_log_id(), store
        self.opened: list[Node] = []
        self.author = self._opened(open_node("memory", folder, self.log_id, "author", keys=[key(9)], catalog=BEFORE))
        self.node = self.another(1)

    def _opened(self, node: Node) -> Node:
        self.opened.append(node)
        return node

    def another(self, number: int) -> Node:
        catalog = everlog.Catalog()
        catalog.include(CATALOG)
        own = key(number)
        sealing = Sealing(partial(KeyRing, self.folder / f"ring{number}", node_keys=[own]))
        name = f"n{number}"
        return self._opened(
            open_node(
                self.store,
                self.folder,
                self.log_id,
                name,
                keys=[own],
                catalog=catalog,
                sealing=sealing,
                make_views=Views,
            )
        )

    def sent(self) -> list[Event]:
        return [recorded.event for recorded in self.author.log.stored.read()]


@pytest.fixture(params=STORES)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, request.param)
    register(made.author.log, "c/2", "another@example.org")
    register(made.author.log, SUBJECT, OPEN)
    yield made
    close(made.opened)


def registered(log: Log) -> list[tuple[object, bool]]:
    """What every recorded customer has as address, and whether a record is named that erased it."""
    found = log.stored.read(Query(types=frozenset(("customer.registered",))))
    return [(one.event.payload.get("email"), bool(one.event.erased_by)) for one in found]


def files_that_hold_it(shop: Shop) -> list[str]:
    """Return the files that have the value, as it is or within base64."""
    packed = [b64encode(bytes(before) + OPEN.encode()).decode()[4:-4] for before in range(3)]
    return files_with(shop.folder, OPEN, *packed)


def test_what_waits_is_forgotten_too(shop: Shop) -> None:
    log, (first, second) = shop.node.log, shop.sent()
    assert [one.kind for one in log.admit_each([second])] == ["held"]
    assert files_that_hold_it(shop)
    found = find(log, SUBJECT)
    assert (found.open, len(found.held), found.values) == ([], 1, [OPEN])
    (receipt,) = forget(log, SUBJECT, owned=owned(shop.folder))
    assert (receipt.forget.erased, receipt.searched.found) == (1, [])
    assert [one.event.payload for one in held_events(log.writer.small_state)] == [{}]
    assert files_that_hold_it(shop) == []

    assert [one.kind for one in log.admit_each([second])] == ["held"]  # it comes again, with its payload
    assert [one.event.payload for one in held_events(log.writer.small_state)] == [{}]
    assert [one.kind for one in log.admit_each([first])] == ["recorded"]
    assert registered(log) == [("another@example.org", False), (None, True)]
    assert dict(held_rows(log.writer.small_state)) == {}
    report = log.verify()
    assert (report.ok, report.erased) == (True, 1)
    assert files_that_hold_it(shop) == []


def test_a_node_that_follows_looks_at_what_waits(shop: Shop) -> None:
    log, other = shop.node.log, shop.another(2)
    shop.node.sync_with(shop.author.answer)
    (receipt,) = forget(log, SUBJECT, owned=owned(shop.folder))
    assert other.log.admit_each(shop.sent()[1:])[0].kind == "held"
    own = [one.event for one in log.stored.read() if one.event.origin == log.identity.origin]
    assert {one.kind for one in other.log.admit_each(own)} == {"recorded"}
    follow(other.log, receipt.forget.records[0], owned=owned(shop.folder))
    assert files_that_hold_it(shop) == []
    assert other.log.admit_each(shop.sent()[:1])[0].kind == "recorded"
    assert registered(other.log) == [("another@example.org", False), (None, True)]
    assert other.log.verify().ok


def forgotten_before_it_came(shop: Shop) -> Log:
    """A node that has carried out the record of another one, and never had the event."""
    log, other = shop.node.log, shop.another(2)
    shop.node.sync_with(shop.author.answer)
    (receipt,) = forget(log, SUBJECT, owned=owned(shop.folder))
    own = [one.event for one in log.stored.read() if one.event.origin == log.identity.origin]
    other.log.admit_each(own)
    follow(other.log, receipt.forget.records[0], owned=owned(shop.folder))
    return other.log


def test_admit_does_not_bring_it_back(shop: Shop) -> None:
    log = forgotten_before_it_came(shop)
    log.admit(shop.sent())
    assert registered(log) == [("another@example.org", False), (None, True)]
    assert log.verify().ok
    assert files_that_hold_it(shop) == []


def source(log: Log) -> Source:
    data = b"".join(Export(log.stored, Format.EVERLOG).pieces())
    return Source("file", len(data), lambda size, at: data[at : at + size])


def test_import_does_not_bring_it_back(shop: Shop) -> None:
    log = forgotten_before_it_came(shop)
    assert import_files(log, [source(shop.author.log)]).new == 2
    assert registered(log) == [("another@example.org", False), (None, True)]
    assert log.verify().ok
    assert files_that_hold_it(shop) == []


def test_a_record_that_comes_after_its_event_is_carried_out_again(tmp_path: Path) -> None:
    """A log that was put back from a backup gets its lost end back from two exports: the older one has the value."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    fill(url)
    shutil.copytree(tmp_path, tmp_path.with_name("backup"))
    with open_shop(url) as log:
        before = source(log)
        forget(log, SUBJECT, owned=owned(tmp_path))
        after = source(log)
    shutil.rmtree(tmp_path)
    shutil.copytree(tmp_path.with_name("backup"), tmp_path)
    with open_shop(url) as log:
        assert OPEN in str(registered(log))
        import_files(log, [before])
        import_files(log, [after])
        assert OPEN not in str(registered(log))
        assert (log.verify().ok, log.verify().erased) == (True, 1)
        assert forget_again(log) == 0
    assert files_with(tmp_path, OPEN) == []
