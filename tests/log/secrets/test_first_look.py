"""Ids, keys and stored responses are looked at as payloads are, and cost next to nothing."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.secrets.planted_secrets import CROCKFORD, KINDS, planted

import everlog
from everlog.core.canonical import DEPTH_MAX, NUMBER_MAX
from everlog.errors import InvalidField, SecretFound
from everlog.log.secrets.find import find_secrets
from everlog.log.secrets.first_look import NUMBER_CHARS, clear_texts, innocent, innocent_words
from everlog.log.secrets.patterns import PATTERNS


@pytest.mark.parametrize("kind", KINDS)
def test_no_planted_secret_is_an_innocent_id(kind: str) -> None:
    for seed in range(20):
        secret = planted(seed)[kind]
        for text in (secret, f"trace-{secret}", f"{secret}-0123456789abcdef", f"0123-{secret}"):
            assert not innocent(text) or find_secrets({"id": text}) == []
        assert not innocent(secret)
        assert secret.rstrip(NUMBER_CHARS) not in innocent_words


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.kind)
def test_nothing_that_a_pattern_can_generate_is_an_innocent_id(pattern: Any) -> None:
    @settings(max_examples=25)
    @given(before=st.sampled_from(["", "a-", "job/", "0-"]), secret=st.from_regex(pattern.expression, fullmatch=True))
    def holds(before: str, secret: str) -> None:
        for text in (secret, before + secret):
            cleared = text.rstrip(NUMBER_CHARS) in innocent_words or innocent(text)
            assert not (cleared and find_secrets({"id": text}))

    holds()


def test_ids_as_they_are_need_no_second_look() -> None:
    rng = random.Random(8)
    for _ in range(100):
        number = rng.getrandbits(128)
        uuid = f"{number:032x}"
        ulid = "".join(rng.choices(CROCKFORD, k=26))
        for text in (
            f"trace-{uuid[:16]}",
            uuid,
            f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:]}",
            ulid,
            f"{number}",
            "job/17",
            "",
        ):
            assert innocent(text)


@pytest.mark.parametrize("field", ["request_id", "causation_id", "correlation_id"])
@pytest.mark.parametrize("kind", ["aws id", "https address", "twilio"])
def test_a_secret_in_an_id_is_refused_and_its_place_is_told(field: str, kind: str) -> None:
    log = everlog.open("memory:")
    fine = everlog.Draft("note.added", "note/1", {"text": "a"})
    bad = msgspec.structs.replace(fine, **{field: planted(4)[kind]})
    with pytest.raises(SecretFound) as caught:
        log.append_batch([fine, bad, fine])
    assert [finding["path"] for finding in caught.value.details["findings"]] == [f"$.{field}"]
    assert planted(4)[kind] not in f"{caught.value}{log.refusals()}"
    assert log.head() == 0
    log.append_batch([msgspec.structs.replace(fine, **{field: "trace-0123456789abcdef"})])
    log.close()


def test_a_secret_in_a_stored_response_is_refused_and_its_place_is_told() -> None:
    log = everlog.open("memory:")
    draft = everlog.Draft("note.added", "note/1", {"text": "a"})
    for response in ({"made": [planted(4)["aws id"]]}, {"made": ["x"], "api_key": "hunter2"}):
        with pytest.raises(SecretFound, match=r"\$\.response\.(made\[0\]|api_key)"):
            log.writer.commit([draft], key="a", response=response)
    assert log.head() == 0
    assert log.writer.commit([draft], key="a", response={"made": ["x"]}).response == {"made": ["x"]}
    deep: Any = "as deep as can be"
    for _ in range(DEPTH_MAX):
        deep = [deep]
    assert log.writer.commit([draft], key="b", response=deep).response == deep
    log.close()


@pytest.mark.parametrize("field", ["stream", "actor", "scope"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_in_a_name_is_refused_though_the_other_names_are_known(kind: str, field: str) -> None:
    log = everlog.open("memory:")
    log.append("note.added", stream="note/1", actor="user:ada", scope="acme", payload={"text": "a"})
    before = {"stream": "note/", "actor": "user:", "scope": "acme/"}[field]
    for seed in range(5):
        name = before + planted(seed)[kind]
        names: dict[str, Any] = {"stream": "note/1", "actor": "user:ada", "scope": "acme", field: name}
        for _ in range(2):  # the second time it must not be taken for a name that was found clean
            if find_secrets({field: name}):
                with pytest.raises((SecretFound, InvalidField)):
                    log.append("note.added", payload={"text": "a"}, **names)
    log.close()


def test_a_name_that_only_looks_like_a_secret_is_taken() -> None:
    log = everlog.open("memory:")
    for name in ("note/sk-short", "note/akia", "note/password_changed"):
        assert log.append("note.added", stream=name, payload={"text": "a"}).event.stream == name
    log.close()


def test_names_that_are_no_text_are_refused_in_words() -> None:
    log = everlog.open("memory:")
    wrong: Any = ["note/1"]
    for names in ({"stream": wrong}, {"stream": "note/1", "actor": wrong}, {"stream": "note/1", "scope": wrong}):
        with pytest.raises(InvalidField):
            log.append("note.added", payload={"text": "a"}, **names)
    log.close()


@pytest.mark.parametrize("sign", [1, -1])
def test_payloads_with_numbers_that_are_not_exact_everywhere_need_a_second_look(sign: int) -> None:
    log = everlog.open("memory:")
    payloads: list[dict[str, Any]] = [{"text": "a"}, {"text": None}, {"text": sign * NUMBER_MAX}]
    for payload in payloads:
        log.append("note.added", stream="note/1", payload={"text": str(payload)})  # the key is known from now on
    assert clear_texts(payloads, [msgspec.json.encode(payload) for payload in payloads])
    payloads[1] = {"text": sign * (NUMBER_MAX + 1)}
    assert not clear_texts(payloads, [msgspec.json.encode(payload) for payload in payloads])
    log.close()


def test_payloads_with_a_key_that_nobody_has_looked_at_need_a_second_look() -> None:
    payloads: list[dict[str, Any]] = [{"the key of this one payload": "a"}]
    assert not clear_texts(payloads, [msgspec.json.encode(payload) for payload in payloads])
