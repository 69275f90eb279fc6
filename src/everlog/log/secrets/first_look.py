"""The first look for secrets: it clears nearly every payload at little cost.

known_clean(payload)   every key and string of it was found clean before
innocent(text)         a text is plainly an id
suspicious(bytes)      literal markers only; may cry wolf, never misses what `find_secrets` would report
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from everlog.core.canonical import NUMBER_MAX
from everlog.log.secrets.assigned import AWS_CHARS, AWS_WORDS
from everlog.log.secrets.patterns import (
    ADDRESS,
    DENIED_NAMES,
    PATTERNS,
    RUN_CHARS_MIN,
    SECRET_CHARS_MIN,
    WINDOW_CHARS,
    names_a_secret,
)

# Lower case, and letters that fall together so that several markers become one test: a test of 150 bytes costs
# 0.07 µs, and `key":`, `secret":` and `token":` share theirs, as do `passw` and `passp`, `ghp_`, `gho_` and `ghu_`.
_FOLD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZwourynWOURYN\\'", b"abcdefghijklmnopqrstuvwxyzpppkttpppktt==")
_RUNS = bytes(
    ord("a") if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "-_+/") else ord(" ")
    for byte in range(256)
)


def fold(text: bytes) -> str:
    """The text in which markers are looked for: what a marker is part of, its folded form is part of here."""
    return text.translate(_FOLD).decode("latin-1")


_SHORT = tuple(
    sorted(
        {fold(marker.encode()) for marker in DENIED_NAMES.values()}
        | {fold(group[0].encode()) for p in PATTERNS if not p.long for group in p.markers}
    )
)
_LONG = tuple(sorted({fold(group[0].encode()) for p in PATTERNS if p.long for group in p.markers}))
# Names of secrets inside of a text: before an equals sign, or before a quote, which is escaped there or a single one.
# All three signs fold to one, and `key`, `token` and `secret` end alike when they are folded.
_KEY_IN_TEXT, _PWD_IN_TEXT = fold(b"key="), fold(b"pwd=")
_AWS_WORDS = tuple(fold(word.encode()) for word in AWS_WORDS)
_AWS_RUN = "a" * AWS_CHARS
_RUN = "a" * RUN_CHARS_MIN
_CHARS_A_RUN = 64
# The tokens that are letters and digits throughout: AWS, Twilio, Databricks, and by chance Google and JWT.
_BARE = tuple(fold(start) for start in (b"akia", b"asia", b"sk", b"dapi", b"aiza", b"eyj"))


def suspicious(texts: bytes) -> bool:
    """False when no payload in these canonical JSON bytes, one or many joined, can hold a secret."""
    folded = texts.translate(_FOLD).decode("latin-1")
    for marker in _SHORT:
        if marker in folded:
            return True
    if "@" in folded and "://" in folded:
        return True
    if "=" in folded and (_KEY_IN_TEXT in folded or _PWD_IN_TEXT in folded):
        return True
    # Every other token is one long run, and most payloads hold none: that spares them the long list.
    runs = texts.translate(_RUNS).decode("latin-1")
    if _RUN not in runs:
        return False
    if _AWS_RUN in runs and (_AWS_WORDS[0] in folded or _AWS_WORDS[1] in folded):
        return True
    markers: Sequence[str] = _LONG
    if len(texts) < _CHARS_A_RUN * runs.count(_RUN):
        # Little else than long runs, as keys are: to look for the markers costs less than to cut the runs out.
        markers = [marker for marker in _LONG if marker in folded]
        if not markers:
            return False
    windows = _windows(runs, folded)
    for marker in markers if windows else ():  # noqa: SIM110 - any() of a generator would double the cost
        if marker in windows:
            return True
    return False


def _windows(runs: str, folded: str) -> str:
    """The long runs with what stands before them, without those that are plainly an id or a hash."""
    kept = []
    start = runs.find(_RUN)
    while start >= 0:
        end = runs.find(" ", start + RUN_CHARS_MIN)
        if end < 0:
            end = len(runs)
        # A string of letters and digits only is a ULID or a hash, unless it begins as one of few tokens do.
        plain = folded[start - 1] == '"' and folded[start:end].isalnum() if start else False
        if not plain or folded.startswith(_BARE, start):
            kept.append(folded[max(0, start - WINDOW_CHARS) : end])
        start = runs.find(_RUN, end)
    return "\n".join(kept)


# Ids are mostly a word and a number, and the word is the same for many of them. No marker is made of these characters
# alone, so that what is left of a text without them holds at least the beginning of a marker, if the text holds one.
NUMBER_CHARS = "0123456789abcdefABCDEF-"
_STEMS = tuple(
    sorted(
        {
            group[-1].lower().rstrip(NUMBER_CHARS).lstrip('"')
            for pattern in (*PATTERNS, ADDRESS)
            for group in pattern.markers
        }
        | {"passw", "passp", "pwd", "token", "secret", "key", "aws"}
    )
)
innocent_words: set[str] = set()
"""Words of ids that hold no marker, nor the beginning of one."""


def innocent(text: str) -> bool:
    """True when a short text is plainly an id and no secret; False says nothing."""
    if len(text) < SECRET_CHARS_MIN:
        return True
    if text.isalnum() and text.isascii():
        return len(text) < RUN_CHARS_MIN or not fold(text[:8].encode()).startswith(_BARE)
    word = text.rstrip(NUMBER_CHARS)
    lowered = word.lower()  # not folded: "aws" and "cause" have no more in common than three letters
    for stem in _STEMS:  # not any() of a generator, which would double the cost
        if stem in lowered:
            return False
    if len(innocent_words) >= _CLEARED_MAX:
        innocent_words.clear()
    innocent_words.add(word)
    return True


# Strings and keys that were looked at and found clean. A log sees the same names, states and slugs over and over, and
# to know a string again costs a tenth of looking at it.
_CLEARED_MAX = 20_000
_CLEARED_CHARS_MAX = 200
_cleared_strings: set[str] = set()
_cleared_keys: set[str] = set()
_plain_keys: set[str] = set()  # those of them that are plain ASCII, for `familiar`


def familiar(payload: Mapping[str, Any]) -> bool:
    """True when a flat payload says nothing new: every string was cleared before, so that the payload holds no secret
    and the fast encoder's output is canonical. One walk in place of two; False says nothing."""
    keys, strings = _plain_keys, _cleared_strings
    for key, item in payload.items():
        if key not in keys:
            return False
        if type(item) is str:
            if item not in strings:
                return False
        elif type(item) is int:
            if not -NUMBER_MAX <= item <= NUMBER_MAX:
                return False
        elif item is not None and type(item) is not bool:
            return False
    return True


