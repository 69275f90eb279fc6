"""Who is answered: requests that a known key signed for this node, each once."""

from __future__ import annotations

import pytest

from everlog.errors import NotAuthorized
from everlog.sync.carriers import http_signatures
from everlog.sync.carriers.http_signatures import VALID_S, Doorkeeper, content_digest, sign_request, signature_base
from everlog.testing.signing import key

ME, PEER, STRANGER = key(1), key(2), key(3)
BODY = b'{"community_id":"x"}'


def door(**given: object) -> Doorkeeper:
    return Doorkeeper(lambda: ME.public.origin, lambda asked: asked == PEER.public.origin, **given)  # type: ignore[arg-type]


def signed(by: object = PEER, to: str = ME.public.origin) -> dict[str, str]:
    return sign_request(by, to, "POST", "/sync/v1/events", BODY)  # type: ignore[arg-type]


def test_a_request_of_a_peer_is_answered_once() -> None:
    guard, headers = door(), signed()
    assert guard.asker("POST", "/sync/v1/events", headers, BODY) == PEER.public.origin
    with pytest.raises(NotAuthorized, match="second time"):
        guard.asker("POST", "/sync/v1/events", headers, BODY)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"method": "GET"}, "signature"),
        ({"path": "/sync/v1/wants"}, "signature"),
        ({"body": b"{}"}, "body"),
        ({"everlog-to": PEER.public.origin}, "another node"),
        ({"signature": ""}, "cannot be read"),
        ({"signature-input": "everlog=()"}, "cannot be read"),
        ({"content-digest": content_digest(b"{}"), "body": b"{}"}, "signature"),
    ],
)
def test_a_request_that_was_changed_is_refused(change: dict[str, object], why: str) -> None:
    headers = {
        **signed(),
        **{name: str(value) for name, value in change.items() if "-" in name or name == "signature"},
    }
    method, path = str(change.get("method", "POST")), str(change.get("path", "/sync/v1/events"))
    body = change.get("body", BODY)
    assert isinstance(body, bytes)
    with pytest.raises(NotAuthorized, match=why):
        door().asker(method, path, headers, body)


def test_a_request_for_another_node_cannot_be_passed_on() -> None:
    with pytest.raises(NotAuthorized, match="another node"):
        door().asker("POST", "/sync/v1/events", signed(to=STRANGER.public.origin), BODY)


def test_a_stranger_and_an_unsigned_request_are_refused_unless_the_node_is_open() -> None:
    headers = signed(STRANGER)
    with pytest.raises(NotAuthorized, match="not known"):
        door().asker("POST", "/sync/v1/events", headers, BODY)
    with pytest.raises(NotAuthorized, match="not signed") as error:
        door().asker("POST", "/sync/v1/events", {}, BODY)
    assert error.value.details["node"] == ME.public.origin  # so that the peer can sign for it
    assert door(open_to_all=True).asker("POST", "/sync/v1/events", {}, BODY) == ""


def test_an_old_request_is_refused() -> None:
    import time

    late = door(now_s=lambda: time.time() + VALID_S + 5)
    with pytest.raises(NotAuthorized, match="seconds ago"):
        late.asker("POST", "/sync/v1/events", signed(), BODY)


def test_the_signature_covers_the_lines_of_rfc_9421() -> None:
    base = signature_base("GET", "/sync/v1/heads", content_digest(b""), "z6Mk", '("@method");created=1')
    assert base.decode().split("\n") == [
        '"@method": GET',
        '"@path": /sync/v1/heads',
        '"content-digest": sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:',
        '"everlog-to": z6Mk',
        '"@signature-params": ("@method");created=1',
    ]


def test_strangers_do_not_fill_the_room_for_nonces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_signatures, "_NONCES_MAX", 2)
    guard = door()
    for _ in range(3):
        with pytest.raises(NotAuthorized, match="not known"):
            guard.asker("POST", "/sync/v1/events", signed(STRANGER), BODY)
    assert guard.asker("POST", "/sync/v1/events", signed(), BODY) == PEER.public.origin
