"""Join a log that somebody else has: the same log id, an own key, and everything that counts there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from everlog import wiring
from everlog.application.folder.create import CreatedLog, create_log
from everlog.application.sync.peers import add_peer
from everlog.application.sync.places import http_peer
from everlog.errors import Conflict, NotAuthorized
from everlog.files import DiskFiles
from everlog.settings import FILE_NAME, FOLDER
from everlog.stores.identity import new_identity
from everlog.sync.exchange import HEADS, Node, Synced
from everlog.sync.wire import Heads, decode
from everlog.trust.keys import PrivateKey, is_key


def join(url: str, directory: Path, *, store: str, warn: Callable[[str], None]) -> tuple[CreatedLog, Synced]:
    """Make a node of a peer's log in a directory, and sync with that peer, which becomes the first peer here.

    The node gets a new key if the peer has one. If the peer does not know that key, it is kept, so that the
    next attempt uses the same.
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
        with wiring.open_folder(folder) as log:
            add_peer(log, peer.url, key=peer.node)
            return created, Node(log).sync_with(peer, peer=f"peer:{peer.node or 'unknown'}")
    finally:
        peer.close()


def _make(folder: Path) -> None:
    """Create a folder, and the directories that it is in."""
    files = DiskFiles()
    for missing in reversed([one for one in (folder, *folder.parents) if not files.exists(one)]):
        files.make_dir(missing)