def clear_texts(payloads: Sequence[Mapping[str, Any]], bodies: Sequence[bytes]) -> bool:
    """True when no payload holds a secret, and `bodies`, which the fast encoder made of them, are canonical.

    The payloads must be flat, and hold nothing but texts, whole numbers, booleans and nothing. False says nothing.
    """
    values: set[Any] = set()
    for payload in payloads:
        if not _plain_keys.issuperset(payload):
            return False
        values.update(payload.values())
    new = values - _cleared_strings
    if not new:
        return True
    texts = {value for value in new if type(value) is str}
    for value in new - texts if len(texts) < len(new) else ():
        if value is not None and not -NUMBER_MAX <= value <= NUMBER_MAX:
            return False
    if not texts:
        return True
    looked_at = [
        body for payload, body in zip(payloads, bodies, strict=True) if not texts.isdisjoint(payload.values())
    ]
    if suspicious(b"\n".join(looked_at)):
        return False
    if len(_cleared_strings) > _CLEARED_MAX:
        _cleared_strings.clear()
    _cleared_strings.update(texts if max(map(len, texts)) <= _CLEARED_CHARS_MAX else ())
    return True


def known_clean(payload: Mapping[str, Any]) -> bool:
    """True when every key and every string of the payload was cleared before; False says nothing."""
    keys, strings = _cleared_keys, _cleared_strings
    for key, item in payload.items():
        if key not in keys:
            return False
        if type(item) is str:  # spelled out: a call for each would double the cost
            if len(item) >= SECRET_CHARS_MIN and item not in strings:
                return False
        elif not _known_clean_value(item):
            return False
    return True


def _known_clean_value(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) < SECRET_CHARS_MIN or value in _cleared_strings
    if kind is dict:
        return known_clean(value)
    if kind is list:
        return all(map(_known_clean_value, value))
    return value is None or kind in (bool, int, float)


def remember_clean(payload: Any) -> None:
    """Keep the keys and strings of a payload in which nothing was found. A key that names a secret is never kept."""
    if len(_cleared_strings) > _CLEARED_MAX or len(_cleared_keys) > _CLEARED_MAX:
        for remembered in (_cleared_strings, _cleared_keys, _plain_keys):
            remembered.clear()
    _remember(payload)


def _remember(payload: Any) -> None:
    if isinstance(payload, dict):
        for key, item in payload.items():
            if key not in _cleared_keys and not _remember_key(key):
                continue
            if type(item) is not str:
                _remember(item)
            elif len(item) <= _CLEARED_CHARS_MAX:  # spelled out, as the commonest
                _cleared_strings.add(item)
    elif isinstance(payload, str):
        if len(payload) <= _CLEARED_CHARS_MAX:
            _cleared_strings.add(payload)
    elif isinstance(payload, list | tuple):
        for item in payload:
            _remember(item)


def _remember_key(key: str) -> bool:
    """Keep a key, if it may be kept."""
    if len(key) > _CLEARED_CHARS_MAX or names_a_secret(key):
        return False
    _cleared_keys.add(key)
    if key.isascii():
        _plain_keys.add(key)
    return True
