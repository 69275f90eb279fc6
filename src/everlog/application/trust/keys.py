"""The keys of a log: made, listed, shown in all their forms, exported, imported, and followed by another one.

Nothing here returns a private key. One leaves the folder of keys only into a file that somebody names.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from everlog import wiring
from everlog.application.folder.open import Location
from everlog.core.event import Recorded
from everlog.core.query import Query
from everlog.errors import NoKey, NotFound
from everlog.log.log import Log
from everlog.stores.contract import Identity
from everlog.trust.key_files import KeyFolder
from everlog.trust.keys import PublicKey, is_key, key_of
from everlog.trust.notes import name_of


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key that the folder has."""

    key: str
    use: str  # signs, former or spare
    signed: int  # the last number that it signed in this log
    passphrase: bool


class KeyForms(msgspec.Struct, frozen=True, kw_only=True):
    """All forms of a public key."""

    key: str
    did: str
    openssh: str
    verifier: str


def keys_of(location: Location) -> KeyFolder:
    """Return the private keys of the log at a location."""
    settings = location.settings().settings
    if location.url:
        settings = msgspec.structs.replace(settings, store=location.absolute_url())
        return wiring.keys_of(settings, Path(), own=False)
    return wiring.keys_of(settings, location.folder(), own=True)


def list_keys(keys: KeyFolder, identity: Identity) -> list[KeyRow]:
    """Return the keys of a folder, and what each is to the log."""

    def use(origin: str) -> str:
        return "signs" if origin == identity.origin else "former" if origin in identity.former else "spare"

    return [
        KeyRow(
            key=one.origin,
            use=use(one.origin),
            signed=keys.last_signed(one.origin, identity.log_id),
            passphrase=one.protected,
        )
        for one in keys.list()
    ]


def new_key(keys: KeyFolder, *, passphrase: bool) -> str:
    """Make a key that nothing uses yet."""
    return keys.new(protect=passphrase).public.origin


def forms_of(identity: Identity, name: str = "") -> KeyForms:
    """Return the forms of a key: of the one named in any form, or of the log's own."""
    if not name and not is_key(identity.origin):
        raise NotFound(
            "this log is not signed, so it has no key",
            why=f"its origin {identity.origin} is not a key",
            hint="everlog config set sign required; the next event is signed, with a new key",
        )
    key = key_of(name or identity.origin)
    return KeyForms(key=key.origin, did=key.did, openssh=key.openssh, verifier=key.verifier(str(name_of(identity))))


def export_key(keys: KeyFolder, identity: Identity, target: Path, name: str = "") -> PublicKey:
    """Write a private key to a new file that only its owner can read."""
    if not name and not is_key(identity.origin):
        raise NoKey(
            "this log is not signed, so it has no key to export",
            why=f"its origin {identity.origin} is not a key",
            hint="everlog keys list; name the key",
        )
    key = key_of(name or identity.origin)
    keys.export(key.origin, target)
    return key


def import_key(keys: KeyFolder, source: Path, *, passphrase: bool) -> str:
    """Keep the private key of a file."""
    return keys.import_file(source, protect=passphrase).public.origin


def rotate_key(log: Log, keys: KeyFolder, to: str = "") -> Recorded:
    """End the chain of the log's key, and continue under the key `to`, in any form, or a new one.

    In a community, those who act from this log announce the new key as a node of theirs, before the old one ends.
    """
    before = log.identity.origin
    if not to and is_key(before):
        to = keys.new(like=before).public.origin
    origin = key_of(to).origin if to else ""
    if origin and any(log.read(Query(types=frozenset(("community.created",))), limit=1)):
        from everlog.programs.community.governing import announce_successor  # needed by few logs

        announce_successor(log, origin)
    return log.rotate_key(to=origin)
