"""`everlog serve`: where it listens, and what it refuses."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.server.running import NOTE, new_log, request, running

import everlog
from everlog.errors import InvalidSettings
from everlog.server.callers.tokens import Tokens
from everlog.server.serve import Listen


def refused(log: str, *options: str) -> dict[str, str]:
    """Return the error of a server that does not start."""
    command = [sys.executable, "-m", "everlog", "serve", "--log", log, "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, 1), done.stderr
    assert done.stdout == ""
    error: dict[str, str] = json.loads(done.stderr)["error"]
    return error


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_an_address_that_others_can_reach_needs_tls_or_a_proxy(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidSettings, match="nothing encrypts"):
        Listen(host=host).check()
    Listen(host=host, behind_proxy=True).check()
    with pytest.raises(InvalidSettings, match="no file"):
        Listen(host=host, tls_cert=tmp_path / "c", tls_key=tmp_path / "k").check()
    with pytest.raises(InvalidSettings, match="two files"):
        Listen(host=host, tls_cert=tmp_path / "c").check()


def test_the_command_says_so(tmp_path: Path) -> None:
    error = refused(new_log(tmp_path), "--host", "0.0.0.0", "--port", "0")
    assert error["code"] == "invalid_settings"
    assert "--tls-cert" in error["hint"]


def test_a_port_that_is_taken_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        error = refused(new_log(tmp_path), "--port", str(own.getsockname()[1]))
    assert (error["code"], error["hint"]) == ("busy", "--port 0 chooses a free port")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate, and is not here")
def test_it_speaks_tls_and_answers_under_a_name_that_it_was_given(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    with everlog.open(log) as opened:
        secret = Tokens(opened).new("ada", actor="user:ada")
    cert, key = certificate(tmp_path)
    with running(log, "--host-name", "log.example", "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(cert))
        with httpx2.Client(base_url=server.url, verify=context, trust_env=False) as client:
            headers = {"authorization": f"Bearer {secret}", "host": "log.example"}
            assert client.post("/v1/events", json=NOTE, headers=headers).status_code == 201
        assert server.raw(request("GET", "/healthz"), wait_s=15.0) == b""  # not TLS: it is closed, not answered
        assert server.terminate() < 10.0


def test_behind_a_proxy_it_makes_no_token(tmp_path: Path) -> None:
    with running(new_log(tmp_path), "--behind-proxy") as server:
        assert server.token == ""
        assert server.raw(request("GET", "/healthz", "Connection: close")).startswith(b"HTTP/1.1 200 ")


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1, signed by itself."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = ["-subj", "/CN=everlog", "-addext", "subjectAltName=IP:127.0.0.1,DNS:log.example"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=60)
    return cert, key
