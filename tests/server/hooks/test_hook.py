"""Webhooks: who is sent what, how it is signed, and which addresses are never asked."""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from standardwebhooks.webhooks import Webhook

import everlog
from everlog.cli.hooks import hooks_command
from everlog.errors import Conflict, Forbidden, InvalidField, NotFound
from everlog.log.log import Log
from everlog.server.hooks import hook as hooks
from everlog.server.hooks.delivery import Deliveries, Delivery, address_of, is_public
from everlog.server.hooks.hook import HookSecrets, add_hook, hook_named, hooks_of, remove_hook, replay


class Receiver:
    """A receiver on this machine. It answers with the statuses that it is given, then with 204."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        receiver = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = receiver.statuses.pop(0) if receiver.statuses else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("location", f"{receiver.url}/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.got]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with everlog.open(f"sqlite:{tmp_path}/log.db", actor="user:ada") as opened:
        yield opened


def note(log: Log, stream: str = "note/1", **given: Any) -> str:
    return str(log.append("note.added", stream=stream, payload={"text": "hello"}, **given).event.id)


def until(condition: Callable[[], bool], timeout_s: float = 15) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_a_hook_gets_what_is_recorded_after_it_was_added_and_what_its_query_matches(
    log: Log, receiver: Receiver, tmp_path: Path
) -> None:
    note(log)
    add_hook(log, receiver.url, name="shop", kind="note", scope="acme", private=True)
    wanted = [note(log, scope="acme"), note(log, scope="acme/shop")]
    note(log, scope="acmecorp")
    sending = Deliveries(log, tmp_path / "keys")
    until(lambda: len(receiver.got) == 2)
    sending.close()
    assert receiver.ids() == wanted
    assert msgspec.json.decode(receiver.got[0][1])["subject"] == "note/1"


def test_a_delivery_is_signed_as_the_standard_has_it(log: Log, receiver: Receiver, tmp_path: Path) -> None:
    hook = add_hook(log, receiver.url, name="shop", private=True)
    note(log)
    secrets = HookSecrets(tmp_path / "keys")
    Delivery(log, hook, secrets)(next(log.read()))
    headers, body = receiver.got[0]
    found: Any = Webhook(secrets.of(hook)).verify(body, headers)
    assert found["type"] == "note.added"
    with pytest.raises(Exception, match="signature"):
        Webhook(secrets.of(hook)).verify(body.replace(b"hello", b"hullo"), headers)
    assert (tmp_path / "keys" / "hooks.secret").stat().st_mode & 0o077 == 0
    assert HookSecrets(tmp_path / "keys").of(hook) == secrets.of(hook), "another process has the same secret"
    assert secrets.of(hook).encode() not in (tmp_path / "log.db").read_bytes()


def test_a_signed_log_signs_its_deliveries_with_its_key(receiver: Receiver, tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/signed.db", actor="user:ada", signed=True) as log:
        hook = add_hook(log, receiver.url, name="shop", private=True)
        note(log)
        Delivery(log, hook, HookSecrets(tmp_path / "keys"))(next(log.read()))
        headers, body = receiver.got[0]
        shared, own = headers["webhook-signature"].split(" ")
        assert shared.startswith("v1,")
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = log.signing_key()
        assert key is not None
        assert key.public.has_signed(signed, b64decode(own.removeprefix("v1a,")))


def test_a_failed_delivery_is_sent_again_and_others_are_not_repeated(
    log: Log, receiver: Receiver, tmp_path: Path
) -> None:
    add_hook(log, receiver.url, name="shop", private=True)
    receiver.statuses = [500, 302]
    sent = [note(log), note(log, stream="note/2")]
    sending = Deliveries(log, tmp_path / "keys")
    until(lambda: len(receiver.got) == 4)
    time.sleep(0.1)
    sending.close()
    assert sorted(receiver.ids()) == sorted([*sent, *sent])


def test_a_killed_delivery_is_repeated_by_another_process_and_nothing_is_skipped(
    log: Log, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "LEASE_S", 1.0)
    hook = add_hook(log, receiver.url, name="shop", private=True)
    sent = [note(log, stream=f"note/{n}") for n in range(5)]
    dead = hook.group(log).member("dead", heartbeat=False)
    assert dead.take() is not None  # it never answers: another one takes over when its lease is over
    with everlog.open(f"sqlite:{tmp_path}/log.db") as elsewhere:
        sending = Deliveries(elsewhere, tmp_path / "keys")
        until(lambda: set(receiver.ids()) >= set(sent))
        sending.close()


def test_what_could_not_be_delivered_is_replayed(log: Log, receiver: Receiver, tmp_path: Path) -> None:
    hook = add_hook(log, receiver.url, name="shop", private=True)
    sent = note(log)
    group = hook.group(log)
    with group.member("test", heartbeat=False) as member:
        for _ in range(20):
            one = member.take()
            if one is not None:
                one.nack("no answer", retry_in_s=0)
            if group.dead_letters():
                break
    assert [letter.reason for letter in group.dead_letters()] == ["no answer"]
    shown = CliRunner().invoke(hooks_command, ["list", "--log", f"sqlite:{tmp_path}/log.db"])
    assert shown.output.rstrip("\n").split("\t")[-1] == "1"  # its dead letters
    assert replay(log, "shop", by="user:ada") == 1
    sending = Deliveries(log, tmp_path / "keys")
    until(lambda: receiver.ids() == [sent])
    sending.close()


def test_a_hook_that_is_removed_gets_nothing_more(log: Log, receiver: Receiver, tmp_path: Path) -> None:
    add_hook(log, receiver.url, name="shop", private=True)
    with pytest.raises(Conflict):
        add_hook(log, receiver.url, name="shop", private=True)
    sending = Deliveries(log, tmp_path / "keys")
    note(log)
    until(lambda: len(receiver.got) == 1)
    remove_hook(log, "shop")
    time.sleep(3)
    note(log)
    time.sleep(0.5)
    sending.close()
    assert len(receiver.got) == 1
    assert list(hooks_of(log)) == []
    with pytest.raises(NotFound):
        hook_named(log, "shop")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fc00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_a_private_address_is_not_asked(log: Log, address: str) -> None:
    assert not is_public(address)
    hook = add_hook(log, "https://hooks.example", name="x")
    with pytest.raises(Forbidden):
        address_of(hook, lambda host, port: ["93.184.215.14", address])


def test_the_connection_goes_to_the_address_that_was_checked(log: Log, receiver: Receiver, tmp_path: Path) -> None:
    port = receiver.url.rpartition(":")[2]
    hook = add_hook(log, f"http://hooks.example:{port}/path?x=1", name="x", private=True)
    note(log)
    asked: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    Delivery(log, hook, HookSecrets(tmp_path / "keys"), look_up=look_up)(next(log.read()))
    assert asked == ["hooks.example"], "it is looked up once"
    assert receiver.got[0][0]["host"] == f"hooks.example:{port}"


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example", "ftp://hooks.example", "https://", "https://user:pw@hooks.example", "https://a#b", "x"],
)
def test_an_address_that_is_no_https_url_is_refused(log: Log, url: str) -> None:
    with pytest.raises(InvalidField):
        add_hook(log, url, name="x")
    assert log.head() == 0
