"""The key ring: one key per person, outside the log and its backups.

    keys/ring/
      secret    what wraps the keys of the ring: sealed to the node's key, or as it is if the log is not signed
      keys      one line per key
      lock      held while either is changed

A line of `keys` is a JSON array: `[id, name, wrapped]` for a key, `[id]` for one that was destroyed. `name` is a
keyed hash of the person, another one for a key that came from another node, and `wrapped` holds the key and the
person, encrypted. Ids are random. So the file shows neither who is known, nor whose key was destroyed.

Values are sealed only with keys that were made here. Whose key one from another node is cannot be proved, and values
that were sealed with it would be lost when it is destroyed with its true person.

Keys are added at the end of the file. To destroy one, the file is replaced without it, and the old bytes are
overwritten; its id stays, so that the key does not come back from a peer or another ring. A file system that copies
on write, and the wear levelling of an SSD, may keep old bytes out of reach.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from everlog.catalog.personal import KEY_ID_CHARS
from everlog.errors import Damaged, NoKey
from everlog.files import DiskFiles, Files, Stamp, leftover_temps, replace_file
from everlog.trust.keys import KEY_BYTES, PrivateKey, PublicKey

FOLDER_MODE, FILE_MODE = 0o700, 0o600
FRESH_S = 0.01
"""How long a key that another process destroyed may still be used here."""

_ID_BYTES = 16
_NAME_BYTES = 16
_NONCE_BYTES = 24
_CACHED_MAX = 100_000

_decode_line = msgspec.json.Decoder(list[str]).decode


class SubjectKey(NamedTuple):
    """The key of one person."""

    id: str
    secret: bytes


class Travelling(msgspec.Struct, frozen=True, array_like=True):
    """A key on its way to another member's node, inside a sealed box."""

    id: str
    subject: str
    secret: bytes


