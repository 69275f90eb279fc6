"""Programs that know nothing of everlog read the log: curl, the library cloudevents, an EventSource."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import uvicorn
from tests.remote.serving import Served

import everlog
from everlog.server.serve import make_app


def _needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed on this machine")
    return found


def _notes(behind: Served) -> str:
    for number in (1, 2):
        behind.log.append("note.added", stream=f"note/{number}", payload={"text": "hello"}, actor="user:ada")
    return behind.token(role="read")


def test_curl_reads_pages_lines_and_the_stream(behind: Served) -> None:
    curl, token = _needs("curl"), _notes(behind)

    def read(path: str, *more: str) -> str:
        command = [curl, "-sS", "-K", "-", *more, f"{behind.url}{path}"]
        header = f'header = "Authorization: Bearer {token}"\n'  # on stdin: arguments are seen by everybody
        return subprocess.run(command, input=header, capture_output=True, text=True, timeout=30).stdout

    page = json.loads(read("/v1/events?after=0"))
    assert [one["position"] for one in page["events"]] == [1, 2]
    lines = read("/v1/events?from=1", "-H", "accept: application/x-ndjson").splitlines()
    assert [json.loads(line).get("position") for line in lines][:2] == [1, 2]
    stream = read("/v1/events/stream", "--max-time", "1")
    assert [json.loads(line[6:])["position"] for line in stream.splitlines() if line.startswith("data: ")] == [1, 2]


def test_the_library_cloudevents_reads_the_log(behind: Served) -> None:
    from cloudevents.v1.http import from_json

    token = _notes(behind)
    headers = {"authorization": f"Bearer {token}", "accept": "application/cloudevents+json"}
    records = list(behind.log.read())
    found = [httpx2.get(f"{behind.url}/v1/events/{one.event.id}", headers=headers) for one in records]
    assert {one.headers["content-type"].partition(";")[0] for one in found} == {"application/cloudevents+json"}
    events = [from_json(one.content) for one in found]
    assert [(event["type"], event["subject"]) for event in events] == [
        ("note.added", "note/1"),
        ("note.added", "note/2"),
    ]
    assert [event.data["text"] for event in events] == ["hello", "hello"]


SCRIPT = """
const source = new EventSource(process.argv[1]);
const seen = [];
source.addEventListener("reset", (event) => seen.push("reset " + JSON.parse(event.data).reason));
source.onmessage = (event) => {
  seen.push(JSON.parse(event.data).position + " " + (event.lastEventId !== ""));
  if (seen.length === 3) { console.log(seen.join(", ")); process.exit(0); }
};
"""


def test_an_event_source_reads_the_stream_and_connects_again_by_itself(behind: Served) -> None:
    """EventSource of Node, which is written after the same standard as those of browsers."""
    node, token = _needs("node"), _notes(behind)
    offered = subprocess.run([node, "--experimental-eventsource", "-p", "typeof EventSource"], capture_output=True)
    if offered.stdout.strip() != b"function":
        pytest.skip("this version of node has no EventSource")
    with signed_in(behind.url, token, cut_after=2) as url:
        reader = subprocess.Popen(
            [node, "--experimental-eventsource", "--no-warnings", "-e", SCRIPT, f"{url}/v1/events/stream"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            behind.log.append("note.added", stream="note/3", payload={"text": "hello"})
            assert reader.communicate(timeout=30)[0].strip() == "1 true, 2 true, 3 true"
        finally:
            reader.kill()
            reader.wait()


@contextmanager
def signed_in(url: str, token: str, *, cut_after: int) -> Iterator[str]:
    """A relay that adds a token, which EventSource cannot send, and cuts the first connection after some events."""
    listening = socket.create_server(("127.0.0.1", 0))
    host, port = url.removeprefix("http://").split(":")
    connections = 0

    def relay() -> None:
        nonlocal connections
        while True:
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            connections += 1
            with caller, socket.create_connection((host, int(port))) as server:
                request = caller.recv(1 << 16)
                line, _, rest = request.partition(b"\r\n")
                rest = b"\r\n".join(one for one in rest.split(b"\r\n") if not one.lower().startswith(b"host:"))
                added = f"host: {host}:{port}\r\nauthorization: Bearer {token}\r\n".encode()
                server.sendall(line + b"\r\n" + added + rest)
                events = 0
                with suppress(OSError):
                    while piece := server.recv(1 << 16):
                        caller.sendall(piece)
                        events += piece.count(b"\ndata: ")
                        if connections == 1 and events >= cut_after:
                            break

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([_needs("openssl"), *command, *names, *files], check=True, capture_output=True)
    return key, certificate


def test_the_certificate_of_a_server_is_verified(tmp_path: Path) -> None:
    key, certificate = _certificate(tmp_path)
    with everlog.open("memory:", actor="user:host") as log:
        app = make_app({"log": log})
        token = app.services["log"].tokens.new("ada", actor="user:ada", role="admin")
        config = uvicorn.Config(
            app, host="127.0.0.1", port=0, log_config=None, ssl_keyfile=str(key), ssl_certfile=str(certificate)
        )
        server, listening = uvicorn.Server(config), config.bind_socket()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        try:
            trusted = ssl.create_default_context(cafile=str(certificate))
            with everlog.connect(url, token=token, tls=trusted) as known:
                assert known.append("note.added", stream="note/1", payload={"text": "x"}).position == 1
                following = known.subscribe()
                assert next(following) == log.get(1)
                following.close()  # type: ignore[attr-defined]
            with everlog.connect(url, token=token) as unknown, pytest.raises(everlog.EverlogError) as caught:
                unknown.head()
            assert caught.value.code == "peer_unavailable"
            assert "CERTIFICATE_VERIFY_FAILED" in caught.value.why
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)
            app.close()
