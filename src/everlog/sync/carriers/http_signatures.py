"""Signed requests: HTTP Message Signatures (RFC 9421) with Ed25519.

    content-digest: sha-256=:…:       of the body (RFC 9530)
    everlog-to: z6Mk…                 the key of the node that is asked
    signature-input: everlog=("@method" "@path" "content-digest" "everlog-to");created=…;nonce="…";keyid="z6Mk…";…
    signature: everlog=:…:

A request is bound to the node that it is meant for, so that this node cannot pass it on to another one. It is valid
for five minutes and once.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256

from everlog.errors import EverlogError, NotAuthorized
from everlog.trust.keys import PrivateKey, is_key, key_of

VALID_S = 300
_NONCES_MAX = 100_000
_COMPONENTS = '("@method" "@path" "content-digest" "everlog-to")'
_INPUT = re.compile(
    r'everlog=(?P<params>\("@method" "@path" "content-digest" "everlog-to"\)'
    r';created=(?P<created>[0-9]{1,12});nonce="(?P<nonce>[A-Za-z0-9_-]{16,64})"'
    r';keyid="(?P<key>[1-9A-HJ-NP-Za-km-z]{48})";alg="ed25519")'
)
_SIGNATURE = re.compile(r"everlog=:(?P<signature>[A-Za-z0-9+/]{86}==):")


def sign_request(key: PrivateKey, to: str, method: str, path: str, body: bytes) -> dict[str, str]:
    """Return the headers that sign a request to the node with the key `to`."""
    digest = content_digest(body)
    created, nonce = int(time.time()), secrets.token_urlsafe(18)
    params = f'{_COMPONENTS};created={created};nonce="{nonce}";keyid="{key.public.origin}";alg="ed25519"'
    signature = key.sign(signature_base(method, path, digest, to, params))
    return {
        "content-digest": digest,
        "everlog-to": to,
        "signature-input": f"everlog={params}",
        "signature": f"everlog=:{b64encode(signature).decode()}:",
    }


def content_digest(body: bytes) -> str:
    return f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"


def signature_base(method: str, path: str, digest: str, to: str, params: str) -> bytes:
    """Return the exact bytes that the signature of a request covers (RFC 9421, section 2.5)."""
    return (
        f'"@method": {method}\n"@path": {path}\n"content-digest": {digest}\n"everlog-to": {to}\n'
        f'"@signature-params": {params}'
    ).encode()


class Doorkeeper:
    """Decides who is answered: requests that a known key has signed for this node, each once."""

    def __init__(
        self,
        own: Callable[[], str],
        knows: Callable[[str], bool],
        *,
        open_to_all: bool = False,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`own` is the origin of this node. `open_to_all`: requests that nobody signed are answered, too."""
        self._own = own
        self._knows = knows
        self._open = open_to_all
        self._now_s = now_s
        self._lock = threading.Lock()
        self._nonces: dict[str, float] = {}

    def asker(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """Return the key that asks, or nothing for a request that is not signed; refuse all others."""
        if "signature" not in headers and "signature-input" not in headers:
            if self._open:
                return ""
            raise self._refused("a request is not signed")
        key, nonce, now = self._signer(method, path, headers, body)
        if not self._open and not self._knows(key):
            raise NotAuthorized(
                f"the key {key} is not known here",
                why="only peers, and origins that have written to this log, get an answer",
                hint=f"on that node, type: everlog peers add {key}",
            )
        self._once(f"{key} {nonce}", now)  # after the rest: strangers must not fill the room for nonces
        return key

    def _signer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[str, str, float]:
        """Return the key that signed a request, its nonce, and the time at which that was checked."""
        found = _INPUT.fullmatch(headers.get("signature-input", ""))
        signature = _SIGNATURE.fullmatch(headers.get("signature", ""))
        if found is None or signature is None:
            raise self._refused("a request has a signature that cannot be read")
        to, digest, key = headers.get("everlog-to", ""), headers.get("content-digest", ""), found["key"]
        if to != self._own():
            raise self._refused("a request is meant for another node")
        if digest != content_digest(body):
            raise self._refused("the body of a request is not the one that was signed")
        now, created = self._now_s(), int(found["created"])
        if abs(now - created) > VALID_S:
            when = f"{int(now) - created} seconds ago" if created < now else f"{created - int(now)} seconds from now"
            raise self._refused(f"a request was signed {when}", hint="compare the clocks of both machines")
        message = signature_base(method, path, digest, to, found["params"])
        try:
            valid = is_key(key) and key_of(key).has_signed(message, b64decode(signature["signature"]))
        except EverlogError:  # it looks like a key, and is none
            valid = False
        if not valid:
            raise self._refused("the signature of a request is wrong")
        return key, found["nonce"], now

    def _once(self, nonce: str, now: float) -> None:
        with self._lock:
            if self._nonces.get(nonce, 0) > now:
                raise self._refused("a request came a second time")
            if len(self._nonces) >= _NONCES_MAX:
                self._nonces = {known: until for known, until in self._nonces.items() if until > now}
            if len(self._nonces) >= _NONCES_MAX:
                raise self._refused("too many requests came in five minutes")
            self._nonces[nonce] = now + 2 * VALID_S

    def _refused(self, what: str, hint: str = "") -> NotAuthorized:
        own = self._own()
        return NotAuthorized(
            what,
            why="requests are signed for the node that they are sent to",
            hint=hint or "everlog peers list",
            node=own if is_key(own) else "",
        )
