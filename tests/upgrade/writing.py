"""Writes the logs in logs/, in format 1. It was run once, with the last version that wrote that format:

    PYTHONPATH=/path/to/that/version/src:. python -m tests.upgrade.writing

Beside each log is what that version read from it: every slot, claim and note, the clock and the digest.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

import everlog
from everlog.core.event import Event
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.stores.contract import Store
from everlog.transfer.copy import copy_log
from everlog.wiring import copy_target, merge_day_files, open_store

LOGS = Path(__file__).parent / "logs"
CATALOG = everlog.Catalog()


@CATALOG.event("note.added")
class NoteAdded(msgspec.Struct):
    text: str
    extra: list[Any] = []


STORES = {"sqlite": "sqlite:log.db", "jsonl": "jsonl:log", "segments": "segments:log"}


def fill(url: str, base: Path) -> None:
    """Write batches, keys, refusals, events of two other logs, and purges."""
    peers = [_events_of_a_peer(number) for number in (1, 2)]
    log = _open(url, base)
    log.append_batch([_note(n % 4, f"first {n}") for n in range(10)])
    for n in range(12):
        log.append("note.added", stream=f"note/{n % 3}", payload={"text": f"Grüße 🎉 {n}"}, key=f"key-{n}")
    log.append_batch([_note(n % 5, f"batch {n}") for n in range(7)], key="a-batch")
    log.admit(peers[0])
    log.admit(peers[1][3:])  # its chain begins in the middle
    log.append(
        "note.added", stream="note/9", payload={"text": "kept", "extra": [1.5, 1e-7, {"b": 1, "a": None}, "\u0000"]}
    )
    log.purge("note/2", actor="user:ada", reason="asked to")
    log.purge("peer/1", actor="user:ada", reason="asked to")
    for n in range(3):
        log.append("note.added", stream="note/2", payload={"text": f"again {n}"}, key=f"again-{n}", scope="acme/shop")
        try:
            log.append("no.such_type", stream="note/2", payload={"text": "x"})
        except EverlogError as error:
            log.record_refusal(error, [_note(2, "x")], "append")  # type: ignore[attr-defined] # of that version
    log.admit(peers[1][:3])  # the beginning comes later: the chain is out of order
    log.close()


def _events_of_a_peer(number: int) -> list[Event]:
    with tempfile.TemporaryDirectory() as folder:
        log = _open("sqlite:peer.db", Path(folder))
        log.append_batch([_note(n, f"peer {number}.{n}", "peer") for n in range(6)])
        events = [recorded.event for recorded in log.read()]
        log.close()
    return events


def _note(stream: int, text: str, kind: str = "note") -> everlog.Draft:
    return everlog.Draft(type="note.added", stream=f"{kind}/{stream}", payload={"text": text})


def _open(url: str, base: Path) -> everlog.Log:
    return Log(open_store(url, base=base), CATALOG, actor="user:ada")


def content(store: Store) -> dict[str, Any]:
    """Return everything that an upgrade must keep, in JSON."""
    found: dict[str, Any] = msgspec.to_builtins(
        {
            "identity": store.identity,
            "clock": store.ends().clock,
            "slots": [[type(slot).__name__, slot] for slot in store.slots()],
            "purges": store.purges(),
            "rows": sorted(store.small_state.every_row()),
        }
    )
    return found


def keep(name: str, url: str, base: Path) -> None:
    store = open_store(url, base=base)
    found = {**content(store), "digest": Log(store, CATALOG).verify().digest}
    text = json.dumps(found, indent=0, ensure_ascii=False)
    (LOGS / f"{name}.json").write_text(text, encoding="utf-8")
    store.close()


def main() -> None:
    from tests.visible import world

    shutil.rmtree(LOGS, ignore_errors=True)
    for store, url in STORES.items():
        (LOGS / store).mkdir(parents=True)
        fill(url, LOGS / store)
        if store == "segments":
            _pack_all_but_the_last(url, LOGS / store)
        keep(store, url, LOGS / store)
    for store, url in STORES.items():
        (LOGS / f"{store}_copied").mkdir()
        _copy("segments" if store == "sqlite" else "sqlite", url, LOGS / f"{store}_copied")
        keep(f"{store}_copied", url, LOGS / f"{store}_copied")
    with world.postgres() as server:
        fill(server.url("postgres"), LOGS)
        _copy("sqlite", server.url("postgres_copied"), LOGS)
        for name in ("postgres", "postgres_copied"):
            keep(name, server.url(name), LOGS)
            (LOGS / f"{name}.txt").write_text(server.dump(name), encoding="utf-8")
    _merge(LOGS / "jsonl_merged")
    keep("jsonl_merged", STORES["jsonl"], LOGS / "jsonl_merged")
    for pattern in ("*lock", "*.queue", ".gitignore", "*-wal", "*-shm"):
        for left in LOGS.rglob(pattern):
            assert not (pattern == "*-wal" and left.stat().st_size), left
            left.unlink()
    (LOGS / ".gitattributes").write_text("* -text\n*.db binary\n*.gz binary\n*.seg binary\n*.idx binary\n")


def _copy(name: str, url: str, base: Path) -> None:
    source = open_store(STORES[name], base=LOGS / name)
    copy_log(source, copy_target(url, base=base))
    source.close()


def _merge(base: Path) -> None:
    """Let two clones write at the same time and merge their day files: positions are not in the order of lines."""
    shutil.copytree(LOGS / "jsonl", base)
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        shutil.copytree(base, other, ignore=shutil.ignore_patterns("local"))
        for place, texts in ((base, "abc"), (other, "xyz")):
            log = _open(STORES["jsonl"], place)
            for text in texts:
                log.append_batch([_note(n, text) for n in range(3)], key=f"{text}-in-a-clone")
            log.close()
        for path in (base / "log" / "events").iterdir():
            theirs = other / "log" / "events" / path.name
            path.write_bytes(merge_day_files(path.name, path.read_bytes(), theirs.read_bytes()))


def _pack_all_but_the_last(url: str, base: Path) -> None:
    store: Any = open_store(url, base=base)
    with store.open_write():
        pass
    store.archive(days=0)
    store.close()


if __name__ == "__main__":
    main()
