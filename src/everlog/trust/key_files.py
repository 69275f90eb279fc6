"""Private keys in files: one per key, readable by its owner alone.

    keys/                            mode 0700
      .gitignore                     *
      z6Mkh….key                     mode 0600: JSON, with the key itself or with the key under a passphrase
      z6Mkh….01K9….end               the last number that the key signed in a log

A passphrase becomes a key by argon2id, and that one encrypts the private key (XChaCha20-Poly1305). The public key is
authenticated with it, so a file that was exchanged for another one is noticed.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from everlog.errors import BadFile, Conflict, EverlogError, NoKey, NotFound
from everlog.files import DiskFiles, Files, Handle, replace_file
from everlog.hiding import shown
from everlog.stores.identity import no_key
from everlog.trust.keys import KEY_BYTES, PrivateKey, key_of
from everlog.trust.openssh import read_openssh

Passphrase = Callable[[str], bytes]
"""Returns the passphrase of a key, by its origin: from a prompt or a file."""

_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
_SUFFIX, _END_SUFFIX = ".key", ".end"
_END_DIGITS = 16
_logger = logging.getLogger("everlog")


class _Protection(msgspec.Struct):
    """How a private key is encrypted: the parameters of argon2id, and the nonce."""

    salt: bytes
    ops: int
    mem: int
    nonce: bytes
    kdf: str = "argon2id"


class _KeyFile(msgspec.Struct, omit_defaults=True):
    public: str
    secret: bytes
    protection: _Protection | None = None
    everlog: str = ""
    format: int = 0


class KeyInFolder(msgspec.Struct, frozen=True):
    """A key that a folder has. Nothing of it is secret."""

    origin: str
    protected: bool
    path: Path


class KeyFolder:
    """The keys of a folder. `passphrase` is asked when a protected key is loaded or made."""

    def __init__(
        self,
        path: Path,
        *,
        passphrase: Passphrase | None = None,
        new_passphrase: Passphrase | None = None,
        files: Files | None = None,
    ) -> None:
        """`new_passphrase` is asked for that of a key that is written, so that somebody can type it twice."""
        self.path = path
        self._passphrase = passphrase
        self._new_passphrase = new_passphrase or passphrase
        self._files = files or DiskFiles()
        self._ends: dict[tuple[str, str], Handle] = {}

    # ---- keys

    def list(self) -> list[KeyInFolder]:
        if not self._files.exists(self.path):
            return []
        self._require_mode(self.path, _FOLDER_MODE)
        names = [name for name in self._files.names(self.path) if name.endswith(_SUFFIX)]
        return [self._described(name.removesuffix(_SUFFIX)) for name in names]

    def new(self, *, like: str = "", protect: bool = False) -> PrivateKey:
        """Make a key and keep it: with a passphrase if `protect` is set, or if the key `like` has one."""
        made = PrivateKey.new()
        self.keep(made, protect=protect or (bool(like) and self._has(like) and self._described(like).protected))
        return made

    def keep(self, key: PrivateKey, *, protect: bool = False) -> Path:
        """Write a key into the folder. A key that is there already is left as it is."""
        origin = key.public.origin
        target = self._key_path(origin)
        if self._has(origin):
            return target
        self._make_folder()
        replace_file(self._files, target, self._encoded(key, protect), mode=_FILE_MODE)
        return target

    def load(self, origin: str) -> PrivateKey:
        """Return a private key, or raise NoKey."""
        if not self._has(origin):
            raise no_key(origin, why=f"a signed log signs every event, and {self.path} has no key of this origin")
        self._require_mode(self.path, _FOLDER_MODE)
        path = self._key_path(origin)
        return self._key_in(self._read(path), origin, path)

    def export(self, origin: str, target: Path) -> Path:
        """Copy the file of a key, protected as it is. Nothing is overwritten."""
        if not self._has(origin):
            raise no_key(origin, why=f"{self.path} has no key of this origin")
        if not self._described(origin).protected:
            self.load(origin)
        data = self._files.read_all(self._key_path(origin))
        try:
            handle = self._files.open(target, exclusive=True, mode=_FILE_MODE)
        except FileExistsError:
            raise Conflict(
                f"{target} is there already",
                why="a private key never overwrites a file",
                hint="choose another name",
                path=str(target),
            ) from None
        try:
            self._files.write_all(handle, data, at=0)
            self._files.fsync(handle)
        finally:
            self._files.close(handle)
        self._files.fsync_dir(target.absolute().parent)
        return target

    def import_file(self, source: Path, *, protect: bool = False) -> PrivateKey:
        """Keep the key of a file: one that `export` wrote, or an Ed25519 key of OpenSSH."""
        if not self._files.exists(source):
            raise NotFound(f"there is no file {source}", hint="check the path; a key of OpenSSH is ~/.ssh/id_ed25519")
        if source.is_dir():
            raise _bad(source, "it is a directory")
        self._require_mode(source, _FILE_MODE)
        data = self._files.read_all(source)
        if data.startswith(b"{"):
            found = self._read(source)
            key = self._key_in(found, key_of(found.public).origin, source)
            protect = protect or found.protection is not None
        else:
            key = PrivateKey(read_openssh(data, lambda: self._asked(str(source))))
        self.keep(key, protect=protect)
        return key

    # ---- the last number that a key signed, in a log

    def last_signed(self, origin: str, log_id: str) -> int:
        path = self._end_path(origin, log_id)
        if not self._files.exists(path):
            return 0
        text = self._files.read_all(path)[:_END_DIGITS]
        return int(text) if text.isdigit() else 0

    def remember(self, origin: str, log_id: str, number: int) -> None:
        """Keep the number without a flush: after a power cut it may be older. `close` flushes it."""
        try:
            handle = self._ends.get((origin, log_id))
            if handle is None:
                path = self._end_path(origin, log_id)
                handle = self._ends[origin, log_id] = self._files.open(path, create=True, mode=_FILE_MODE)
            before = self._files.read(handle, _END_DIGITS, at=0)
            if not before.isdigit() or int(before) < number:  # another process may have been faster
                self._files.write_all(handle, b"%016d\n" % number, at=0)
        except (OSError, EverlogError) as error:  # the events are on the disk
            _logger.warning("the last number that %s signed could not be kept: %s", origin, error)

    def close(self) -> None:
        while self._ends:
            _, handle = self._ends.popitem()
            try:
                self._files.fsync(handle)
            except (OSError, EverlogError) as error:
                _logger.warning("%s could not be flushed: %s", handle.path, error)
            self._files.close(handle)

    # ---- inside

    def _has(self, origin: str) -> bool:
        return self._files.exists(self._key_path(origin))

    def _key_path(self, origin: str) -> Path:
        return self.path / f"{key_of(origin).origin}{_SUFFIX}"

    def _end_path(self, origin: str, log_id: str) -> Path:
        return self.path / f"{origin}.{log_id}{_END_SUFFIX}"

    def _described(self, origin: str) -> KeyInFolder:
        path = self._key_path(origin)
        return KeyInFolder(origin, self._read(path).protection is not None, path)

    def _make_folder(self) -> None:
        if not self._files.exists(self.path):
            self._files.make_dir(self.path, mode=_FOLDER_MODE)
        self._require_mode(self.path, _FOLDER_MODE)
        if not self._files.exists(self.path / ".gitignore"):
            replace_file(self._files, self.path / ".gitignore", b"*\n", mode=_FILE_MODE)

    def _read(self, path: Path) -> _KeyFile:
        self._require_mode(path, _FILE_MODE)
        try:
            found = msgspec.json.decode(self._files.read_all(path), type=_KeyFile)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _bad(path, "it is damaged, or was written by another program") from None  # an error quotes nothing
        if (found.everlog, found.format) != ("key", 1):
            raise _bad(path, "it was written by another program, or by a newer everlog")
        return found

    def _key_in(self, found: _KeyFile, origin: str, path: Path) -> PrivateKey:
        try:
            key = PrivateKey(self._seed(found, origin))
        except (ValueError, TypeError):
            raise _bad(path, "it has no private key") from None
        if not (found.public == origin == key.public.origin):
            raise _bad(path, "it has another key than it names")
        return key

    def _require_mode(self, path: Path, mode: int) -> None:
        found = stat.S_IMODE(path.stat().st_mode)
        if found & 0o077:
            raise NoKey(
                f"{path} can be read by others: its mode is {found:04o}",
                why="anyone who reads a private key can sign as this log",
                hint=f"chmod {mode:o} {path}; if others had access, also: everlog keys rotate",
                path=str(path),
            )

    def _asked(self, name: str, *, new: bool = False) -> bytes:
        ask = self._new_passphrase if new else self._passphrase
        if ask is None:
            raise NoKey(
                f"the key {name} has a passphrase, and nobody can be asked for it",
                why="it is read from the terminal or from a file",
                hint="set [trust] passphrase_file, or run the command on a terminal",
            )
        return ask(name)

    def _encoded(self, key: PrivateKey, protect: bool) -> bytes:
        origin = key.public.origin
        found = _KeyFile(origin, key.seed, None, "key", 1)
        if protect:
            from nacl import bindings, pwhash

            salt, nonce = os.urandom(pwhash.argon2id.SALTBYTES), os.urandom(24)
            made = _Protection(salt, pwhash.argon2id.OPSLIMIT_MODERATE, pwhash.argon2id.MEMLIMIT_MODERATE, nonce)
            wrapping = _derived(self._asked(origin, new=True), made)
            sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(key.seed, origin.encode(), nonce, wrapping)
            found = _KeyFile(origin, sealed, made, "key", 1)
        return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"

    def _seed(self, found: _KeyFile, origin: str) -> bytes:
        if found.protection is None:
            return found.secret
        from nacl import bindings, exceptions

        wrapping = _derived(self._asked(origin), found.protection)
        try:
            return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
                found.secret, origin.encode(), found.protection.nonce, wrapping
            )
        except exceptions.CryptoError:
            raise NoKey(
                f"the key {origin} was not opened",
                why="the passphrase is wrong, or the file was changed",
                hint="try again with the right passphrase",
            ) from None


_OPS_MAX, _MEM_MAX = 20, 2 * 1024**3


def _derived(passphrase: bytes, protection: _Protection) -> bytes:
    from nacl import pwhash

    if protection.kdf != "argon2id" or protection.ops > _OPS_MAX or protection.mem > _MEM_MAX:
        raise NoKey(
            "the key is protected in a way that this everlog does not accept",
            why=f"it names {shown(protection.kdf, 20)} with {protection.ops} passes and {protection.mem} bytes",
            hint="export the key again with everlog keys export",
        )
    return pwhash.argon2id.kdf(
        KEY_BYTES, passphrase, protection.salt, opslimit=protection.ops, memlimit=protection.mem
    )


def _bad(path: Path, why: str) -> BadFile:
    return BadFile(f"{path} is not a key file", why=why, hint="everlog keys list", path=str(path))
