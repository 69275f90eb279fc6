"""The peers of a log: where they are, which keys they have, and how the last sync with each one went.

They are kept beside the events of this log, and are not sent to anybody.
"""

from __future__ import annotations

import ipaddress
import time
from datetime import UTC, datetime
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from everlog.errors import EverlogError, InvalidField, NotFound
from everlog.log.log import Log
from everlog.stores.small_state import NOTES, read_note, read_notes
from everlog.sync.exchange import Synced
from everlog.trust.keys import is_key, key_of

_PEERS = "peer/"


class Peer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that this one syncs with, or that it answers. One without a URL only asks."""

    url: str = ""
    key: str = ""  # its origin, if it is known
    last: str = ""  # how the last sync went
    last_ms: int = 0

    columns: ClassVar[tuple[str, ...]] = ("url", "key", "last", "at")

    @property
    def name(self) -> str:
        return self.url or self.key

    @property
    def at(self) -> str:
        """When the last sync was."""
        return datetime.fromtimestamp(self.last_ms / 1000, UTC).isoformat(timespec="seconds") if self.last_ms else ""

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine or in its network, as an emergency needs it."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_private
        except ValueError:
            return host == "localhost" or host.endswith(".local") or (bool(host) and "." not in host)


def peers_of(log: Log) -> list[Peer]:
    """Return the peers of a log, in the order of their names."""
    notes = read_notes(log.writer.small_state, _PEERS)
    return [msgspec.json.decode(text, type=Peer) for _, text in sorted(notes.items())]


def add_peer(log: Log, name: str, *, key: str = "") -> Peer:
    """Add a peer by its URL or by its key. What is given replaces what was known of it."""
    url = ""
    if "://" in name:
        url = _require_url(name)
        key = key_of(key).origin if key else ""
    else:
        key = key_of(name).origin
    before = _peer(log, url or key)
    peer = Peer(url=url, key=key or before.key, last=before.last, last_ms=before.last_ms)
    _keep(log, peer)
    return peer


def remove_peer(log: Log, name: str) -> Peer:
    """Remove a peer by its URL or by its key."""
    name = name.rstrip("/")
    found = [peer for peer in peers_of(log) if name in (peer.url, peer.key)]
    if not found:
        raise NotFound(f"there is no peer {name}", hint="everlog peers list", name=name)
    log.writer.write(lambda write: write.put(NOTES, {_PEERS + peer.name: None for peer in found}))
    return found[0]


def note_synced(log: Log, url: str, *, key: str, done: Synced | EverlogError) -> None:
    """Remember the key of a peer, and how the sync with it went; nothing of one that was not added."""
    before = _peer(log, url)
    if not before.url:
        return
    if isinstance(done, Synced):
        last = "equal" if done.equal else "different"
    else:
        last = done.code
    _keep(log, Peer(url=url, key=before.key or key, last=last, last_ms=time.time_ns() // 1_000_000))


def _peer(log: Log, name: str) -> Peer:
    text = read_note(log.writer.small_state, _PEERS + name)
    return Peer() if text is None else msgspec.json.decode(text, type=Peer)


def _keep(log: Log, peer: Peer) -> None:
    log.writer.write(
        lambda write: write.put(NOTES, {_PEERS + peer.name: msgspec.json.encode(peer)}, may_be_lost=True)
    )


def _require_url(text: str) -> str:
    parts = urlsplit(text)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable or parts.username or parts.query or parts.fragment:
        raise InvalidField(
            f"{text[:80]} is not the address of a peer",
            why="an address has a host and perhaps a port, and no password: nodes are known by their keys",
            hint="everlog peers add http://HOST:PORT",
            field="url",
        )
    return text.rstrip("/")


def knows(log: Log, key: str) -> bool:
    """Return whether a key gets answers: a peer, or an origin that has written what counts here."""
    if any(peer.key == key for peer in peers_of(log)):
        return True
    chain = log.stored.chains().get(key) if is_key(key) else None
    limit = log.verdicts().limits.get(key)
    return chain is not None and chain.end.origin_seq > 0 and (limit is None or limit.upto > 0)


def may_have_keys(log: Log, key: str) -> bool:
    """Return whether a node gets the keys of persons: its chain counts, and the history or this log's peers name it.

    Where everybody counts, only a peer that was added by its key is named.
    """
    is_named, counts = log.writer.write(lambda write: log.writer.names(write, key))
    return counts and (is_named or any(peer.key == key for peer in peers_of(log)))
