"""JWTs of an identity provider (OpenID Connect): who a caller is, and what it may do, by the claims of its token.

The settings name the issuer, the audience, and the claims that hold the scope, the role and the actor. Only
signatures with RS256, ES256 and EdDSA count, with a key that the issuer publishes. The keys are fetched when they are
first needed and kept for five minutes; a token with an unknown key has them fetched again, at most every 30 seconds.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from typing import Any

import msgspec

from everlog.core.fields import require_shape
from everlog.errors import EverlogError, InvalidSettings, NotSignedIn, PeerUnavailable
from everlog.server.routes.route import ROLES, Caller, Role

try:
    import jwt
except ImportError as error:
    raise InvalidSettings(
        "JWTs need the library PyJWT", why=str(error), hint="pip install 'everlog[server]'"
    ) from error

ALGORITHMS = ("RS256", "ES256", "EdDSA")
KEYS_KEPT_S = 300
FETCH_AGAIN_S = 30.0
FETCH_TIMEOUT_S = 5
LEEWAY_S = 30
_ANSWER_BYTES_MAX = 1024 * 1024


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tokens count, and what their claims mean."""

    issuer: str
    audience: str
    actor_claim: str = "sub"
    scope_claim: str = "everlog_scope"
    role_claim: str = "everlog_role"


class Oidc:
    """The tokens of one issuer."""

    def __init__(self, settings: OidcSettings) -> None:
        if not settings.audience:
            raise InvalidSettings(
                "oidc_issuer is set, and oidc_audience is not",
                why="a token for another service of the same issuer would be accepted",
                hint="everlog config set oidc_audience NAME",
            )
        if not settings.issuer.startswith(("https://", "http://127.0.0.1", "http://[::1]", "http://localhost")):
            raise InvalidSettings(
                f"oidc_issuer is {settings.issuer[:80]!r}",
                why="the keys of an issuer are fetched from it, which needs https",
                hint="everlog config set oidc_issuer https://…",
            )
        self._settings = settings
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")

    def caller(self, token: str) -> Caller:
        """Return who a token names. Raise NotSignedIn if it is not valid."""
        settings = self._settings
        try:
            kid = str(jwt.get_unverified_header(token).get("kid", ""))
            claims = jwt.decode(
                token,
                self._key(kid),
                algorithms=list(ALGORITHMS),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", settings.actor_claim]},
            )
        except jwt.InvalidTokenError as error:
            raise NotSignedIn(
                "the token is not valid", why=str(error), hint=f"get a new one from {settings.issuer}"
            ) from error
        return self._caller(claims)

    def _caller(self, claims: dict[str, Any]) -> Caller:
        settings = self._settings
        name = str(claims[settings.actor_claim])
        actor = name if ":" in name else f"user:{name}"
        role: Role = claims.get(settings.role_claim, "read")
        within = claims.get(settings.scope_claim)
        # A token without the claim must not see everything: no limit is written "*".
        if not isinstance(within, str) or not within or role not in ROLES[1:]:
            raise NotSignedIn(
                "the token gives no rights here",
                why=f"it needs a scope (* for all) in {settings.scope_claim}, and a role in {settings.role_claim}",
                hint="ask the operator of the identity provider",
            )
        try:
            require_shape("actor", actor)
            if within != "*":
                require_shape("scope", within)
        except EverlogError as error:
            raise NotSignedIn("the token names nobody", why=error.what, hint="use another actor claim") from error
        return Caller(name=name, actor=actor, within="" if within == "*" else within, role=role)

    # ---- the keys of the issuer

    def _key(self, kid: str) -> jwt.PyJWK:
        with self._lock:
            age = time.monotonic() - self._fetched_at
            if age > KEYS_KEPT_S or (kid not in self._keys and age > FETCH_AGAIN_S):
                self._fetch()
        found = self._keys.get(kid)
        if found is None:
            raise jwt.InvalidTokenError("it is signed with a key that the issuer does not publish")
        return found

    def _fetch(self) -> None:
        known = bool(self._keys)
        self._fetched_at = time.monotonic()
        try:
            issuer = self._settings.issuer.rstrip("/")
            address = _fetched_json(f"{issuer}/.well-known/openid-configuration")["jwks_uri"]
            listed = _fetched_json(str(address)).get("keys", [])
            found = {}
            for one in listed:
                if one.get("alg", ALGORITHMS[0]) in ALGORITHMS and one.get("use", "sig") == "sig":
                    found[str(one.get("kid", ""))] = jwt.PyJWK(one)
            self._keys = found
        except (OSError, KeyError, TypeError, ValueError, msgspec.MsgspecError, jwt.PyJWTError) as error:
            if known:
                return  # those that are known stay valid; it is tried again later
            raise PeerUnavailable(
                "the identity provider cannot be reached", why=str(error)[:200], hint="try again later"
            ) from error


def _fetched_json(url: str) -> Any:
    if not url.startswith(("https://", "http://127.0.0.1", "http://[::1]", "http://localhost")):
        raise ValueError(f"{url[:80]} is not an https address")
    with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:
        return msgspec.json.decode(answer.read(_ANSWER_BYTES_MAX))
