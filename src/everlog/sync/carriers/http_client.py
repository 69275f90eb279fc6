"""A peer that is asked over HTTP. Nothing that it answers is larger, or takes longer, than the protocol allows.

Requests are signed for the key of the peer. A peer whose key is not known names it when it refuses the first request.
"""

from __future__ import annotations

import random
import time

import httpx2 as httpx

from everlog.errors import NotAuthorized, PeerUnavailable, RejectedMessage
from everlog.sync.carriers.http_messages import PREFIX, content_type, error_of, method_of
from everlog.sync.carriers.http_pace import WINDOW_S, PacedTransport
from everlog.sync.carriers.http_signatures import sign_request
from everlog.sync.wire import MESSAGE_BYTES_MAX
from everlog.trust.keys import PrivateKey, is_key

ATTEMPTS = 4
_PAUSE_S, _PAUSE_S_MAX = 0.1, 5.0


class HttpPeer:
    """Asks a peer at a URL. A request that fails is tried again, after a pause that grows and varies."""

    def __init__(
        self,
        url: str,
        *,
        key: PrivateKey | None = None,
        node: str = "",
        attempts: int = ATTEMPTS,
        timeout_s: float = WINDOW_S,
    ) -> None:
        """`key` signs the requests, and `node` is the key of the peer, if it is known."""
        self.url = url.rstrip("/").removesuffix(PREFIX.rstrip("/"))
        self.node = node
        self._key = key
        self._attempts = attempts
        self._paced = PacedTransport(timeout_s)
        self._client = httpx.Client(
            transport=self._paced,
            timeout=timeout_s,
            follow_redirects=False,
            headers={"accept-encoding": "identity"},
            trust_env=False,
        )

    def __call__(self, request: str, body: bytes) -> bytes:
        for attempt in range(1, self._attempts):
            try:
                return self._signed(request, body)
            except PeerUnavailable:
                time.sleep(min(_PAUSE_S_MAX, _PAUSE_S * 2.0**attempt) * (0.5 + random.random()))
        return self._signed(request, body)

    def _signed(self, request: str, body: bytes) -> bytes:
        """Ask; a peer whose key is not known names it when it refuses a request that is not signed."""
        try:
            return self._ask(request, body)
        except NotAuthorized as error:
            named = str(error.details.get("node", ""))
            if self._key is None or self.node or not is_key(named):
                raise
            self.node = named
            return self._ask(request, body)

    def _ask(self, request: str, body: bytes) -> bytes:
        method, path = method_of(request), PREFIX + request
        headers = {"content-type": content_type(request)} if body else {}
        if self._key is not None and self.node:
            headers.update(sign_request(self._key, self.node, method, path, body))
        self._paced.begin()
        try:
            with self._client.stream(method, self.url + path, content=body or None, headers=headers) as response:
                found = self._body(response)
                if response.status_code != 200:
                    raise error_of(response.status_code, found, self.url)
                return found
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise RejectedMessage(
                f"{self.url} is not the address of a peer", why=str(error), hint="everlog sync http://HOST:PORT"
            ) from error
        except httpx.HTTPError as error:
            is_slow = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout)
            raise PeerUnavailable(
                f"{self.url} answers too slowly" if is_slow else f"{self.url} does not answer",
                why=str(error) or type(error).__name__,
                hint=f"check the address, and that this runs there: everlog sync --listen {self._host}",
            ) from error

    @property
    def _host(self) -> str:
        return self.url.partition("://")[2] or self.url

    def _body(self, response: httpx.Response) -> bytes:
        """Return the body; end it when it is too large."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise RejectedMessage(
                f"{self.url} compressed its answer", why="this node did not ask for it", hint="everlog peers list"
            )
        found = bytearray()
        for piece in response.iter_raw():
            found += piece
            if len(found) > MESSAGE_BYTES_MAX:
                raise RejectedMessage(
                    f"{self.url} sent an answer that is too large",
                    why=f"{MESSAGE_BYTES_MAX:,} bytes are allowed",
                    hint="everlog peers list",
                )
        return bytes(found)

    def close(self) -> None:
        self._client.close()
