"""Which names a request may be sent to."""

from __future__ import annotations

import pytest

from everlog.errors import UnknownHost
from everlog.server.listen.hosts import is_loopback, known_hosts, name_in, require_known_host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_only_this_machine_reaches_it(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "log.example", "", "127.0.0.1.example"])
def test_other_machines_may_reach_it(host: str) -> None:
    assert not is_loopback(host)


def test_the_name_is_what_stands_before_the_port() -> None:
    assert [name_in(host) for host in ("A.example:80", "[::1]:80", "[::1]", "a.example.", "a")] == [
        *("a.example", "::1", "::1", "a.example", "a")
    ]


@pytest.mark.parametrize("host", ["log.example", "LOG.example:7373", "localhost", "a.localhost", "10.0.0.5:7373"])
def test_a_name_that_was_given_and_the_address_of_the_connection_are_known(host: str) -> None:
    require_known_host(host, known_hosts([" log.example", ""]), "10.0.0.5")


@pytest.mark.parametrize("host", ["", "evil.example", "log.example.evil", "10.0.0.6", "xlocalhost", "0.0.0.0"])
def test_any_other_name_is_refused(host: str) -> None:
    with pytest.raises(UnknownHost):
        require_known_host(host, known_hosts(["log.example"]), "10.0.0.5")


def test_a_name_is_not_known_because_it_is_that_of_the_connection() -> None:
    """A caller without a socket may name anything as the server."""
    with pytest.raises(UnknownHost):
        require_known_host("evil.example", known_hosts([]), "evil.example")
