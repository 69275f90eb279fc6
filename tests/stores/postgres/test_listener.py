"""What hears of the commits of others, in a process that was forked."""

from __future__ import annotations

import pytest

from everlog.stores.postgres import listener
from everlog.stores.postgres.address import address_of
from everlog.stores.postgres.listener import Listener


def test_a_forked_child_stops_listening_and_keeps_the_connection_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the child closed it, the server would end the session of the parent."""
    kept: list[object] = []
    monkeypatch.setattr(listener, "keep_for_ever", kept.append)
    forked = Listener(address_of("postgresql://127.0.0.1:1/db"))
    forked.abandon()
    assert kept == [forked._connection]
    assert forked._stop.is_set()
    assert (forked._wake.fileno(), forked._woken.fileno()) == (-1, -1)
