"""Where a server is, and which token is sent to it."""

from __future__ import annotations

from pathlib import Path

import pytest

import everlog
from everlog.errors import EverlogError, InvalidSettings
from everlog.remote.address import Address, address_of, find_token, is_server, tokens_file

SECRET = "evl_5fd2secret"


@pytest.mark.parametrize(
    ("url", "route"),
    [
        ("https://log.example.com", "https://log.example.com/v1/events"),
        ("https://log.example.com:8443/", "https://log.example.com:8443/v1/events"),
        ("https://log.example.com/behind/a/proxy", "https://log.example.com/behind/a/proxy/v1/events"),
        ("https://log.example.com/v1", "https://log.example.com/v1/events"),
        ("https://log.example.com/v1/logs/shop", "https://log.example.com/v1/logs/shop/events"),
        ("http://127.0.0.1:7373", "http://127.0.0.1:7373/v1/events"),
        ("http://[::1]:7373", "http://[::1]:7373/v1/events"),
        ("http://localhost", "http://localhost/v1/events"),
    ],
)
def test_the_routes_of_a_server(url: str, route: str) -> None:
    assert address_of(url).of("/v1/events") == route


@pytest.mark.parametrize(
    "url",
    [
        "log.example.com",
        "ftp://log.example.com",
        "https://",
        f"https://ada:{SECRET}@log.example.com",
        f"https://{SECRET}@log.example.com",
        f"https://log.example.com/?token={SECRET}",
        f"https://log.example.com/#{SECRET}",
        f"https://[{SECRET}",
        "https://log.example.com:port",
        "https://log.example.com/v1/events",
    ],
)
def test_a_url_that_is_not_usable_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        address_of(url)
    error = caught.value
    assert SECRET not in f"{error} {error.hint} {error.details}"


def test_http_without_tls_is_only_for_this_machine() -> None:
    with pytest.raises(InvalidSettings, match="not encrypted"):
        address_of("http://log.example.com")
    assert address_of("http://log.example.com", allow_http=True).url == "http://log.example.com"
    assert not address_of("http://127.8.9.1").is_tls


def test_which_urls_are_those_of_servers() -> None:
    assert is_server("HTTPS://host")
    assert is_server("http://host")
    assert not is_server("sqlite:http.db")
    assert not is_server("postgresql://host/db")


def test_the_token_is_the_given_one_else_that_of_the_environment_else_that_of_the_file(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    address = address_of("https://log.example.com")
    with pytest.raises(InvalidSettings, match="there is no token"):
        find_token(address, environment=environment)
    path = tokens_file(environment)
    path.parent.mkdir(parents=True)
    path.write_text("# of servers\n\nhttps://other.example.com evl_other\nhttps://log.example.com/ evl_file\n")
    path.chmod(0o600)
    assert find_token(address, environment=environment) == "evl_file"
    assert find_token(address, environment={**environment, "EVERLOG_TOKEN": "evl_env"}) == "evl_env"
    assert find_token(address, "evl_given", environment={**environment, "EVERLOG_TOKEN": "evl_env"}) == "evl_given"


def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = tokens_file(environment)
    path.parent.mkdir(parents=True)
    path.write_text(f"https://log.example.com {SECRET}\n")
    path.chmod(0o644)
    with pytest.raises(InvalidSettings) as caught:
        find_token(Address("https://log.example.com"), environment=environment)
    assert "chmod 600" in caught.value.hint
    path.chmod(0o600)
    path.write_text(f"{SECRET}\n")
    with pytest.raises(InvalidSettings) as caught:
        find_token(Address("https://log.example.com"), environment=environment)
    assert SECRET not in f"{caught.value} {caught.value.hint}"


def test_a_token_with_a_line_end_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidSettings) as caught:
        everlog.connect("https://log.example.com", token=f"{SECRET}\r\nx-evil: 1")
    assert SECRET not in f"{caught.value!r} {caught.value.why} {caught.value.hint}"


def test_a_server_that_is_gone_is_named_and_the_token_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with everlog.connect("http://127.0.0.1:9", token=SECRET) as log, pytest.raises(EverlogError) as caught:
        log.head()
    error = caught.value
    assert (error.code, error.retryable) == ("peer_unavailable", True)
    assert "http://127.0.0.1:9 does not answer" in error.what
    assert "everlog serve" in error.hint
    assert SECRET not in f"{error!r} {error} {error.hint} {error.details} {error.__cause__!r} {caplog.text}"
