"""Webhooks: which events are sent where, and how a delivery is signed.

A hook is a note of the log, `hook/NAME`, and a group of consumers, `hook-NAME`, that remembers how far it is, what
failed and when it is tried again. A delivery is a CloudEvent in structured mode, signed as Standard Webhooks has it:

    webhook-id: 01M7…                 the id of the event: a receiver that has seen it ignores it
    webhook-timestamp: 1763472000
    webhook-signature: v1,BASE64      HMAC-SHA256 of ID.TIMESTAMP.BODY; `v1a,BASE64` is Ed25519, if the log has a key

The secrets of all hooks follow from one file beside the keys of the log, which only its owner can read. The log
itself has none of them.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from everlog.consumers.group import Group
from everlog.core.query import Query
from everlog.errors import Conflict, InvalidField, NoKey, NotFound
from everlog.files import DiskFiles, replace_file
from everlog.log.log import Log
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES
from everlog.trust.keys import PrivateKey

PREFIX = "hook/"
GROUP_PREFIX = "hook-"
SECRET_FILE = "hooks.secret"
SECRET_PREFIX = "whsec_"
ATTEMPTS_MAX = 12
RETRY_S, RETRY_S_MAX = 1.0, 3600.0
PARTITIONS = 8
LEASE_S = 15.0
_SECRET_BYTES = 32


class Hook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where events are sent, and which."""

    name: str
    url: str
    nonce: str  # a hook that is removed and added again has another secret
    types: tuple[str, ...] = ()
    kind: str = ""
    scope: str = ""
    private: bool = False  # the address may be on this machine or in a private network
    created_at: datetime
    created_by: str = ""

    def query(self) -> Query:
        return Query(types=frozenset(self.types), kind=self.kind, scope=self.scope)

    def group(self, log: Log) -> Group:
        """Return the group of consumers that remembers how far this hook is."""
        return Group(
            log,
            GROUP_PREFIX + self.name,
            self.query(),
            partitions=PARTITIONS,
            start="head",
            lease_s=LEASE_S,
            attempts_max=ATTEMPTS_MAX,
            retry_s=RETRY_S,
            retry_s_max=RETRY_S_MAX,
            on_poison="pass",
        )


def add_hook(
    log: Log,
    url: str,
    *,
    name: str = "",
    types: tuple[str, ...] = (),
    kind: str = "",
    scope: str = "",
    private: bool = False,
    by: str = "",
) -> Hook:
    """Add a hook: it is sent what is recorded from now on."""
    require_url(url, private=private)
    hook = Hook(
        name=name or str(urlsplit(url).hostname).replace(".", "-"),
        url=url,
        nonce=secrets.token_hex(16),
        types=types,
        kind=kind,
        scope=scope,
        private=private,
        created_at=datetime.now(UTC),
        created_by=by,
    )
    hook.query()  # refuses what no event can have

    def put(write: OpenWrite) -> None:
        if write.rows(NOTES, (PREFIX + hook.name,)):
            raise Conflict(
                f"there is a hook {hook.name!r} already",
                hint="choose another --name, or everlog hooks list",
                name=hook.name,
            )
        write.put(NOTES, {PREFIX + hook.name: msgspec.json.encode(hook)})

    log.writer.write(put)
    with hook.group(log).member("add", heartbeat=False) as member:
        member.take()  # the group exists from here on: nothing that is recorded later is missed
    return hook


def remove_hook(log: Log, name: str) -> Hook:
    """Remove a hook, and what it remembers."""
    hook = hook_named(log, name)
    log.writer.write(lambda write: write.put(NOTES, {PREFIX + name: None}))
    hook.group(log).forget()
    return hook


def hook_named(log: Log, name: str) -> Hook:
    for hook in hooks_of(log):
        if hook.name == name:
            return hook
    raise NotFound(f"there is no hook {name[:80]!r}", hint="everlog hooks list", name=name)


def hooks_of(log: Log) -> Iterator[Hook]:
    for _, value in log.writer.small_state.scan(NOTES, prefix=PREFIX):
        yield msgspec.json.decode(value, type=Hook)


def replay(log: Log, name: str, *, by: str) -> int:
    """Try everything again that a hook could not deliver; return how much that is."""
    group = hook_named(log, name).group(log)
    letters = group.dead_letters()
    for letter in letters:
        group.retry(letter.position, by=by, reason="replay")
    return len(letters)


def require_url(url: str, *, private: bool) -> None:
    """Refuse an address that is not https, unless it may be a private one; without a password in it."""
    parts = urlsplit(url)
    wrong = ""
    if parts.scheme != "https" and not (private and parts.scheme == "http"):
        wrong = "it is not https"
    elif not parts.hostname:
        wrong = "it names no host"
    elif parts.username or parts.password or parts.fragment:
        wrong = "it has a user, a password or a fragment"
    if wrong:
        raise InvalidField(
            "the address of the hook cannot be used",
            why=wrong,
            hint="give an https:// address; on a private network also --private",
            field="url",
        )


# ---- signatures


class HookSecrets:
    """The secrets of hooks, from one file beside the keys of a log."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SECRET_FILE
        self._files = DiskFiles()

    def of(self, hook: Hook) -> str:
        """Return the secret of a hook, as its receiver gets it."""
        derived = hmac.digest(self._master(), f"everlog hook\n{hook.name}\n{hook.nonce}".encode(), "sha256")
        return SECRET_PREFIX + b64encode(derived).decode()

    def _master(self) -> bytes:
        if not self._files.exists(self._path):
            if not self._files.exists(self._path.parent):
                self._files.make_dir(self._path.parent, mode=0o700)
            lock = self._files.lock(self._path.with_suffix(".lock"))
            lock.acquire()
            try:
                if not self._files.exists(self._path):  # another process may have been faster
                    replace_file(self._files, self._path, secrets.token_bytes(_SECRET_BYTES), mode=0o600)
            finally:
                lock.release()
                lock.close()
        found = self._files.read_all(self._path)
        if len(found) != _SECRET_BYTES:
            raise NoKey(
                f"{self._path} is damaged",
                why=f"it has {len(found)} bytes instead of {_SECRET_BYTES}",
                hint="restore it from a backup; with a new one, receivers need new secrets",
            )
        return found


def signature_headers(
    event_id: str, timestamp: int, body: bytes, secret: str, key: PrivateKey | None
) -> dict[str, str]:
    """Return the headers of a signed delivery."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    shared = b64decode(secret.removeprefix(SECRET_PREFIX))
    signatures = ["v1," + b64encode(hmac.digest(shared, signed, "sha256")).decode()]
    if key is not None:
        signatures.append("v1a," + b64encode(key.sign(signed)).decode())
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
