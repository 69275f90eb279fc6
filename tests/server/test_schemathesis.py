"""Schemathesis over the OpenAPI document: requests that fit it and requests that do not, in all of its phases.

No answer may be a 5xx, have a status or a content type that is not documented, or a body that its schema refuses.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.programs.samples import world
from tests.server.running import Running, new_log, running

import everlog
from everlog import programs

CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_schema_conformance", "response_headers_conformance"),
)
CASES_MIN = 3000
ALL_PHASES = ("--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "12")
SHORT = ("--phases", "examples,fuzzing,stateful", "--max-examples", "1")


def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    found = checked(_filled(new_log(tmp_path)), tmp_path, *SHORT)
    assert (found.failed, found.cases > 300) == (False, True), found.text


@pytest.mark.slow
def test_all_phases_find_nothing_on_sqlite(tmp_path: Path) -> None:
    found = checked(_filled(new_log(tmp_path)), tmp_path, *ALL_PHASES)
    print(f"sqlite: {found.cases} cases")
    assert (found.failed, found.cases >= CASES_MIN) == (False, True), found.text


@pytest.mark.slow
def test_all_phases_find_nothing_on_postgres(tmp_path: Path, postgres_url: str) -> None:
    everlog.open(postgres_url, actor="user:host").close()
    found = checked(_filled(postgres_url), tmp_path, *ALL_PHASES)
    print(f"postgres: {found.cases} cases")
    assert (found.failed, found.cases >= CASES_MIN) == (False, True), found.text


def test_an_undocumented_status_is_caught(tmp_path: Path) -> None:
    def without_404(document: dict[str, Any]) -> None:
        del document["paths"]["/v1/jobs/{id}"]["get"]["responses"]["404"]

    only = ("--include-path", "/v1/jobs/{id}", "--phases", "fuzzing", "--max-examples", "5")
    found = checked(new_log(tmp_path), tmp_path, *only, change=without_404)
    assert found.failed, found.text
    assert "ndocumented" in found.text


def test_an_answer_that_its_schema_refuses_is_caught(tmp_path: Path) -> None:
    def other_schema(document: dict[str, Any]) -> None:
        document["components"]["schemas"]["HeadAnswer"]["properties"]["head"] = {"type": "string"}

    only = ("--include-path", "/v1/head", "--phases", "fuzzing", "--max-examples", "2")
    found = checked(new_log(tmp_path), tmp_path, *only, change=other_schema)
    assert found.failed, found.text
    assert "violates schema" in found.text


class Found:
    """What a run found."""

    def __init__(self, failed: bool, text: str) -> None:
        self.failed = failed
        self.text = text[-20_000:]
        count = re.search(r"(\d+) generated", text)
        self.cases = int(count[1]) if count is not None else 0


def checked(log: str, folder: Path, *options: str, change: Any = lambda document: None) -> Found:
    """Run schemathesis against a server of a log. `change` changes the document, not the server."""
    with running(log) as server:
        document = httpx2.get(f"{server.url}/openapi.json", trust_env=False).json()
        _wait_little(document)
        change(document)
        path = folder / "openapi.json"
        path.write_text(json.dumps(document))
        return _run(server, path, options)


def _run(server: Running, document: Path, options: tuple[str, ...]) -> Found:
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", server.url]
    command += ["--header", f"Authorization: Bearer {server.token}", "--checks", ",".join(CHECKS)]
    # A stream does not end by itself; tests/server/test_streaming.py has its answers.
    command += ["--exclude-path", "/v1/events/stream", "--continue-on-failure", "--request-timeout", "30"]
    command += ["--seed", "1", "--mode", "all", "--warnings", "off", "--no-color", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=document.parent, check=False)
    return Found(done.returncode != 0, done.stdout + done.stderr)


def _wait_little(value: Any) -> None:
    """Let requests that wait for something wait shortly: the parameters `wait` and `timeout`, wherever they are."""
    match value:
        case {"name": "wait" | "timeout", "schema": dict(schema)}:
            schema["maximum"] = 0.01
        case dict():
            for name in ("wait", "timeout"):
                if name in value.get("properties", {}):
                    value["properties"][name]["maximum"] = 0.01
            for part in value.values():
                _wait_little(part)
        case list():
            for part in value:
                _wait_little(part)


def _filled(url: str) -> str:
    """Record something of every program, so that examples find what they name."""
    with everlog.open(url, actor="user:ada") as log:
        for number in range(3):
            log.append("note.added", stream="note/1", payload={"text": f"hello {number}"})
        for name in programs.TYPES:
            world(log, name)
    return url
