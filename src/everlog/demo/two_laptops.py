"""Two laptops with one signed log: they sync, a customer is forgotten on both, and everything still verifies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from everlog import wiring
from everlog.application.folder.create import create_folder
from everlog.application.sync.join import join
from everlog.application.sync.listen import listen
from everlog.application.sync.node import location_of, node_of
from everlog.application.sync.places import sync_with_url
from everlog.application.trust.checkpoints import check_checkpoint, compare_with_log, make_checkpoint
from everlog.application.trust.forget import forget
from everlog.application.trust.owned_bytes import owned_by
from everlog.application.trust.proofs import check_proof, prove
from everlog.files import DiskFiles, replace_file
from everlog.log.log import Log
from everlog.settings import FOLDER
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal

TYPES = """
[types."shop.registered"]
fields = { customer = "str", email = "str personal of customer" }
"""
CUSTOMERS = {"customer/1": "grace@example.org", "customer/2": "alan@example.org"}
FORGOTTEN = "customer/1"


class Proven(NamedTuple):
    """What was seen."""

    events: int  # on each laptop
    keys: int  # that signed them
    position: int  # of the event that was proved
    found: list[str]  # files that still have the address of the forgotten customer


def sync_and_forget() -> Proven:
    """Do it in a folder that is removed at the end. Raise AssertionError if something does not hold."""
    with tempfile.TemporaryDirectory(prefix="everlog-demo-") as made:
        one, other = Path(made) / "one", Path(made) / "other"
        one.mkdir()
        create_folder(one / FOLDER, types=TYPES, signed=True)
        with _node(one) as first:
            _register(first.log, CUSTOMERS)
            listener = listen(first, "127.0.0.1:0", open_to_all=True)
            try:
                return _with_second(first, other, listener.url, Path(made))
            finally:
                listener.close()


def _with_second(first: Node, other: Path, url: str, made: Path) -> Proven:
    join(url, other, store="sqlite:log.db", warn=lambda text: None)
    replace_file(DiskFiles(), other / FOLDER / "types.toml", TYPES.encode())
    with _node(other) as second:
        second.log.append("note.added", stream="note/1", payload={"text": "from the other laptop"})
        assert sync_with_url(second, url).equal, "the laptops differ after a sync"
        key = first.log.signing_key()
        proved = next(first.log.read(stream=FORGOTTEN))
        checkpoint = str(make_checkpoint(first.log, key)).encode()
        proof = msgspec.json.encode(prove(first.log, proved.event.id, key))
        forget(first.log, FORGOTTEN, owned=owned_by(location_of(made / "one" / FOLDER)))
        sync_with_url(second, url)  # the second one follows, and records that it has
        assert sync_with_url(second, url).equal, "the laptops differ after somebody was forgotten"
        for node in (first, second):
            assert node.log.verify().ok, "a laptop does not verify any more"
            left = next(node.log.read(stream=FORGOTTEN)).event.payload
            assert CUSTOMERS[FORGOTTEN] not in str(left), "a laptop can still read the forgotten address"
        checked = check_checkpoint(checkpoint)
        assert compare_with_log(first.log, checked.checkpoint) is None, "an old checkpoint does not hold any more"
        assert check_proof(proof).author == proved.event.origin, "an old proof does not hold any more"
        assert proven_equal(first.heads(), second.heads())
        keys = {one.event.origin for one in first.log.read()}
        events = sum(1 for _ in second.log.read())
    return Proven(events, len(keys), proved.position, _files_with(made, CUSTOMERS[FORGOTTEN].encode()))


@contextmanager
def _node(directory: Path) -> Iterator[Node]:
    with wiring.open_folder(directory / FOLDER, actor="user:ada") as log:
        yield node_of(log, location_of(directory / FOLDER))


def _register(log: Log, customers: dict[str, str]) -> None:
    for customer, email in customers.items():
        log.append("shop.registered", stream=customer, payload={"customer": customer, "email": email})


def _files_with(folder: Path, text: bytes) -> list[str]:
    return [
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()
    ]
