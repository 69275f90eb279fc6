"""The URL of a server, and the token that is sent to it.

A token is a secret: it is sent in a header, over TLS or to this machine only, and is never part of a URL or an error.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from everlog.errors import InvalidSettings
from everlog.files import DiskFiles
from everlog.settings import user_file

URL_VARIABLE, TOKEN_VARIABLE, ALLOW_HTTP_VARIABLE = "EVERLOG_URL", "EVERLOG_TOKEN", "EVERLOG_ALLOW_HTTP"
TOKENS_FILE = "tokens"
SCHEMES = ("https", "http")


def is_server(url: str) -> bool:
    """Return whether a URL is that of a server, and not that of a store."""
    return url.lower().startswith(("https://", "http://"))


class Address(msgspec.Struct, frozen=True):
    """Where a server is: scheme and host, and the path below which its routes are."""

    origin: str  # such as https://log.example.com:8443
    prefix: str = ""  # a path, if a proxy or several logs put the routes below one
    in_log: str = ""  # /logs/NAME, for one of several logs

    @property
    def url(self) -> str:
        named = f"/v1{self.in_log}" if self.in_log else ""
        return f"{self.origin}{self.prefix}{named}"

    @property
    def is_tls(self) -> bool:
        return self.origin.startswith("https://")

    def of(self, path: str) -> str:
        """Return the URL of a route, whose path begins with /v1."""
        return f"{self.origin}{self.prefix}/v1{self.in_log}{path.removeprefix('/v1')}"


def address_of(url: str, *, allow_http: bool = False) -> Address:
    """Return the address that a URL names. Plain HTTP to another machine is refused unless it is allowed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        # What is wrong may be a password with a strange sign: the text itself is not repeated.
        raise _not_usable("it cannot be read as a URL") from error
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES or not host:
        raise _not_usable("it is not https://HOST or https://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise _not_usable("it has a name or a password, and URLs are written to logs")
    if parts.query or parts.fragment:
        raise _not_usable("it has a part after ? or #, and URLs are written to logs")
    if scheme == "http" and not allow_http and not is_loopback(host):
        raise InvalidSettings(
            f"http://{host} is not encrypted",
            why="everybody on the way could read the token and the events",
            hint="use https://; if the network is yours alone: connect(…, allow_http=True), or EVERLOG_ALLOW_HTTP=1",
        )
    shown = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/")
    before, version, rest = path.partition("/v1")
    if version and rest and not (rest.startswith("/logs/") and rest.count("/") == 2):
        raise _not_usable(f"there is no log at {path}", hint="https://HOST, or https://HOST/v1/logs/NAME")
    return Address(f"{scheme}://{shown}" + (f":{port}" if port is not None else ""), before, rest)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _not_usable(why: str, hint: str = "https://HOST:PORT; the token is given separately") -> InvalidSettings:
    return InvalidSettings("the URL of the server is not usable", why=why, hint=hint)


# ---- the token


def find_token(address: Address, given: str = "", *, environment: Mapping[str, str] = os.environ) -> str:
    """Return the token for a server: the given one, that of the environment, or that of the user's file."""
    token = given or environment.get(TOKEN_VARIABLE, "") or _from_file(address, tokens_file(environment))
    if not token:
        raise InvalidSettings(
            f"there is no token for {address.url}",
            why=f"none was given, {TOKEN_VARIABLE} is not set, and {tokens_file(environment)} has no line for it",
            hint=f"{TOKEN_VARIABLE}=…, with what everlog tokens new NAME printed on the machine of the server",
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidSettings(
            "the token is not usable", why="it has signs that no token has", hint="copy it again, without line ends"
        )
    return token


def tokens_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's file of tokens: a line `URL TOKEN` for each server."""
    return user_file(environment).with_name(TOKENS_FILE)


def _from_file(address: Address, path: Path) -> str:
    """Return the token for a server. A token is never sent to another server than the one that its line names."""
    files = DiskFiles()
    if not files.exists(path):
        return ""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InvalidSettings(
            f"{path} is readable for others",
            why=f"its mode is {mode:o}, and it holds tokens",
            hint=f"chmod 600 {path}; if others had access, also: everlog tokens rotate NAME",
        )
    for number, line in enumerate(files.read_all(path).decode(errors="replace").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidSettings(
                f"line {number} of {path} is not usable", why="a line is URL TOKEN", hint=f"correct {path}"
            )
        if words[0].rstrip("/") in (address.url, address.origin):
            return words[1]
    return ""
