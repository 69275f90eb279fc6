"""Secrets that stand in a text by name: `password=…`, `export X_TOKEN=…`, JSON inside of a string, AWS secret keys.

There the name tells the secret, not its form, so that much depends on what stands behind it: a placeholder, a word of
prose, a path or a piece of code is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

ASSIGNED_KIND = "value assigned to a name of a secret"
AWS_KIND = "AWS secret access key"

# The end of a name, and how long an unquoted value must be, and whether it must have a digit to be one.
_ENDS = {
    **dict.fromkeys(("password", "passwd", "passphrase", "pwd"), (4, False)),
    "secret": (6, False),
    "token": (8, True),
    **dict.fromkeys(("api_key", "apikey", "access_key", "secret_key", "private_key", "account_key"), (8, True)),
}
_NAME = "[A-Za-z0-9_.-]{0,60}?(?:" + "|".join(name.replace("_", "[_-]?") for name in _ENDS) + ")"
_NOT_SECRET = frozenset(
    ("pagetoken", "nexttoken", "nextpagetoken", "continuationtoken", "synctoken", "canceltoken", "cancellationtoken")
)
_WORDS = frozenset(
    (
        *("true", "false", "none", "null", "required", "optional", "string", "text", "prompt", "stdin", "example"),
        *("value", "unset", "empty", "missing", "wrong", "invalid", "expired", "changed", "rotated", "redacted"),
        *("hidden", "removed", "yours", "your", "here", "file", "correct", "incorrect", "disabled", "enabled"),
    )
)
# Code, a path, or a name of something: `password=self.password`, `pwd=/home/ada`, `token=get_token()`.
_REFERENCE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z_][\w.]*[(\[{].*|[~.]?/.*|\.\.?|[A-Za-z]:\\.*|[\w.]*"
    r"(?:password|passwd|pwd|token|secret|key)|[%$&*{<@(\[].*",
    re.IGNORECASE,
)


@cache
def _assignment() -> re.Pattern[str]:
    value = r"(?:\\*\"([^\"\\\n]{1,400})|\\*'([^'\\\n]{1,400})|([^\s\"'\\&;,)}\]|<>`]{1,400}))"
    return re.compile(rf"(?<![A-Za-z0-9_.-])({_NAME})=\s?{value}", re.ASCII | re.IGNORECASE)


@cache
def _member() -> re.Pattern[str]:
    """A member of JSON, or of a dict of Python, in a text: at any depth of quoting."""
    return re.compile(
        rf"\\*[\"']({_NAME}|credentials?)\\*[\"']\s{{0,3}}:\s{{0,3}}\\*[\"']([^\"'\\\n]{{1,400}})",
        re.ASCII | re.IGNORECASE,
    )


# A secret key of AWS has no mark: it is 40 characters of base64, found by the word near it.
_AWS = re.compile(
    r"(?:aws|secret)[^\n]{0,60}?(?<![A-Za-z0-9/+=_.-])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=_.-])",
    re.ASCII | re.IGNORECASE,
)
AWS_WORDS = ("aws", "secret")
AWS_CHARS = 40


def assigns_a_secret(text: str, *, is_placeholder: Callable[[str], bool]) -> bool:
    """True when a text gives a secret under its name."""
    if "=" in text:
        for name, double, single, bare in _assignment().findall(text):
            if _is_secret(name, double or single, bare, is_placeholder):
                return True
    if ":" in text and ('"' in text or "'" in text):
        for name, value in _member().findall(text):
            if _is_secret_name(name) and not is_placeholder(value) and not _REFERENCE.fullmatch(value):
                return True
    return False


def hide_assigned(text: str, hidden: str, *, is_placeholder: Callable[[str], bool]) -> str:
    """Return the text with `hidden` in place of the values that make it one of those above."""

    def assigned(found: re.Match[str]) -> str:
        value = found[2] or found[3] or found[4]
        secret = _is_secret(found[1], found[2] or found[3], found[4], is_placeholder)
        return found[0].replace(value, hidden) if secret else found[0]

    text = _assignment().sub(assigned, text)
    text = _member().sub(lambda found: found[0].replace(found[2], hidden), text)
    return _AWS.sub(lambda found: found[0].replace(found[1], hidden), text)


def holds_an_aws_secret(text: str) -> bool:
    """True when 40 characters of base64 stand near a word that names them. A hash has one case of letters."""
    for found in _AWS.findall(text):
        kinds = (str.isupper, str.islower, str.isdigit)
        if all(any(map(kind, found)) for kind in kinds):
            return True
    return False


def _is_secret(name: str, quoted: str, bare: str, is_placeholder: Callable[[str], bool]) -> bool:
    value = quoted or bare
    if not _is_secret_name(name) or is_placeholder(value) or value.lower().strip(".!?:") in _WORDS:
        return False
    if _REFERENCE.fullmatch(value) is not None:
        return False
    lowered = name.lower().replace("-", "_")
    length, digit = next(rule for end, rule in _ENDS.items() if lowered.endswith((end, end.replace("_", ""))))
    return len(value) >= length and (not digit or any(map(str.isdigit, value)))


def _is_secret_name(name: str) -> bool:
    return re.sub("[^a-z]", "", name.lower()) not in _NOT_SECRET
