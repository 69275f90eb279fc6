"""Secrets that a text gives by name, and innocent texts that only speak of them."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everlog
from everlog.core.canonical import canonical
from everlog.errors import EverlogError, SecretFound
from everlog.log.secrets.find import find_secrets
from everlog.log.secrets.first_look import suspicious
from everlog.wiring import open

ROOT = Path(__file__).resolve().parents[3]
BASE64 = string.ascii_letters + string.digits + "/+"


def aws_secret(seed: int) -> str:
    rng = random.Random(seed)
    return "aB3" + "".join(rng.choices(BASE64, k=36)) + "z"


PLANTED: list[Any] = [
    {"token": "tok-1a2b3c"},
    {"pwd": "hunter2"},
    {"db": {"pwd": "correct horse"}},
    {"db_pwd": "hunter2"},
    {"Token": "opaque"},
    "password=hunter2",
    "run it with password=hunter2 please",
    "PASSWORD=swordfish",
    "passwd=hunter2;host=db",
    "Server=db;User Id=sa;Pwd=s3cr3t!;",
    "mysql --password=hunter2 -u root",
    "mysql --password 'x' --db-password='hunter2'",
    'connect(password="hunter2")',
    "connect(user='a', password='two words')",
    "export DB_PASSWORD=hunter2",
    "export X_PASSWORD='hunter2'",
    "GITHUB_TOKEN=0a1b2c3d4e make release",
    "docker run -e API_KEY=0a1b2c3d4e image",
    "https://example.org/hook?token=0a1b2c3d4e&x=1",
    "https://example.org/?access_token=0a1b2c3d4e",
    "client_secret=dontguessme",
    "set dbPassword=hunter2",
    '{"password": "hunter2"}',
    '{"user":"ada","token":"opaque"}',
    '[{"a":{"client_secret":"x1"}}]',
    'curl -d \'{"user":"ada","pwd":"hunter2"}\' https://example.org',
    "payload was {'api_key': 'opaque-thing'}",
    json.dumps({"inner": json.dumps({"password": "hunter2"})}),
    "AWS_SECRET_ACCESS_KEY=" + aws_secret(1),
    "aws secret: " + aws_secret(2),
    "the secret is " + aws_secret(3) + " for now",
    "aws configure set x " + aws_secret(4),
    {"aws_secret": aws_secret(5)},
]
INNOCENT: list[Any] = [
    "the token expired",
    "the token expired, and the password was reset",
    "token: see the docs",
    "password required",
    "password: required",
    "password=required",
    "password=***",
    "password=",
    "password=$DB_PASSWORD",
    "password=${DB_PASSWORD}",
    "export DB_PASSWORD=$(pass show db)",
    "token=<your token>",
    "token={{ token }}",
    "password=self.password",
    "login(user, password=password)",
    "token=get_token()",
    "token=token",
    "secret=os.environ['X']",
    "PWD=/home/ada/work",
    "cd $PWD and pwd=/tmp",
    "OLDPWD=~/src",
    "page_token=0a1b2c3d4e5f",
    "?next_page_token=0a1b2c3d4e5f",
    "max_tokens=4096",
    "has_token=true",
    "reset_password=false",
    "password_changed_at=2026-01-01",
    "secret_version_id=7f3a91",
    "the secret santa of 2026 = ada",
    "tokens=1024 tokenizer=bpe",
    "a monkey's key=value pairs",
    "primary key=17",
    '{"token_count": 17, "tokens": ["a", "b"]}',
    '{"password": "<redacted>"}',
    '{"secret": "${SECRET}"}',
    {"token_count": 17},
    {"tokens": ["the", "token", "expired"]},
    {"token": 17},
    {"token": None},
    {"pwd_changed": "yesterday"},
    "commit da39a3ee5e6b4b0d3255bfef95601890afd80709 rotates the secret",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 of the secret store",
    "aws s3 cp s3://bucket/path/to/some/long/Folder2/FileName x",
    "src/everlog/log/secrets.py and docs/Secrets/AboutTheScan2026/IsThere",
    "01HN3R5K8D1234567890ABCDEF 01HN3R5K8D1234567890ABCDEG",
    "9f86d081-884c-7d65-9a2f-eaa0c55ad015 aws region eu-west-1",
    "arn:aws:iam::123456789012:role/ServiceRoleForDeploymentAutomation",
    "we'd token the ring; it's key to us",
    "C:\\Users\\ada\\token.txt",
    "good=fine cloud=ok",
    "a = b and key == other",
]


def payload_of(text: Any) -> dict[str, Any]:
    return text if isinstance(text, dict) else {"note": text}


@pytest.mark.parametrize("text", PLANTED, ids=str)
def test_a_secret_is_found_by_the_name_that_it_stands_under(text: Any) -> None:
    payload = payload_of(text)
    assert find_secrets(payload)
    assert suspicious(canonical(payload))


@pytest.mark.parametrize("text", [text for text in PLANTED if isinstance(text, str)])
def test_it_is_found_in_the_middle_of_a_text_too(text: str) -> None:
    for payload in ({"a": [{"log": f"naïve → line one\n{text}\nline three"}]}, {"a": text + " "}, {text: 1}):
        assert find_secrets(payload)
        assert suspicious(canonical(payload))


@pytest.mark.parametrize("text", INNOCENT, ids=str)
def test_an_innocent_text_passes(text: Any) -> None:
    assert find_secrets(payload_of(text)) == []


@pytest.mark.parametrize(
    "word",
    [
        "true", "false", "none", "null", "required", "optional", "string", "text", "prompt", "stdin", "example",
        "value", "unset", "empty", "missing", "wrong", "invalid", "expired", "changed", "rotated", "redacted",
        "hidden", "removed", "yours", "your", "here", "file", "correct", "incorrect", "disabled", "enabled",
    ],
)  # fmt: skip
def test_a_word_of_prose_behind_a_name_is_no_secret(word: str) -> None:
    for text in (f"password={word}", f"password={word.upper()}!", f"client_secret='{word}'"):
        assert find_secrets({"a": text}) == []
        assert find_secrets({"a": text.replace(word, f"x{word}y").replace(word.upper(), f"X{word.upper()}Y")})


@pytest.mark.parametrize(
    "name",
    [
        "page_token",
        "next_token",
        "next_page_token",
        "continuation-token",
        "syncToken",
        "cancel_token",
        "cancellationToken",
    ],
)
def test_a_token_that_opens_nothing_is_no_secret(name: str) -> None:
    for text in (f"{name}=0a1b2c3d4e", f'{{"{name}": "0a1b2c3d4e"}}'):
        assert find_secrets({"a": text}) == []
        assert find_secrets({"a": text.replace(name, "my_token")})


@pytest.mark.parametrize(
    ("name", "long_enough"),
    [
        *((name, "abcd") for name in ("password", "passwd", "passphrase", "pwd")),
        ("secret", "abcdef"),
        *((name, "abcdefg1") for name in ("token", "api_key", "apikey", "access_key", "secret_key", "account-key")),
    ],
)
def test_a_value_is_a_secret_from_a_length_on_that_depends_on_its_name(name: str, long_enough: str) -> None:
    assert find_secrets({"a": f"set my_{name}={long_enough}"})
    assert find_secrets({"a": f"set my_{name}={long_enough[1:]}"}) == []
    assert bool(find_secrets({"a": f"my_{name}=abcdefgh"})) is (len(long_enough) < 8)  # the others need a digit


def test_texts_about_the_project_raise_no_false_alarm() -> None:
    """Some ten thousand lines of prose and commands, many of them about tokens and secrets."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    found = [line for line in lines if find_secrets({"line": line})]
    assert len(lines) > 5_000
    assert [line for line in found if "hunter2" not in line] == []


