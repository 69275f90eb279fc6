"""Secrets of every kind that the scan knows, made from a seed: none of them was ever anybody's."""

from __future__ import annotations

import base64
import functools
import random
import string

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
HEX = "0123456789abcdef"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def draw(rng: random.Random, alphabet: str, length: int) -> str:
    # Neither end is a sign that a pattern could take for the end of the token.
    return "".join(rng.choices(alphabet, k=length - 1)) + rng.choice([c for c in alphabet if c.isalnum()])


@functools.cache
def planted(seed: int) -> dict[str, str]:
    """One secret of every kind, as text that would stand somewhere in a payload."""
    rng = random.Random(seed)

    def some(alphabet: str, length: int) -> str:
        return draw(rng, alphabet, length)

    upper = string.ascii_uppercase + string.digits
    pem = "\n".join(some(ALNUM + "+/", 64) for _ in range(4))

    def armour(name: str) -> str:
        return f"-----BEGIN {name}-----\n{pem}\n-----END {name}-----\n"

    jwt = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1234567890","iat":1516239022}', rng.randbytes(32))
    )
    return {
        "aws id": "AK" + "IA" + some(upper, 16),
        "aws temporary id": "AS" + "IA" + some(upper, 16),
        "aws secret in text": "aws_secret_" + "access_key = " + some(ALNUM + "/+", 40),
        **{f"github {letter}": f"gh{letter}" + "_" + some(ALNUM, 36) for letter in "pousr"},
        "github fine": "github_" + "pat_" + some(ALNUM, 22) + "_" + some(ALNUM, 59),
        "gitlab": "gl" + "pat-" + some(URLSAFE, 20),
        "slack bot": "xo" + f"xb-{rng.randrange(10**11, 10**12)}-{rng.randrange(10**12, 10**13)}-" + some(ALNUM, 24),
        "slack user": "xo" + "xp-" + some(string.digits, 12) + "-" + some(HEX, 32),
        "slack webhook": "https://hooks.slack"
        + f".com/services/T{some(upper, 8)}/B{some(upper, 10)}/{some(ALNUM, 24)}",
        "stripe": "sk_" + "live_" + some(ALNUM, 24),
        "stripe restricted": "rk_" + "live_" + some(ALNUM, 99),
        "openai": "sk" + "-" + some(ALNUM, 48),
        "openai project": "sk" + "-proj-" + some(URLSAFE, 156),
        "anthropic": "sk" + "-ant-api03-" + some(URLSAFE, 95),
        "google": "AI" + "za" + some(URLSAFE, 35),
        "google oauth": "ya" + "29." + some(URLSAFE, 120),
        **{
            f"pem {name or 'PKCS8'}": armour(f"{name} ".lstrip() + "PRIVATE " + "KEY")
            for name in ("", "RSA", "EC", "DSA", "OPENSSH", "ENCRYPTED")
        },
        "pgp": armour("PGP PRIVATE " + "KEY BLOCK"),
        "jwt": jwt,
        "npm": "np" + "m_" + some(ALNUM, 36),
        "pypi": "py" + "pi-" + "AgEIcHlwaS5vcmc" + some(URLSAFE, 140),
        "sendgrid": "S" + "G." + some(URLSAFE, 22) + "." + some(URLSAFE, 43),
        "twilio": "S" + "K" + some(HEX, 32),
        "digitalocean": "do" + "p_v1_" + some(HEX, 64),
        "hugging face": "h" + "f_" + some(string.ascii_letters, 34),
        "databricks": "da" + "pi" + some(HEX, 32),
        "azure": "DefaultEndpointsProtocol=https;AccountName=x;Account" + "Key=" + some(ALNUM + "+/", 86) + "==",
        "postgres address": "postgresql" + "://app:" + some(ALNUM, 12) + "@db.internal:5432/app",
        "redis address": "redis" + "://:" + some(ALNUM, 10) + "@cache:6379/0",
        "https address": "https" + "://deploy:" + some(ALNUM, 20) + "@git.example.com/repo.git",
        "bearer": "Bea" + "rer " + some(URLSAFE, 40),
        "basic": "Ba" + "sic " + base64.b64encode(f"ada:{some(ALNUM, 9)}".encode()).decode(),
        "age": "AGE-SECRET-" + "KEY-1" + some("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
        "vault": "hv" + "s." + some(URLSAFE, 24),
        "telegram": f"{rng.randrange(10**9, 10**10)}" + ":A" + "A" + some(URLSAFE, 33),
        "shopify": "shp" + "at_" + some(HEX, 32),
        "linear": "lin_" + "api_" + some(ALNUM, 40),
        "doppler": "dp." + "pt." + some(ALNUM, 43),
    }


KINDS = sorted(planted(0))
