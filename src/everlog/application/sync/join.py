"""Join a log that somebody else has: the same log id, an own key, and everything that counts there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from everlog import wiring
from everlog.application.folder.create import CreatedLog, create_log
from everlog.application.folder.settings import change_setting
from everlog.application.sync.assisted import Used, begin_with_snapshots, check_by_replay
from everlog.application.sync.node import follow_forgets, location_of, node_of
from everlog.application.sync.peers import add_peer
from everlog.application.sync.places import http_peer
from everlog.errors import Conflict, NotAuthorized
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.settings import FILE_NAME, FOLDER
from everlog.stores.identity import new_identity
from everlog.sync.exchange import HEADS, Synced
from everlog.sync.wire import Heads, decode
from everlog.trust.keys import PrivateKey, is_key, key_of

if TYPE_CHECKING:
    from everlog.sync.carriers.http_client import HttpPeer


class Joined(NamedTuple):
    """A log that was joined, what came, and the snapshots that its views begin with."""

    created: CreatedLog
    synced: Synced
    snapshots: list[Used]


def join(
    url: str, directory: Path, *, store: str, authors: str = "", quorum: int = 0, warn: Callable[[str], None]
) -> Joined:
    """Make a node of a peer's log in a directory, and sync with that peer, which becomes the first peer here.

    The node gets a new key if the peer has one. If the peer does not know that key, it is kept, so that the
    next attempt uses the same. `authors` and `quorum` become settings of the node: with keys in `authors`, views
    begin with snapshots of the peer that enough of these keys have signed.
    """
    folder = directory / FOLDER
    if DiskFiles().exists(folder / FILE_NAME):
        raise Conflict(
            f"there is a log in {folder} already",
            why="a node that joins is a new log",
            hint=f"everlog sync {url} exchanges events with a peer; or join in another directory",
        )
    keys = wiring.key_folder(folder / "keys")
    kept = keys.list() if DiskFiles().exists(folder / "keys") else []
    key = keys.load(kept[0].origin) if kept else PrivateKey.new()
    peer = http_peer(url, key)
    try:
        try:
            heads = decode(peer(HEADS, b""), Heads)
        except NotAuthorized as error:
            if not kept:
                _make(folder)
                keys.keep(key)
            raise NotAuthorized(
                f"{url} does not know this node yet",
                why=error.what,
                hint=f"on the peer, type: everlog peers add {key.public.origin}; then type everlog join {url} again",
                **error.details,
            ) from error
        signed = is_key(heads.origin)
        _make(folder)
        if signed and not kept:
            keys.keep(key)
        origin = key.public.origin if signed else ""
        identity = msgspec.structs.replace(new_identity(time.time_ns() // 1000, origin), log_id=heads.community_id)
        wiring.create_store(store, base=folder, identity=identity)
        created = create_log(directory, store=store, signed=signed, warn=warn)
        for name, value in (("authors", authors), ("snapshot_quorum", str(quorum) if quorum else "")):
            if value:
                change_setting(folder, name, value, warn=warn)
        with wiring.open_folder(folder) as log:
            add_peer(log, peer.url, key=peer.node)
            return Joined(created, *_sync(log, folder, peer, heads))
    finally:
        peer.close()


def _sync(log: Log, folder: Path, peer: HttpPeer, heads: Heads) -> tuple[Synced, list[Used]]:
    """Fetch everything, first what the snapshots of the peer cover if they can be used."""
    location, actor = location_of(folder), f"peer:{peer.node or 'unknown'}"
    node, settings = node_of(log, location, on_forgotten=lambda: None), location.settings().settings
    used: list[Used] = []
    pinned = pinned_keys(settings.authors)
    if heads.shares and pinned:
        used = begin_with_snapshots(node, peer, pinned=pinned, quorum=settings.snapshot_quorum, peer=actor)
    before = log.head()
    done = node.sync_with(peer, peer=actor)
    if used:
        done = msgspec.structs.replace(done, received_count=done.received_count + before)
    follow_forgets(log, location, joined=True)  # at the end: of most of them it has nothing
    return done, check_by_replay(log, used)


def pinned_keys(authors: str) -> set[str]:
    """Return the keys that the setting `authors` pins; none if it is empty or names a community."""
    if authors.startswith("community:"):
        return set()
    return {key_of(name).origin for name in map(str.strip, authors.split(",")) if name}


def _make(folder: Path) -> None:
    """Create a folder, and the directories that it is in."""
    files = DiskFiles()
    for missing in reversed([one for one in (folder, *folder.parents) if not files.exists(one)]):
        files.make_dir(missing)