@settings(max_examples=200)
@given(
    st.sampled_from(["password", "DB_PWD", "X_TOKEN", "client_secret", "api_key", "Passphrase"]),
    st.sampled_from(["{}={}", "export {}={}", "{}='{}'", '{{"{}": "{}"}}', "x {{'{}': '{}'}} y"]),
    st.text(string.ascii_letters + string.digits, min_size=9, max_size=30),
    st.text(max_size=20),
)
def test_the_first_look_never_misses_what_the_second_finds(name: str, form: str, value: str, around: str) -> None:
    payload = {"a": f"{around} {form.format(name, value + '7')} {around}"}
    try:
        body = canonical(payload)
    except EverlogError:
        return
    if find_secrets(payload):
        assert suspicious(body)


def test_a_hash_of_40_characters_near_the_word_secret_is_no_key() -> None:
    rng = random.Random(7)
    for alphabet in ("0123456789abcdef", "0123456789ABCDEF"):
        digest = "".join(rng.choices(alphabet, k=40))
        assert find_secrets({"note": f"the secret was rotated in {digest}"}) == []


# ---- no error tells one


SECRET = "ghp_" + "a1B2" * 9


def told(error: EverlogError) -> str:
    return " ".join((str(error), error.what, error.why, error.hint, repr(error.details), repr(error.args)))


@pytest.mark.parametrize("field", ["type", "stream", "actor", "scope", "id", "request_id", "correlation_id"])
@pytest.mark.parametrize("form", ["{}", "x.{}", "x/{}", "user:{}", "a b {}", "\n{}"])
def test_no_error_tells_a_secret_that_was_given_for_something_else(field: str, form: str) -> None:
    given_: dict[str, Any] = {"type": "note.added", "stream": "note/1", "payload": {"text": "x"}, "actor": "user:ada"}
    given_[field] = form.format(SECRET)
    with open("memory:") as log:
        with pytest.raises(EverlogError) as caught:
            log.append(given_.pop("type"), **given_)
        assert SECRET not in told(caught.value)
        assert SECRET not in repr(list(log.refusals()))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2@127.0.0.1:1/db",
        "postgres://ada:hunter2@[::1/db",
        "postgresql://ada:hunter2@127.0.0.1:1/db?schema=no%20such",
        "postgresql://127.0.0.1:1/db?user=ada&password=hunter2",
        "postgresq://ada:hunter2@h/db",
        "mysql://ada:hunter2@h/db",
    ],
)
def test_no_error_tells_the_password_of_a_url(url: str) -> None:
    with pytest.raises(EverlogError) as caught:
        everlog.open(url)
    assert "hunter2" not in told(caught.value)


def test_an_error_that_tells_of_a_url_keeps_the_rest_of_it() -> None:
    error = SecretFound(
        "cannot reach postgresql://ada:hunter2@db/x", hint="try again", url="postgresql://ada:hunter2@db/x"
    )
    assert error.what == "cannot reach postgresql://ada:***@db/x"
    assert error.details == {"url": "postgresql://ada:***@db/x"}
