"""One sync with a place: a peer at a URL, a file that travels, a folder that nodes share, or the folder of a log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from everlog import wiring
from everlog.application.conflicts import record_detected
from everlog.application.sync.node import location_of, node_of
from everlog.application.sync.peers import note_synced, peers_of
from everlog.errors import EverlogError, InvalidField, Unavailable
from everlog.files import DiskFiles
from everlog.os_errors import survive_closed_connections
from everlog.settings import FOLDER
from everlog.sync.carriers.bundle import sync_file, sync_folder
from everlog.sync.exchange import Node, Synced
from everlog.trust.keys import PrivateKey

if TYPE_CHECKING:
    from everlog.sync.carriers.http_client import HttpPeer

_logger = logging.getLogger("everlog")


def sync_with(node: Node, place: str, *, base: Path) -> Synced:
    """Sync once with a place; a path is relative to `base`."""
    if place.startswith(("http://", "https://")):
        return sync_with_url(node, place)
    return _with_conflicts(node, _sync_with_path(node, place, base))


def _sync_with_path(node: Node, place: str, base: Path) -> Synced:
    if "://" in place:
        raise InvalidField(
            f"{place[:80]} is not a place to sync with",
            why="it is the URL of a peer (http or https), a file or a folder",
            hint="everlog sync http://HOST:PORT",
            field="place",
        )
    path, files = base / place, DiskFiles()
    if files.exists(path) and path.is_dir():
        if (path / FOLDER).is_dir() or path.name == FOLDER:
            return _sync_with_log(node, path if path.name == FOLDER else path / FOLDER)
        return sync_folder(node, path, peer=_actor("folder", path.name))
    return sync_file(node, path, peer=_actor("file", path.name))


def sync_with_url(node: Node, url: str) -> Synced:
    """Sync once with a peer. Its key, and how it went, are kept if it was added as a peer."""
    url, log = url.rstrip("/"), node.log
    key = next((peer.key for peer in peers_of(log) if peer.url == url), "")
    peer = http_peer(url, log.signing_key(), node=key)
    try:
        done = node.sync_with(peer, peer=_actor("peer", peer.node or url))
    except EverlogError as error:
        note_synced(log, url, key=peer.node, done=error)
        raise
    finally:
        peer.close()
    note_synced(log, url, key=peer.node, done=done)
    return _with_conflicts(node, done)


def _with_conflicts(node: Node, done: Synced) -> Synced:
    """Record the conflicts that changes of this log lost, if something came. Their peer gets that next time."""
    if done.received_count:
        try:
            record_detected(node.log)
        except EverlogError as error:  # such as no_key: what came is recorded, and the next sync looks again
            _logger.warning("no conflicts were recorded after the sync: %s; everlog conflicts detect", error)
    return done


def _sync_with_log(node: Node, folder: Path) -> Synced:
    with wiring.open_folder(folder) as other:
        return node.sync_with(node_of(other, location_of(folder)).answer, peer=_actor("log", folder.parent.name))


def _actor(kind: str, name: str) -> str:
    """Return whose refusals are counted: a name that any shape of an actor allows."""
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
    return f"{kind}:{kept[:100] or 'unknown'}"


def http_peer(url: str, key: PrivateKey | None, *, node: str = "") -> HttpPeer:
    """Return a peer at a URL, to be asked."""
    try:
        from everlog.sync.carriers.http_client import HttpPeer
    except ImportError as error:
        raise need_extra(error) from error
    survive_closed_connections()
    return HttpPeer(url, key=key, node=node)


def need_extra(error: ImportError) -> Unavailable:
    """Return the error for a library of the extra `client` that is missing."""
    return Unavailable(
        "sync over HTTP needs more libraries",
        why=str(error),
        hint="pip install 'everlog[client]', or EVERLOG_EXTRAS=client ./everlog …; files and folders work without",
    )
