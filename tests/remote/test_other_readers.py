"""Programs that know nothing of everlog read the log: curl, the library cloudevents, a browser's EventSource."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import threading
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
    headers = {"authorization": f"Bearer {token}", "accept": "application/cloudevents-batch+json"}
    found = httpx2.get(f"{behind.url}/v1/events?from=1", headers=headers)
    assert found.headers["content-type"].startswith("application/cloudevents-batch+json")
    events = [from_json(json.dumps(one)) for one in found.json()]
    assert [event["type"] for event in events] == ["note.added", "note.added"]
    assert [event["id"] for event in events] == [one.event.id for one in behind.log.read()]


def test_the_event_source_of_a_browser_reads_the_stream() -> None:
    """EventSource sends no headers: a browser needs the session cookie, which only a page over HTTPS gets."""
    names = ("chromium", "chromium-browser", "google-chrome")
    if not (os.environ.get("EVERLOG_CHROMIUM") or any(map(shutil.which, names))):
        pytest.skip("no chromium is installed on this machine, so no EventSource was tried")
    pytest.skip("chromium is here, and the page that signs in with a cookie is not written yet")


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
