"""A log of format 1 is brought to the present format: everything in it stays, and its chains hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.upgrade.server import Server, postgres_server
from tests.upgrade.test_format1 import FILES, LOGS, as_it_was
from tests.upgrade.writing import CATALOG, STORES

from everlog.core.event import Purged
from everlog.errors import NotFound, OlderFormat
from everlog.log.log import Log
from everlog.stores.contract import Store
from everlog.stores.small_state import CLAIMS, claim_of
from everlog.transfer.upgrade.carry import NOTE
from everlog.upgrading import forget_old, upgrade
from everlog.wiring import open_store

IN_POSTGRES = ("postgres", "postgres_copied")
KEPT_US = 100 * 365 * 86_400_000_000
"""How long these tests keep keys: the logs are as old as they are, and a key is forgotten after 24 hours."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from postgres_server()


@pytest.fixture(params=(*FILES, *IN_POSTGRES))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Path]:
    """The name, the URL and the base of a log in format 1."""
    name: str = request.param
    if name in IN_POSTGRES:
        server: Server = request.getfixturevalue("server")
        schema = f"{name}_{abs(hash(str(tmp_path))) % 10**9}"
        server.load(schema, LOGS / f"{name}.txt")
        return name, f"{server.url}{'&' if '?' in server.url else '?'}schema={schema}", tmp_path
    shutil.copytree(LOGS / name, tmp_path / "log")
    return name, STORES[name.partition("_")[0]], tmp_path / "log"


def known(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((LOGS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def plain(store: Store) -> dict[str, Any]:
    """Everything that an upgrade must keep: all but the hashes of chains."""
    found = {
        "identity": store.identity,
        "clock": store.ends().clock,
        "slots": [without_chain(as_it_was(slot)) for slot in store.slots()],
        "purges": store.purges(),
        "rows": sorted(row for row in store.small_state.every_row() if row.key != NOTE),
    }
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return decoded


def without_chain(slot: dict[str, Any]) -> dict[str, Any]:
    if "header" in slot:
        header = msgspec.json.decode(msgspec.json.decode(msgspec.json.encode(slot["header"]), type=bytes))
        return {**slot, "header": header[:16]}
    return {**slot, "previous": ""}


def test_everything_stays_and_the_chains_hold(old: tuple[str, str, Path]) -> None:
    name, url, base = old
    done = upgrade(url, base=base)
    before = known(name)
    with closing(open_store(url, base=base, create=False)) as store:
        assert plain(store) == {
            **{key: value for key, value in before.items() if key != "digest"},
            "slots": [without_chain(slot) for _, slot in before["slots"]],
        }
        log = Log(store, CATALOG)
        verified = log.verify()
        assert verified.problems == ()
        assert done.report is not None
        assert done.report.old_digest == before["digest"]
        assert done.report.digest == verified.digest != before["digest"]
        assert (done.report.events, done.report.purged) == (verified.events, verified.purged)
        stubs = [slot for slot in store.slots() if isinstance(slot, Purged)]
        assert {stub.hash_format for stub in stubs} == {1}
        assert all(stub.lamport > 0 for stub in stubs)


def test_the_log_goes_on_and_its_keys_are_answered(old: tuple[str, str, Path]) -> None:
    _, url, base = old
    upgrade(url, base=base)
    store = open_store(url, base=base, create=False, claims_kept_us=KEPT_US)
    log = Log(store, CATALOG, actor="user:ada", keys_kept_us=KEPT_US)
    head = log.head()
    again = log.append("note.added", stream="note/1", payload={"text": "Grüße 🎉 1"}, key="key-1")
    assert again.position < head == log.head()
    fresh = log.append("note.added", stream="note/1", payload={"text": "after"})
    assert fresh.position == head + 1
    log.purge("note/1", actor="user:ada", reason="asked to")
    verified = log.verify()
    assert verified.problems == ()
    log.close()


def test_a_claim_still_leads_to_the_events_of_its_request(old: tuple[str, str, Path]) -> None:
    _, url, base = old
    upgrade(url, base=base)
    with closing(open_store(url, base=base, create=False)) as store:
        gone = {slot.position for slot in store.slots() if isinstance(slot, Purged)}
        for row in store.small_state.every_row():
            if row.space == CLAIMS:
                first = claim_of(row.value).first
                assert first in gone or next(store.read(after=first - 1, limit=1)).position == first  # type: ignore[arg-type]


def test_an_old_log_is_refused_until_it_is_upgraded(old: tuple[str, str, Path]) -> None:
    _, url, base = old
    for create in (False, True):
        with pytest.raises(OlderFormat, match="format 1") as refused:
            open_store(url, base=base, create=create)
        assert "everlog upgrade" in refused.value.hint
    upgrade(url, base=base)
    open_store(url, base=base, create=False).close()


def test_a_second_upgrade_finds_nothing_to_do_and_shows_the_old_digest(old: tuple[str, str, Path]) -> None:
    name, url, base = old
    first, second = upgrade(url, base=base), upgrade(url, base=base)
    assert first.done
    assert not second.done
    assert second.report == first.report
    assert first.report is not None
    assert first.report.old_digest == known(name)["digest"]


def test_the_old_files_stay_until_they_are_forgotten(old: tuple[str, str, Path]) -> None:
    name, url, base = old
    upgrade(url, base=base)
    if name not in IN_POSTGRES:
        kept = [path.name for path in base.rglob("*") if "format1" in path.name]
        assert kept
    forget_old(url, base=base)
    assert [path for path in base.rglob("*") if "format1" in path.name] == []
    with pytest.raises(NotFound):
        forget_old(url, base=base)
    open_store(url, base=base, create=False).close()


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jsonl")])
def test_every_clone_comes_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    found = []
    for clone in ("one", "two"):
        shutil.copytree(LOGS / name, tmp_path / clone)
        if clone == "two":
            shutil.rmtree(tmp_path / clone / "log" / "local")
        upgrade(STORES["jsonl"], base=tmp_path / clone)
        folder = tmp_path / clone / "log"
        found.append({path.name: path.read_bytes() for path in [*(folder / "events").iterdir(), folder / "log.json"]})
    assert found[0] == found[1]
