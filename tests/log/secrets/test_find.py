"""The secret scan: what it finds, what it leaves alone, and that its refusal tells nothing.

Planted secrets are put together at run time, so that no scanner of repositories stumbles over this file.
"""

from __future__ import annotations

import base64
import hashlib
import random
import timeit
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.secrets.planted_secrets import CROCKFORD, KINDS, planted

import everlog
from everlog.core.canonical import canonical
from everlog.errors import SecretFound
from everlog.log.secrets import first_look
from everlog.log.secrets.find import Finding, find_secrets, refuse_secrets
from everlog.log.secrets.first_look import (
    familiar,
    fold,
    innocent,
    innocent_words,
    known_clean,
    remember_clean,
    suspicious,
)
from everlog.log.secrets.patterns import ADDRESS, DENIED_NAMES, PATTERNS, RUN_CHARS_MIN, SECRET_CHARS_MIN

WORDS = [
    "password", "reset", "requested", "token", "refresh", "secret", "rotated", "risk", "task", "desk", "sk-learn",
    "basic", "bearer", "key", "private", "public", "api", "deploy", "worker", "ticket", "broken", "passing",
    "passed", "asia", "pat", "npm", "pypi", "slack",
]  # fmt: skip


PLACES: list[Callable[[str], dict[str, Any]]] = [
    lambda secret: {"note": secret},
    lambda secret: {"env": {"VALUE": secret}, "count": 3},
    lambda secret: {"lines": ["first", {"deep": [secret]}]},
    lambda secret: {"seen": {secret: True}},
]
IN_TEXT: list[Callable[[str], dict[str, Any]]] = [
    lambda secret: {"message": f"it said: {secret} and then it failed"},
    lambda secret: {"message": f"line one\n{secret}\nline three"},
    lambda secret: {"message": f"naïve → '{secret}'"},
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_secret_is_found_wherever_it_stands(kind: str) -> None:
    places = PLACES if kind == "twilio" else PLACES + IN_TEXT  # two letters are no anchor inside of text
    for seed in range(40):
        for place in places:
            payload = place(planted(seed)[kind])

            assert find_secrets(payload), f"seed {seed}"
            assert suspicious(canonical(payload)), f"seed {seed}"


def test_there_are_enough_planted_kinds_to_touch_every_pattern() -> None:
    touched = {finding.kind for secret in planted(1).values() for finding in find_secrets({"a": secret})}

    assert len(KINDS) >= 40
    assert touched >= {pattern.kind for pattern in PATTERNS} | {ADDRESS.kind}


@pytest.mark.parametrize(
    "key",
    [
        "password", "Password", "PASSWORD", "passwd", "passphrase", "secret", "client_secret", "clientSecret",
        "CLIENT-SECRET", "api_key", "apikey", "apiKey", "API-KEY", "X-Api-Key", "api key", "access_token",
        "accessToken", "refresh_token", "auth_token", "private_key", "privateKey", "secret_key",
        "secret_access_key", "AWS_SECRET_ACCESS_KEY", "credentials", "db_password", "encryption.key",
        "user_password", "root_password", "admin_password", "new_password", "old_password", "current_password",
        "app_secret", "shared_secret", "jwt_secret", "webhook_secret", "signing_secret", "token_secret",
        "access_token_secret", "bearer_token", "api_token", "id_token", "session_token", "oauth_token", "bot_token",
        "github_token", "token", "pwd", "db_pwd", "user_pwd", "admin_pwd", "root_pwd", "aws_secret", "aws_secret_key",
        "signing_key", "ssh_private_key", "master_key", "account_key", "api_secret_key", "service_account_key",
        "credential", "user_credentials", "aws_credentials",
    ],
)  # fmt: skip
def test_a_value_under_a_key_that_names_a_secret_is_found(key: str) -> None:
    for value in ("hunter2", ["hunter2"], {"value": "hunter2"}, [{"a": ["", "hunter2"]}]):
        payload = {"config": {key: value}}

        assert len(find_secrets(payload)) == 1
        assert suspicious(canonical(payload))


@pytest.mark.parametrize(
    "value",
    [
        "", "***", "********", "<redacted>", "REDACTED", "[REDACTED]", "xxxx", "${DB_PASSWORD}", "$DB_PASSWORD",
        "{{ db_password }}", "${{ secrets.DB }}", "vault:kv/app#password", "vault://kv/app#password",
        "op://shop/db/password", "arn:aws:secretsmanager:eu-west-1:1:secret:db", "<your password>", "null",
        None, True, 0, 17, [], {}, [""], {"secret_name": "db", "version_id": "3"},
    ],
)  # fmt: skip
def test_a_placeholder_or_a_reference_under_such_a_key_passes(value: Any) -> None:
    assert find_secrets({"password": value}) == []


@pytest.mark.parametrize(
    "payload",
    [
        {"secret_version_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "secret_name": "database", "secret_id": "s-17"},
        {"password_changed_at": "2026-01-31T12:00:00Z", "token_count": 812, "tokens": 3, "max_tokens": "4096"},
        {"idempotency_key": "deploy-17", "key": "WP03", "sort_key": "a", "public_key": "ed25519:" + "ab" * 32},
        {"title": "password reset requested", "body": "the secret to a good api key policy is rotation"},
        {"package": "sk-learn", "slug": "risk-assessment-for-the-whole-long-year-2026", "id": "task-" + "1234" * 8},
        {"timezone": "Asia/Tokyo", "plan": "Basic subscription for teams", "said": "Bearer of good news, everyone"},
        {"url": "https://example.com:8443/a@b", "mail": "ada@example.com", "git": "ssh://git@example.com:22/a.git"},
        {"dsn": "postgresql://app:${DB_PASSWORD}@db/app", "masked": "redis://:***@cache:6379/0"},
        {"pem": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "pub": "-----BEGIN PUBLIC KEY-----"},
        {"time": "12:00:00", "hashes": ["sha256-" + "0f" * 32], "etag": 'W/"' + "ab" * 16 + '"'},
    ],
)
def test_what_only_speaks_of_secrets_passes(payload: dict[str, Any]) -> None:
    assert find_secrets(payload) == []
    refuse_secrets("note.taken", payload)


def realistic(rng: random.Random) -> dict[str, Any]:
    """A payload as programs write them: full of ids and hashes, and of words that sound like secrets."""

    def ulid() -> str:
        return "01" + "".join(rng.choices(CROCKFORD, k=24))

    raw = rng.randbytes(32)
    makers: dict[str, Callable[[], Any]] = {
        "id": ulid,
        "request_uuid": lambda: str(uuid.UUID(bytes=raw[:16])),
        "commit": lambda: hashlib.sha1(raw).hexdigest(),
        "sha256": lambda: hashlib.sha256(raw).hexdigest(),
        "md5": lambda: hashlib.md5(raw).hexdigest(),
        "commitment": lambda: base64.b64encode(raw).decode(),
        "commitment_url": lambda: base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "signature": lambda: base64.b64encode(rng.randbytes(64)).decode(),
        "slug": lambda: "-".join(rng.choices(WORDS, k=rng.randint(2, 7))),
        "snake": lambda: "_".join(rng.choices(WORDS, k=rng.randint(2, 7))),
        "task": lambda: f"task-{rng.randrange(10**16)}",
        "url": lambda: f"https://example.com:8443/{ulid()}?after={rng.randrange(10**6)}#top",
        "email": lambda: f"{rng.choice(WORDS)}@example.com",
        "both": lambda: f"ada@example.com saw https://example.com/{rng.choice(WORDS)}",
        "secret_version_id": ulid,
        "secret_name": lambda: f"prod/{rng.choice(WORDS)}",
        "secret_id": lambda: str(uuid.UUID(bytes=raw[16:])),
        "password_changed_at": lambda: f"2026-0{rng.randint(1, 9)}-11T10:20:30.123456Z",
        "token_count": lambda: rng.randrange(10**5),
        "version": lambda: (
            f"{rng.randint(0, 40)}.{rng.randint(0, 40)}.{rng.randint(0, 99)}-rc.1+build.{raw.hex()[:7]}"
        ),
        "idempotency_key": lambda: f"{rng.choice(WORDS)}-{ulid()}",
        "stream": lambda: f"workpackage/WP{rng.randint(1, 99):02}",
        "actor": lambda: f"agent:{rng.choice(WORDS)}",
        "message": lambda: " ".join(rng.choices(WORDS, k=12)),
        "image": lambda: f"registry.example.com/app@sha256:{raw.hex()}",
        "node": lambda: "ed25519:" + raw.hex(),
        "path": lambda: "/srv/app/" + "/".join(rng.choices(WORDS, k=5)),
        "lanes": lambda: {"came_from": "planned", "went_to": "doing", "keys": rng.sample(WORDS, 3)},
    }
    return {name: makers[name]() for name in rng.sample(sorted(makers), k=rng.randint(3, 8))}


def test_realistic_payloads_raise_no_false_alarm() -> None:
    rng = random.Random(15)
    alarms = [payload for payload in (realistic(rng) for _ in range(4_000)) if find_secrets(payload)]

    assert alarms == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_refusal_never_tells_the_secret(kind: str) -> None:
    for seed in range(5):
        secret = planted(seed)[kind]
        value = secret.removeprefix("Bea" + "rer ").removeprefix("Ba" + "sic ")
        pieces = [secret] + [value[i : i + 8] for i in range(6, len(value) - 8)]
        for place in PLACES:
            with pytest.raises(SecretFound) as caught:
                refuse_secrets("note.taken", place(secret))

            error = caught.value
            told = f"{error} {error.what} {error.why} {error.hint} {error.details} {error.args} {error!r}"
            told += "".join(traceback.format_exception_only(error))
            generic = "-----BEGIN PRIVATE KEY BLOCK----- OPENSSH aws_secret_access_key authorization"
            assert not [piece for piece in pieces if piece in told and piece not in generic]
            assert error.__cause__ is None
            assert error.__context__ is None


def test_the_refusal_names_place_and_kind_and_what_to_do() -> None:
    payload = {"env": {"API_KEY": "hunter2", "odd key": ["gl" + "pat-" + "a1" * 10]}}

    assert find_secrets(payload) == [
        Finding("$.env.API_KEY", "value under a key that names a secret"),
        Finding('$.env["odd key"][0]', "GitLab token"),
    ]
    with pytest.raises(SecretFound, match=r"\$\.env\.API_KEY") as caught:
        refuse_secrets("app.deployed", payload)
    assert "version id" in caught.value.hint
    assert caught.value.details["findings"][1] == {"path": '$.env["odd key"][0]', "kind": "GitLab token"}
    assert caught.value.code == "secret_found"


@pytest.mark.parametrize("secret", ["a://:b@c", "pwd=abcd", "'pwd':'a"])
def test_the_shortest_secrets_are_found_and_what_is_shorter_is_none(secret: str) -> None:
    assert len(secret) == SECRET_CHARS_MIN
    assert len(find_secrets({"note": secret})) == len(find_secrets({secret: 1})) == 1
    assert not innocent(secret)
    remember_clean({"values": ["a"]})
    assert known_clean({"values": ["a", secret[1:]]})
    assert not known_clean({"values": ["a", secret]})
    with everlog.open("memory:") as log:
        with pytest.raises(SecretFound):
            log.append("note.added", stream="note/1", payload={"text": secret})
        with pytest.raises(SecretFound):
            log.append("note.added", stream="note/1", payload={"text": "a"}, tags={"name": secret})
        log.append("note.added", stream="note/1", payload={"text": secret[1:]})


def test_a_secret_used_as_a_key_hides_the_path_below_it() -> None:
    secret = "gl" + "pat-" + "a1" * 10

    assert find_secrets({"seen": {secret: {"password": "hunter2"}}}) == [
        Finding("$.seen.<key>", "GitLab token"),
        Finding("$.seen.<key>.password", "value under a key that names a secret"),
    ]


def test_one_bad_payload_among_many_makes_the_joined_bytes_suspicious() -> None:
    clean = [canonical({"came_from": "planned", "went_to": "doing", "n": n}) for n in range(100)]
    assert not suspicious(b"\n".join(clean))

    for secret in planted(3).values():
        assert suspicious(b"\n".join([*clean[:50], canonical({"note": secret}), *clean[50:]]))


@pytest.mark.parametrize("pattern", [*PATTERNS, ADDRESS], ids=lambda pattern: pattern.kind)
def test_what_a_pattern_matches_holds_its_markers(pattern: Any) -> None:
    matched = 0
    for seed in range(20):
        for secret in planted(seed).values():
            for match in pattern.expression.finditer(secret):
                matched += 1
                folded = fold(canonical(match[0]))
                groups = [[fold(marker.encode()) for marker in group] for group in pattern.markers]

                assert any(all(marker in folded for marker in group) for group in groups)
                if pattern.long:
                    runs = "".join(c if c.isalnum() or c in "-_+/" else " " for c in match[0]).split()
                    assert max(map(len, runs)) >= RUN_CHARS_MIN
    assert matched


def test_every_denied_name_holds_its_marker() -> None:
    for name, marker in DENIED_NAMES.items():
        assert fold(marker.encode()) in fold(canonical({name: "x"}))


TEXT = st.text(alphabet='abkey-_. "\\\n\x1eé\u212a\u017f/', max_size=12)
NAMES = st.builds(
    lambda first, middle, last, end, change: change(first + middle + last + end),
    st.sampled_from(["api", "secret", "access", "private", "client", "auth", "pass", ""]),
    st.sampled_from(["", "-", "_", " ", ".", "__"]),
    st.sampled_from(["key", "token", "secret", "word", "phrase", "credentials"]),
    st.sampled_from(["", "_", "s"]),
    st.sampled_from([str.lower, str.upper, str.title, str.swapcase]),
)
JSON = st.recursive(
    st.one_of(st.none(), st.integers(-5, 5), TEXT, st.sampled_from(sorted(planted(7).values()))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(payload=st.dictionaries(TEXT | NAMES, JSON, max_size=3))
def test_the_first_look_never_misses_what_the_second_would_find(payload: dict[str, Any]) -> None:
    assert suspicious(canonical(payload)) or find_secrets(payload) == []


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.kind)
def test_the_first_look_misses_nothing_that_a_pattern_can_generate(pattern: Any) -> None:
    @settings(max_examples=25)
    @given(
        match=st.from_regex(pattern.expression),
        before=st.sampled_from(["", "\n", "\t", "\x1e", " ", '"', "é", "/", "\\"]),
    )
    def never_missed(match: str, before: str) -> None:
        payload = {"note": before + match}
        assert suspicious(canonical(payload)) or find_secrets(payload) == []

    never_missed()


@pytest.mark.parametrize(
    "payload",
    [
        {"api_\u212aey": "hunter2"},
        {"a": "Account\u212aey=" + "a1" * 30},
        {"a": "Ba\u017fic " + "a1" * 30},
    ],
)
def test_letters_that_only_unicode_folds_to_ascii_do_not_part_the_two_looks(payload: dict[str, Any]) -> None:
    assert suspicious(canonical(payload)) == bool(find_secrets(payload))


def test_the_first_look_is_many_times_cheaper_than_the_second() -> None:
    payload = {"came_from": "planned", "reason": "the gate was green at noon", "went_to": "doing", "wp": "WP03"}
    text = canonical(payload)

    first = min(timeit.repeat(lambda: suspicious(text), number=500, repeat=5))
    second = min(timeit.repeat(lambda: find_secrets(payload), number=500, repeat=5))

    assert first * 3 < second


def test_a_secret_is_seen_beside_what_only_begins_like_another() -> None:
    """All markers count, not only the first that is there."""
    innocent = "a remark with :aa in it, and akia too, far from anything that is long"
    for secret in ("ghp_" + "a1" * 18, "hf_" + "b2" * 16):
        payload = {"note": innocent, "other": secret}
        assert find_secrets(payload)
        assert suspicious(canonical(payload))


def test_a_key_is_looked_at_as_a_text_of_a_payload_is() -> None:
    log = everlog.open("memory:")
    with pytest.raises(SecretFound):
        log.append("note.added", stream="note/1", payload={"text": "a"}, key="SK" + "0a" * 16)
    log.close()


def test_what_was_once_cleared_is_not_cleared_under_a_name_that_names_a_secret() -> None:
    remember_clean({"text": "correct horse battery", "password": "********", "access": {"api_key": "${KEY}"}})
    assert known_clean({"text": "correct horse battery"})
    assert familiar({"text": "correct horse battery"})
    for payload in ({"password": "correct horse battery"}, {"access": {"api_key": "correct horse battery"}}):
        assert not known_clean(payload)
        assert not familiar(payload)


def test_what_stands_below_a_name_that_names_a_secret_is_not_remembered() -> None:
    remember_clean({"credentials": {"name_of_it": "the one of production"}, "text": "remembered elsewhere"})
    assert not known_clean({"text": "the one of production"})
    assert not known_clean({"name_of_it": "remembered elsewhere"})


def test_only_under_plain_names_a_payload_is_encoded_as_it_is() -> None:
    """The fast encoder sorts other names differently."""
    remember_clean({"text": "for the fast encoder", "téxt": "for the fast encoder", "other": "für alle anderen"})
    assert familiar({"text": "for the fast encoder"})
    assert familiar({"text": "für alle anderen"})
    assert known_clean({"téxt": "for the fast encoder"})
    assert not familiar({"téxt": "for the fast encoder"})


def test_no_more_than_so_many_texts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "_CLEARED_MAX", 10)
    for number in range(100):
        remember_clean({"text": f"the remark of number {number}", f"key_{number}": 1})
        assert innocent(f"word-{number * 'k'}-0123456789")
    for remembered in (first_look._cleared_strings, first_look._cleared_keys, first_look._plain_keys, innocent_words):
        assert len(remembered) <= 12
    remember_clean({"text": "a" * 1000})
    assert not known_clean({"text": "a" * 1000})
