"""Two nodes of one log, one of them behind a server: they sync through it as through `everlog sync --listen`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.calling import Calls
from tests.server.listening import listening
from tests.support.nodes import close, signed_nodes, write

from everlog.application.sync.peers import add_peer
from everlog.errors import NotAuthorized
from everlog.server.serve import make_app
from everlog.sync.carriers.http_client import HttpPeer
from everlog.sync.heads import proven_equal


def test_nodes_sync_through_a_server_and_strangers_get_no_answer(tmp_path: Path) -> None:
    one, other, stranger = nodes = signed_nodes("sqlite", tmp_path, 3)
    app = make_app({"log": other.log})
    add_peer(other.log, one.log.identity.origin)
    with listening(app) as url:
        for number in range(20):
            write(one, number)
            write(other, -number)
        peer = HttpPeer(url, key=one.log.signing_key())
        done = one.sync_with(peer)
        peer.close()
        assert (done.sent_count, done.received_count, done.equal) == (20, 20, True)
        unknown = HttpPeer(url, key=stranger.log.signing_key())
        with pytest.raises(NotAuthorized):
            stranger.sync_with(unknown)
        unknown.close()
    assert proven_equal(one.heads(), other.heads())
    assert Calls(app, "").get("/sync/v1/heads").status_code == 401, "a token is neither needed nor enough"
    app.close()
    close(nodes)


def test_a_message_that_is_too_large_or_no_message_is_refused(tmp_path: Path) -> None:
    nodes = signed_nodes("memory", tmp_path, 1)
    app = make_app({"log": nodes[0].log})
    stranger = Calls(app, "")
    for path in ("/sync/v1/events", "/sync/v1/wants"):
        assert stranger.send("POST", path, content=b"x" * (9 * 1024 * 1024)).status_code in (413, 415)
        answer = stranger.send("POST", path, content=b"[" * 5000, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 401)
    app.close()
    close(nodes)
