"""JWTs of an identity provider: what is accepted, and what is not."""

from __future__ import annotations

import hmac
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from everlog.errors import InvalidSettings, NotSignedIn
from everlog.server.callers.oidc import Oidc, OidcSettings

KEYS: dict[str, tuple[str, Any]] = {
    "rsa": ("RS256", rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
    "ed": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
}


class Provider:
    """An identity provider on this machine, which counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        provider = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                found: Any = {"jwks_uri": f"{provider.issuer}/keys"}
                if self.path == "/keys":
                    found = {"keys": [_jwk(kid, *KEYS[kid]) for kid in KEYS]}
                self.send_response(200)
                self.end_headers()
                self.wfile.write(msgspec.json.encode(found))

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _jwk(kid: str, algorithm: str, key: Any) -> dict[str, Any]:
    made: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "use": "sig", "alg": algorithm}


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.close()


@pytest.fixture
def oidc(provider: Provider) -> Oidc:
    return Oidc(OidcSettings(issuer=provider.issuer, audience="everlog"))


def token(provider: Provider, kid: str = "rsa", **changed: Any) -> str:
    algorithm, key = KEYS[kid]
    claims = {
        "iss": provider.issuer,
        "aud": "everlog",
        "sub": "ada",
        "exp": int(time.time()) + 60,
        "everlog_scope": "acme",
        "everlog_role": "append",
    }
    kept = {name: value for name, value in (claims | changed).items() if value is not None}
    return jwt.encode(kept, key, algorithm=algorithm, headers={"kid": kid})


@pytest.mark.parametrize("kid", KEYS)
def test_a_token_of_the_issuer_names_actor_scope_and_role(provider: Provider, oidc: Oidc, kid: str) -> None:
    caller = oidc.caller(token(provider, kid))
    assert (caller.actor, caller.within, caller.role) == ("user:ada", "acme", "append")


def test_a_star_is_no_limit_and_no_claim_is_no_right(provider: Provider, oidc: Oidc) -> None:
    assert oidc.caller(token(provider, everlog_scope="*")).within == ""
    for changed in ({"everlog_scope": None}, {"everlog_scope": ""}, {"everlog_scope": ["acme"]}):
        with pytest.raises(NotSignedIn):
            oidc.caller(token(provider, **changed))
    with pytest.raises(NotSignedIn):
        oidc.caller(token(provider, everlog_role="root"))


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://id.evil"},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"nbf": int(time.time()) + 3600},
        {"sub": "a b\n"},
    ],
)
def test_a_token_for_somebody_else_or_of_another_time_is_not_valid(
    provider: Provider, oidc: Oidc, changed: dict[str, Any]
) -> None:
    with pytest.raises(NotSignedIn):
        oidc.caller(token(provider, **changed))


def test_a_token_that_the_issuer_did_not_sign_is_not_valid(provider: Provider, oidc: Oidc) -> None:
    good = token(provider)
    header, claims, _ = good.split(".")
    # The public key as a secret of HMAC: an old way to forge. PyJWT refuses to make such a token, so it is made here.
    public = KEYS["rsa"][1].public_key()
    secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    mac_header = urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa"}').rstrip(b"=").decode()
    mac = urlsafe_b64encode(hmac.digest(secret, f"{mac_header}.{claims}".encode(), "sha256")).rstrip(b"=").decode()
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    body = jwt.decode(good, options={"verify_signature": False})
    forged = [
        f"{header}.{claims}.",
        f"{header}.{claims}.AAAA",
        jwt.encode(body, key=None, algorithm="none", headers={"kid": "rsa"}),  # type: ignore[arg-type]
        f"{mac_header}.{claims}.{mac}",
        jwt.encode(body, other, algorithm="RS256", headers={"kid": "rsa"}),
        jwt.encode(body, KEYS["ed"][1], algorithm="EdDSA", headers={"kid": "rsa"}),
        "not.a.token",
        "eyJ",
    ]
    for wrong in forged:
        with pytest.raises(NotSignedIn):
            oidc.caller(wrong)


def test_unknown_keys_do_not_make_the_server_ask_again_and_again(provider: Provider, oidc: Oidc) -> None:
    oidc.caller(token(provider))
    asked = len(provider.asked)
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for n in range(20):
        with pytest.raises(NotSignedIn):
            oidc.caller(jwt.encode({"sub": "x"}, stranger, algorithm="RS256", headers={"kid": f"k{n}"}))
    assert len(provider.asked) == asked


def test_known_keys_stay_valid_while_the_issuer_is_away(provider: Provider, oidc: Oidc) -> None:
    good = token(provider)
    oidc.caller(good)
    provider.close()
    oidc._fetched_at = float("-inf")
    assert oidc.caller(good).actor == "user:ada"


def test_an_issuer_needs_https_and_an_audience() -> None:
    for issuer, audience in (("http://id.example", "everlog"), ("https://id.example", "")):
        with pytest.raises(InvalidSettings):
            Oidc(OidcSettings(issuer=issuer, audience=audience))
