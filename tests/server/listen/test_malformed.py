"""Requests that are not well-formed: each gets a problem with a code, and none changes anything."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.server.running import NOTE, Running, problem_in, read_all, request

CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
BODY = json.dumps(NOTE).encode()


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        pytest.param(
            request("POST", "/v1/events", "Content-Length: 2", "Content-Length: 2", body=b"{}"),
            *(400, "bad_request"),
            id="two lengths",
        ),
        pytest.param(
            request("POST", "/v1/events", "Content-Length: 2", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
            *(400, "bad_request"),
            id="a length and chunks",
        ),
        pytest.param(
            request("POST", "/v1/events", "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
            *(400, "bad_request"),
            id="an unknown transfer coding",
        ),
        pytest.param(
            request("POST", "/v1/events", "Transfer-Encoding: chunked", body=b"zz\r\n"),
            *(400, "bad_request"),
            id="a chunk without a size",
        ),
        pytest.param(request("GET", "/v1/ev\0ents", CLOSE), 400, "bad_request", id="a null byte in the path"),
        pytest.param(request("GET", "/healthz", "X: a\0b", CLOSE), 400, "bad_request", id="a null byte in a header"),
        pytest.param(request("GET", "/v1/events/a%00b", CLOSE), 400, "bad_request", id="an escaped null in the path"),
        pytest.param(request("GET", "/v1/events?after=%00", CLOSE), 400, "bad_request", id="one in the query"),
        pytest.param(request("GET", "/v1/events/%ff", CLOSE), 400, "bad_request", id="a path that is not UTF-8"),
        pytest.param(request("GET", "/v1/events/\xff", CLOSE), 400, "bad_request", id="bytes in the path"),
        pytest.param(request("GET", "/healthz", "Host: localhost", CLOSE), 400, "bad_request", id="two hosts"),
        pytest.param(request("GET", "/healthz", CLOSE, host="evil.example"), 421, "unknown_host", id="another host"),
        pytest.param(
            request("GET", "/healthz", CLOSE, host="127.0.0.1.evil.example"), 421, "unknown_host", id="a name like it"
        ),
        pytest.param(request("GET", "/healthz", CLOSE, host=""), 421, "unknown_host", id="no host"),
        pytest.param(request("GET", "/healthz", "X: " + "a" * 40_000), 431, "headers_too_large", id="a large header"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 400_000,
            *(431, "headers_too_large"),
            id="a header without an end",
        ),
        pytest.param(
            request("GET", "/healthz", *[f"X{n}: a" for n in range(120)]),
            *(431, "headers_too_large"),
            id="many headers",
        ),
        pytest.param(request("GET", "/healthz?" + "a" * 9_000, CLOSE), 414, "query_too_long", id="a long query"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request", id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request", id="HTTP/2"),
        pytest.param(request("BREW", "/healthz", CLOSE), 400, "bad_request", id="an unknown method"),
        pytest.param(request("OPTIONS", "/healthz", CLOSE), 405, "wrong_method", id="a method that is not used"),
        pytest.param(request("GET", "/v1/events", CLOSE), 401, "not_signed_in", id="no token"),
    ],
)
def test_a_malformed_request_gets_a_problem(server: Running, data: bytes, status: int, code: str) -> None:
    assert problem_in(server.raw(data)) == (status, code)


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        pytest.param(["Content-Type: text/plain"], BODY, 415, "wrong_content_type", id="a wrong content type"),
        pytest.param([JSON], b'{"type":"a","type":"b"}', 400, "not_canonical", id="a key twice"),
        pytest.param([JSON], b'{"type": NaN}', 400, "not_canonical", id="NaN"),
        pytest.param([JSON], b'{"type": "\xff"}', 400, "not_canonical", id="bytes that are not UTF-8"),
        pytest.param([JSON], b"[" * 1000 + b"]" * 1000, 400, "not_canonical", id="depth 1,000"),
        pytest.param([JSON], b'{"payload": {"n": 9007199254740993}}', 400, "not_canonical", id="2^53 + 1"),
        pytest.param(
            [JSON, "Content-Encoding: gzip"], gzip.compress(b" " * 20_000_000), 413, "body_too_large", id="gzip bomb"
        ),
        pytest.param(
            [JSON, "Content-Encoding: gzip"], gzip.compress(BODY)[:-9], 400, "bad_request", id="half a gzip"
        ),
        pytest.param([JSON, "Content-Encoding: br"], BODY, 415, "wrong_content_type", id="another encoding"),
        pytest.param([JSON], b" " * 2_000_000, 413, "body_too_large", id="a large body"),
    ],
)
def test_a_body_that_cannot_be_read_gets_a_problem(
    server: Running, headers: list[str], body: bytes, status: int, code: str
) -> None:
    own = [f"Authorization: Bearer {server.token}", f"Content-Length: {len(body)}", CLOSE]
    assert problem_in(server.raw(request("POST", "/v1/events", *own, *headers, body=body))) == (status, code)


def test_a_body_that_ends_early_records_nothing(server: Running) -> None:
    before = server.metrics()['everlog_log_head{log="log"}']
    with server.connect() as own:
        length = f"Content-Length: {len(BODY) + 1}"
        own.sendall(request("POST", "/v1/events", f"Authorization: Bearer {server.token}", JSON, length, body=BODY))
        own.shutdown(1)
        assert problem_in(read_all(own)) == (400, "bad_request")
    assert server.metrics()['everlog_log_head{log="log"}'] == before


def test_a_request_that_wants_another_protocol_is_answered_in_this_one(server: Running) -> None:
    answer = server.raw(request("GET", "/healthz", "Connection: Upgrade, close", "Upgrade: h2c"))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_several_requests_on_one_connection_are_answered_in_order(server: Running) -> None:
    answers = server.raw(request("GET", "/healthz") + request("GET", "/nothing") + request("GET", "/healthz", CLOSE))
    statuses = [part.split()[0] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200"]


def test_garbage_behind_a_request_does_not_mix_with_its_answer(server: Running) -> None:
    answers = server.raw(request("GET", "/healthz") + b"\0\0\0\0\r\n\r\n")
    assert answers == b"" or answers.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))
    assert answers.count(b"HTTP/1.1 ") <= 2


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "localhost:1", "LOCALHOST.", "everlog.localhost", "[::1]:9"]
)
def test_the_names_of_this_machine_are_known(server: Running, host: str) -> None:
    assert server.raw(request("GET", "/healthz", CLOSE, host=host)).startswith(b"HTTP/1.1 200 ")


def test_no_bad_request_was_a_defect(server: Running) -> None:
    """The last test of this module: what the others sent is in the counters."""
    found = server.metrics()
    assert [name for name in found if 'status="5' in name] == []
    assert 'everlog_refusals_total{code="internal"}' not in found


def test_a_large_body_is_not_taken_for_headers(server: Running) -> None:
    """Its last bytes come together with nothing else, and the next head begins behind them."""
    batch = json.dumps([{**NOTE, "payload": {"text": "x" * 9_000}}] * 200)
    with server.client() as client:
        for _ in range(3):
            assert client.post(
                "/v1/events:batch", content=batch, headers={"content-type": "application/json"}
            ).is_success