class KeyRing:
    """The keys of persons, in a folder that any number of processes use, or in memory for a log in memory."""

    def __init__(
        self,
        folder: Path | None,
        *,
        node_keys: Sequence[PrivateKey] = (),
        gone: Collection[str] = (),
        files: Files | None = None,
    ) -> None:
        """`node_keys` are the keys of the node, the present one first. Without any, the ring protects itself only by
        the permissions of its folder. `gone` are keys that the log knows to be destroyed: a ring that was put back
        from an older copy does not bring them back."""
        self.folder = self._folder = folder
        self.files = self._files = files or DiskFiles()
        self._gone = frozenset(gone)
        self._node_keys = tuple(node_keys)
        self._threads = threading.RLock()
        self._secret = b""
        self._wrapped: dict[str, str] = {}  # by id
        self._ids: dict[str, list[str]] = {}  # by name
        self._destroyed: set[str] = set(self._gone)
        self._seen: set[str] = set()  # destroyed, and in the file all the same
        self._known: dict[str, SubjectKey] = {}  # by person; emptied when it grows too large
        self._open: dict[str, bytes] = {}  # by id, likewise
        self._stamp: Stamp | None = None
        self._read_to = 0
        self._fresh_until = 0.0
        if folder is None:
            self._secret = os.urandom(KEY_BYTES)

    # ---- using keys

    def keys_of(self, subjects: Collection[str]) -> dict[str, SubjectKey]:
        """Return a key for each person that was made here. A new one is on the disk when this returns."""
        with self._threads:
            self._refresh(at_once=True)
            if not self._known.keys() >= set(subjects):
                self._require_secret()
            found = {subject: key for subject in subjects if (key := self._key_of(subject)) is not None}
            if len(found) < len(subjects):
                with self._changing():
                    self._refresh(at_once=True)  # another process may have been faster
                    found = {subject: key for subject in subjects if (key := self._key_of(subject)) is not None}
                    new = [
                        Travelling(_new_id(), subject, os.urandom(KEY_BYTES))
                        for subject in sorted(set(subjects) - found.keys())
                    ]
                    self._add(new)
                found |= {one.subject: SubjectKey(one.id, one.secret) for one in new}
            return found

    def key(self, key_id: str) -> bytes | None:
        """Return the key with this id, or None if it is not here."""
        with self._threads:
            self._refresh()
            found = self._open.get(key_id)
            if found is None and key_id not in self._wrapped and key_id not in self._destroyed:
                self._refresh(at_once=True)  # another process may have made it just now
            if found is None and key_id in self._wrapped and self._has_secret():
                found = self._unwrapped(key_id).secret
                _remember(self._open, key_id, found)
            return found

    def is_destroyed(self, key_id: str) -> bool:
        """Return whether a key was here, or was reported, and is gone for good."""
        with self._threads:
            self._refresh()
            return key_id in self._destroyed

    def count_destroyed(self) -> int:
        """Return how many keys were destroyed here. If it has not changed, no key has."""
        with self._threads:
            self._refresh(at_once=True)
            return len(self._destroyed)

    @property
    def destroyed(self) -> frozenset[str]:
        """The ids of all keys that were destroyed here. It grows, and never shrinks."""
        with self._threads:
            self._refresh(at_once=True)
            return frozenset(self._destroyed)

    def held(self, key_ids: Collection[str]) -> list[str]:
        """Return those of the keys that are in the file of the ring, whether they may be used or not."""
        with self._threads:
            self._refresh(at_once=True)
            return sorted((self._seen | self._wrapped.keys()).intersection(key_ids))

    def ids_of(self, subject: str) -> list[str]:
        """Return the ids of the keys of a person that are here, whether they were made here or came."""
        with self._threads:
            self._refresh(at_once=True)
            if not self._wrapped:
                return []
            self._require_secret()
            names = (self._name(subject, came=came) for came in (False, True))
            return sorted(key_id for name in names for key_id in self._ids.get(name, ()))

    def made_for(self, key_id: str) -> str | None:
        """Return the person for whom this ring made a key; None if it came from another node, or is not here."""
        with self._threads:
            self._refresh()
            if key_id not in self._wrapped or not self._has_secret():
                return None
            subject = self._unwrapped(key_id).subject
            return subject if key_id in self._ids.get(self._name(subject), ()) else None

    # ---- destroying keys

    def destroy(self, key_ids: Collection[str]) -> None:
        """Destroy keys for good, also those that never were here. When this returns, it is on the disk."""
        with self._threads, self._changing():
            self._refresh(at_once=True)
            if not key_ids:
                return
            for name in list(self._ids):
                self._ids[name] = [key_id for key_id in self._ids[name] if key_id not in key_ids]
                if not self._ids[name]:
                    del self._ids[name]
            for key_id in key_ids:
                self._wrapped.pop(key_id, None)
            self._destroyed.update(key_ids)
            self._seen.difference_update(key_ids)
            self._known.clear()
            self._open.clear()
            self._write_all()

    # ---- keys of other nodes

    def sealed_for(self, node: PublicKey, key_ids: Collection[str]) -> bytes:
        """Return keys in a box that only this node opens. Keys that are not here are left out."""
        from nacl.bindings import crypto_box_seal, crypto_sign_ed25519_pk_to_curve25519

        with self._threads:
            self._refresh(at_once=True)
            self._require_secret()
            travelling = [self._unwrapped(key_id) for key_id in sorted(key_ids) if key_id in self._wrapped]
        return crypto_box_seal(msgspec.msgpack.encode(travelling), crypto_sign_ed25519_pk_to_curve25519(node.raw))

    def add_node_key(self, key: PrivateKey) -> None:
        """Take the key with which the node continues: boxes are sealed for it from now on."""
        with self._threads:
            if all(one.public.origin != key.public.origin for one in self._node_keys):
                self._node_keys = (key, *self._node_keys)

    def take_in(self, box: bytes, is_right: Callable[[Travelling], bool] = lambda one: True) -> list[str]:
        """Add the keys of a box that was sealed for this node; return the ids of those that are new.

        A key that was destroyed here stays destroyed, and one that is not right is not taken.
        """
        data = next((data for key in self._node_keys if (data := _opened_box(box, key)) is not None), None)
        if data is None:
            raise NoKey(
                "a box of keys cannot be opened",
                why="it was sealed for another node, or it was changed on its way",
                hint="ask the sender to seal it for the key of this node: everlog keys show",
            )
        came = msgspec.msgpack.decode(data, type=list[Travelling])
        with self._threads, self._changing():
            self._refresh(at_once=True)
            new = [one for one in came if one.id not in self._wrapped and one.id not in self._destroyed]
            new = [one for one in new if len(one.secret) == KEY_BYTES and len(one.id) == KEY_ID_CHARS]
            new = list({one.id: one for one in new if is_right(one)}.values())
            self._require_secret()
            self._add(new, came=True)
            return [one.id for one in new]

    # ---- notes beside the keys

    def make_folder(self) -> None:
        """Make the folder and the secret, if they are missing."""
        with self._threads, self._changing():
            pass

    def encrypted(self, data: bytes) -> bytes:
        """Return bytes that only this ring can read."""
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

        self._require_secret()
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + encrypt(data, b"note", nonce, self._secret)

    def decrypted(self, data: bytes) -> bytes:
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
        from nacl.exceptions import CryptoError

        self._require_secret()
        try:
            return decrypt(data[_NONCE_BYTES:], b"note", data[:_NONCE_BYTES], self._secret)
        except (CryptoError, ValueError) as error:
            raise _damaged(self._folder, "a note in it cannot be read") from error

    # ---- inside

    def _key_of(self, subject: str) -> SubjectKey | None:
        found = self._known.get(subject)
        if found is None:
            ids = self._ids.get(self._name(subject))
            if ids:
                found = SubjectKey(ids[0], self._unwrapped(ids[0]).secret)
                _remember(self._known, subject, found)
        return found

    def _name(self, subject: str, *, came: bool = False) -> str:
        use = b"came" if came else b""
        digest = hashlib.blake2b(subject.encode(), key=self._secret, digest_size=_NAME_BYTES, person=use).digest()
        return urlsafe_b64encode(digest).decode().rstrip("=")

    def _unwrapped(self, key_id: str) -> Travelling:
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
        from nacl.exceptions import CryptoError

        try:
            data = b64decode(self._wrapped[key_id])
            plain = decrypt(data[_NONCE_BYTES:], key_id.encode(), data[:_NONCE_BYTES], self._secret)
        except (CryptoError, ValueError) as error:
            raise _damaged(self._folder, f"the key {key_id} cannot be unwrapped") from error
        return Travelling(key_id, plain[KEY_BYTES:].decode(), plain[:KEY_BYTES])

    def _add(self, new: Sequence[Travelling], *, came: bool = False) -> None:
        """Add keys at the end of the file: new ones, or those that came. The lock must be held."""
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt

        lines = []
        for one in new:
            nonce = os.urandom(_NONCE_BYTES)
            sealed = encrypt(one.secret + one.subject.encode(), one.id.encode(), nonce, self._secret)
            line = [one.id, self._name(one.subject, came=came), b64encode(nonce + sealed).decode()]
            self._take(line)
            lines.append(msgspec.json.encode(line) + b"\n")
        if not lines or self._folder is None:
            return
        handle = self._files.open(self._folder / "keys", create=True, mode=FILE_MODE)
        try:
            is_new = self._stamp is None
            self._files.truncate(handle, self._read_to)  # what a killed process left of a line
            self._files.write_all(handle, b"".join(lines), at=self._read_to)
            self._files.fsync(handle)
        except BaseException:
            self._start_again()
            raise
        finally:
            self._files.close(handle)
        if is_new:
            self._files.fsync_dir(self._folder)
        self._read_to += sum(map(len, lines))
        self._stamp = self._files.stamp(self._folder / "keys")

    def _write_all(self) -> None:
        """Replace the file by what is known now, and overwrite the old one. The lock must be held."""
        if self._folder is None:
            return
        path = self._folder / "keys"
        lines = [[key_id] for key_id in sorted(self._destroyed)]
        lines += [[key_id, name, self._wrapped[key_id]] for name, ids in self._ids.items() for key_id in ids]
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        for left in leftover_temps(self._files, self._folder):
            self._files.unlink(left)
        old = self._files.open(path, write=True) if self._files.exists(path) else None
        try:
            replace_file(self._files, path, data, mode=FILE_MODE)
            if old is not None:
                self._files.write_all(old, bytes(self._files.size(old)), at=0)
                self._files.fsync(old)
        except BaseException:
            self._start_again()
            raise
        finally:
            if old is not None:
                self._files.close(old)
        self._read_to, self._stamp = len(data), self._files.stamp(path)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of the folder, which is created if it is missing."""
        if self._folder is None:
            yield
            return
        missing = [one for one in (self._folder, *self._folder.parents) if not self._files.exists(one)]
        for one in reversed(missing):
            self._files.make_dir(one, mode=FOLDER_MODE)
        if missing:
            replace_file(self._files, self._folder / ".gitignore", b"*\n", mode=FILE_MODE)  # keys never go to git
        lock = self._files.lock(self._folder / "lock")
        lock.acquire(timeout=10.0)
        try:
            self._read_secret(create=True)
            yield
        finally:
            lock.release()
            lock.close()

    def _refresh(self, *, at_once: bool = False) -> None:
        """Read what other processes have added or destroyed, at most every `FRESH_S` seconds."""
        if self._folder is None:
            return
        now = time.monotonic()
        if not at_once and now < self._fresh_until:
            return
        path = self._folder / "keys"
        for _ in range(10):
            stamp = self._files.stamp(path)
            if stamp == self._stamp:
                break
            if self._read(path, stamp):
                break
        else:
            raise _damaged(self._folder, "a line of it cannot be read")
        self._fresh_until = now + FRESH_S

    def _read(self, path: Path, stamp: Stamp | None) -> bool:
        """Read what is new in the file; return False if it was replaced meanwhile."""
        if stamp is None or self._stamp is None or stamp.inode != self._stamp.inode or stamp.size < self._read_to:
            self._start_again()
        if stamp is None:
            return True
        handle = self._files.open(path)
        try:
            data = self._files.read(handle, self._files.size(handle) - self._read_to, at=self._read_to)
        finally:
            self._files.close(handle)
        end = data.rfind(b"\n") + 1  # the rest is being written, or a killed process left it
        try:
            for line in data[:end].splitlines():
                self._take(_decode_line(line))
        except (msgspec.DecodeError, ValueError):
            self._start_again()
            return False
        self._read_to, self._stamp = self._read_to + end, stamp
        return True

    def _take(self, line: list[str]) -> None:
        match line:
            case [key_id]:
                self._destroyed.add(key_id)
            case [key_id, name, wrapped]:
                if key_id in self._destroyed:
                    self._seen.add(key_id)
                else:
                    self._wrapped[key_id] = wrapped
                    self._ids.setdefault(name, []).append(key_id)
            case _:
                raise ValueError("it is neither a key nor the id of one")

    def _start_again(self) -> None:
        self._stamp, self._read_to = None, 0
        for held in (self._wrapped, self._ids, self._known, self._open):
            held.clear()
        self._destroyed.clear()
        self._destroyed.update(self._gone)
        self._seen.clear()

    # ---- what wraps the keys

    def _has_secret(self) -> bool:
        if not self._secret:
            self._read_secret(create=False)
        return bool(self._secret)

    def _require_secret(self) -> None:
        if not self._has_secret() and self._folder is not None and self._files.exists(self._folder / "secret"):
            raise NoKey(
                f"the keys of persons in {self._folder} cannot be opened",
                why="they are sealed to a key of this node that is not here",
                hint="everlog keys list; put the key of this node back, or import it: everlog keys import FILE",
            )

    def _read_secret(self, *, create: bool) -> None:
        """Read the secret of the ring, or make one if there is none. A new one needs the lock."""
        if self._folder is None or (self._secret and not create):
            return
        path = self._folder / "secret"
        if not self._files.exists(path):
            if create:
                self._refuse_second_secret()
                self._secret = os.urandom(KEY_BYTES)
                self._write_secret(path)
            return
        held = _secrets_in(self._files, self._folder)
        secret = held.get("")
        for key in self._node_keys:
            if key.public.origin in held:
                secret = _opened_box(held[key.public.origin], key) or b""
        if secret and len(secret) != KEY_BYTES:
            raise _damaged(self._folder, "its secret has another length")
        self._secret = self._secret if secret is None else secret
        if create and self._secret and self._node_keys and self._node_keys[0].public.origin not in held:
            self._write_secret(path)  # the log was signed since, or its key was rotated

    def _refuse_second_secret(self) -> None:
        """Raise Damaged if the secret is missing that wraps the keys which are here."""
        assert self._folder is not None, "a ring in memory has its secret"
        path = self._folder / "keys"
        if self._files.exists(path) and any(line.count(b",") for line in self._files.read_all(path).splitlines()):
            raise _damaged(self._folder, "it has keys, and the secret that wraps them is missing")

    def _write_secret(self, path: Path) -> None:
        from nacl.bindings import crypto_box_seal, crypto_sign_ed25519_pk_to_curve25519

        held = {"": b64encode(self._secret).decode()}
        if self._node_keys:
            public = self._node_keys[0].public
            box = crypto_box_seal(self._secret, crypto_sign_ed25519_pk_to_curve25519(public.raw))
            held = {public.origin: b64encode(box).decode()}
        replace_file(self._files, path, msgspec.json.encode(held), mode=FILE_MODE)

    def __reduce__(self) -> str:
        raise TypeError("a key ring is not pickled")


def wrapped_for(folder: Path, files: Files | None = None) -> list[str]:
    """Return the keys of the node that can open the ring in a folder; nothing if there is none, or none is needed."""
    files, path = files or DiskFiles(), folder / "secret"
    if not files.exists(path):
        return []
    return [origin for origin in _secrets_in(files, folder) if origin]


def _secrets_in(files: Files, folder: Path) -> dict[str, bytes]:
    """Return the secret of a ring: in a box for each key of the node, or as it is."""
    try:
        held = msgspec.json.decode(files.read_all(folder / "secret"), type=dict[str, str])
        return {origin: b64decode(text, validate=True) for origin, text in held.items()}
    except (msgspec.MsgspecError, ValueError) as error:
        raise _damaged(folder, "its secret cannot be read") from error


def _damaged(folder: Path | None, why: str) -> Damaged:
    return Damaged(
        f"the key ring in {folder} is damaged",
        why=why,
        hint="put back a copy of the ring; what is sealed with a lost key cannot be read",
    )


def _opened_box(box: bytes, key: PrivateKey) -> bytes | None:
    from nacl import bindings
    from nacl.exceptions import CryptoError

    public = bindings.crypto_sign_ed25519_pk_to_curve25519(key.public.raw)
    secret = bindings.crypto_sign_ed25519_sk_to_curve25519(key.seed + key.public.raw)
    try:
        return bindings.crypto_box_seal_open(box, public, secret)
    except (CryptoError, ValueError, TypeError):
        return None


def _new_id() -> str:
    return urlsafe_b64encode(os.urandom(_ID_BYTES)).decode().rstrip("=")


def _remember(cache: dict, name: str, value: object) -> None:  # type: ignore[type-arg]
    if len(cache) >= _CACHED_MAX:
        cache.clear()
    cache[name] = value
