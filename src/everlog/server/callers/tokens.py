"""Tokens: 256 random bits that name a caller, of which a log keeps only the hash.

    evl_5fd2…     what the caller sends as `Authorization: Bearer …`, shown once when the token is made
    token/NAME    a note of the log: hash, actor, scope, role, expiry

The notes are part of the log's small state, so that every server of one log knows the same tokens. What was read is
used for at most 2 seconds: a token that is revoked in another process ends within that time.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from everlog.core.fields import require_shape
from everlog.errors import Conflict, InvalidField, NotFound
from everlog.log.log import Log
from everlog.server.routes.route import ROLES, Caller, Role
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES

PREFIX = "token/"
SECRET_PREFIX = "evl_"
READ_AGAIN_S = 2.0
_NAME_CHARS_MAX = 80
_FOUND_MAX = 1_000


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What a log keeps of a token."""

    name: str
    hash: str
    actor: str
    role: Role
    within: str = ""
    created_at: datetime
    expires_at: datetime | None = None

    def caller(self) -> Caller:
        return Caller(name=self.name, actor=self.actor, within=self.within, role=self.role)

    def is_valid(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


class Tokens:
    """The tokens of one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._by_hash: dict[str, Token] = {}
        self._of_this_process: dict[str, Token] = {}
        self._found: dict[str, tuple[float, Token, Caller]] = {}  # by secret; when the tokens had been read

    def for_this_process(self, *, actor: str, secret: str = "") -> str:
        """Return the secret of a token with all rights that is kept in memory only, and ends with this process."""
        secret = secret or SECRET_PREFIX + secrets.token_urlsafe(32)
        token = Token(name="serve", hash=hash_of(secret), actor=actor, role="admin", created_at=datetime.now(UTC))
        self._of_this_process[token.hash] = token
        return secret

    def new(
        self, name: str, *, actor: str, role: Role = "append", within: str = "", expires_at: datetime | None = None
    ) -> str:
        """Make a token, and return its secret, which is kept nowhere."""
        _require_name(name)
        if role not in ROLES[1:]:
            raise InvalidField(f"there is no role {role!r}", why="the roles are read, append, admin", field="role")
        require_shape("actor", actor)
        if within:
            require_shape("scope", within)
        secret = SECRET_PREFIX + secrets.token_urlsafe(32)
        token = Token(
            name=name,
            hash=hash_of(secret),
            actor=actor,
            role=role,
            within=within,
            created_at=datetime.now(UTC),
            expires_at=expires_at,
        )
        key = PREFIX + name

        def put(write: OpenWrite) -> None:
            if write.rows(NOTES, (key,)):
                raise Conflict(
                    f"there is a token {name!r} already",
                    hint=f"choose another name, or everlog tokens rotate {name}",
                    name=name,
                )
            write.put(NOTES, {key: msgspec.json.encode(token)})

        self._log.writer.write(put)
        self._forget_read()
        return secret

    def rotate(self, name: str) -> str:
        """Give a token a new secret; the old one is not valid any more."""
        secret = SECRET_PREFIX + secrets.token_urlsafe(32)

        def change(old: Token) -> Token:
            return msgspec.structs.replace(old, hash=hash_of(secret), created_at=datetime.now(UTC))

        self._change(name, change)
        return secret

    def revoke(self, name: str) -> Token:
        """End a token. Its open streams end within seconds."""
        return self._change(name, lambda old: None)

    def _change(self, name: str, change: Callable[[Token], Token | None]) -> Token:
        """Replace a token, or remove it, inside a write: another process may have revoked it. Return what it was."""
        key = PREFIX + name

        def put(write: OpenWrite) -> Token:
            found = write.rows(NOTES, (key,))
            if not found:
                raise NotFound(f"there is no token {name[:_NAME_CHARS_MAX]!r}", hint="everlog tokens list", name=name)
            old = msgspec.json.decode(found[key], type=Token)
            new = change(old)
            write.put(NOTES, {key: None if new is None else msgspec.json.encode(new)})
            return old

        old = self._log.writer.write(put)
        self._forget_read()
        return old

    def every(self) -> list[Token]:
        """Return all tokens, by name."""
        return sorted(self._stored(), key=lambda token: token.name)

    @property
    def is_fresh(self) -> bool:
        """Whether `find` answers without reading the log."""
        return time.monotonic() - self._read_at <= READ_AGAIN_S

    def found_lately(self, secret: str) -> Caller | None:
        """Return the caller that a secret names, if the tokens were not read again since it was looked for."""
        found = self._found.get(secret)
        if found is None or found[0] != self._read_at or not self.is_fresh:
            return None
        _, token, caller = found
        return caller if token.expires_at is None or token.is_valid(datetime.now(UTC)) else None

    def find(self, secret: str) -> Token | None:
        """Return the valid token of a secret, None if there is none."""
        read_at = self._read_at
        token = self.of_hash(hash_of(secret))
        if token is not None:
            if len(self._found) >= _FOUND_MAX:
                self._found.clear()
            self._found[secret] = (read_at, token, token.caller())
        return token

    def of_hash(self, found: str) -> Token | None:
        """Return the valid token with this hash, None if there is none."""
        if not self.is_fresh:
            with self._lock:
                if not self.is_fresh:
                    now = time.monotonic()
                    self._by_hash = {token.hash: token for token in self._stored()}
                    self._read_at = now
        token = self._by_hash.get(found) or self._of_this_process.get(found)
        return token if token is not None and token.is_valid(datetime.now(UTC)) else None

    def _stored(self) -> Iterator[Token]:
        for _, value in self._log.writer.small_state.scan(NOTES, prefix=PREFIX):
            yield msgspec.json.decode(value, type=Token)

    def _forget_read(self) -> None:
        self._read_at = float("-inf")


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _require_name(name: str) -> None:
    if not name or len(name) > _NAME_CHARS_MAX or not name.isprintable() or "/" in name:
        raise InvalidField(
            f"{name[:_NAME_CHARS_MAX]!r} cannot be the name of a token",
            why=f"a name is 1 to {_NAME_CHARS_MAX} printable characters without a slash",
            hint="name it after who uses it, such as ci",
            field="name",
        )
