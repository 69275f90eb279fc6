"""No secret enters the log: a cheap first look at the bytes, then a precise one at the values.

    known_clean(payload)   every key and string of it was found clean before
    suspicious(bytes)      literal markers only; may cry wolf, never misses what find_secrets would report
    find_secrets(payload)  anchored patterns over every string and key, and key names that promise a secret
    refuse_secrets(...)    the refusal; it names places and kinds, and never quotes what it found

A log is for ever, so a secret in it can only be rotated, never taken back. Identifiers of secrets are welcome:
`secret_version_id`, `secret_name` and `password_changed_at` pass. There is no entropy rule, because ids, hashes
and slugs are as random as keys are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from everlog.core.canonical import NUMBER_MAX
from everlog.core.text import below
from everlog.errors import HIDDEN, SecretFound, hide_passwords, hide_with
from everlog.log.secrets.assigned import (
    ASSIGNED_KIND,
    AWS_CHARS,
    AWS_KIND,
    AWS_WORDS,
    assigns_a_secret,
    hide_assigned,
    holds_an_aws_secret,
)


class Finding(msgspec.Struct, frozen=True):
    """Where a secret stands, and what it looks like. Never what it is."""

    path: str
    kind: str


class Pattern(msgspec.Struct, frozen=True):
    """One kind of secret.

    Whatever `expression` matches contains every literal of one of the `markers` groups, in some case of letters.
    A `long` one also holds a run of RUN_CHARS_MIN letters, digits, `-`, `_`, `+` and `/`, and the marker begins
    in that run, or at most WINDOW_CHARS before it.
    """

    kind: str
    source: str
    markers: tuple[tuple[str, ...], ...]
    long: bool = True
    ignore_case: bool = False

    @property
    def expression(self) -> re.Pattern[str]:
        return _compiled(self.source, self.ignore_case)


@cache
def _compiled(source: str, ignore_case: bool) -> re.Pattern[str]:
    # When it is first needed: all at once would cost 20 ms of every start-up. ASCII, because with Unicode rules the
    # Kelvin sign matches "k" and no marker would find it.
    return re.compile(source, re.ASCII | (re.IGNORECASE if ignore_case else 0))


RUN_CHARS_MIN = 20
WINDOW_CHARS = 12

_BEFORE = r"(?<![A-Za-z0-9])"
_AFTER = r"(?![A-Za-z0-9])"


def _pattern(kind: str, body: str, *markers: str, long: bool = True, ignore_case: bool = False) -> Pattern:
    return Pattern(kind, _BEFORE + body, tuple((marker,) for marker in markers), long, ignore_case)


PATTERNS: tuple[Pattern, ...] = (
    _pattern("AWS access key id", rf"(?:AKIA|ASIA)[A-Z0-9]{{16}}{_AFTER}", "akia", "asia"),
    _pattern(
        "AWS secret access key",
        rf"aws_secret_access_key[\"' ]*[=:][\"' ]*[A-Za-z0-9/+]{{40}}{_AFTER}",
        "_access_key",
        ignore_case=True,
    ),
    _pattern("GitHub token", r"gh[pousr]_[A-Za-z0-9]{36,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _pattern("GitHub fine-grained token", r"github_pat_[A-Za-z0-9_]{22,}", "pat_"),
    _pattern("GitLab token", r"glpat-[A-Za-z0-9_-]{20,}", "lpat-"),
    _pattern("Slack token", r"xox[abeoprs]-[A-Za-z0-9-]{20,}", "xox"),
    _pattern(
        "Slack webhook",
        r"hooks\.slack\.com/(?:services|workflows)/T[A-Z0-9]+/[A-Za-z0-9]+/[A-Za-z0-9/]*[A-Za-z0-9]{20,}",
        "slack.com/",
    ),
    _pattern("Stripe key", r"[sr]k_live_[A-Za-z0-9]{16,}", "k_live_"),
    _pattern("Anthropic key", r"sk-ant-[A-Za-z0-9_-]{20,}", "sk-"),
    _pattern("OpenAI key", r"sk-(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}", "sk-"),
    _pattern("OpenAI key", rf"sk-[A-Za-z0-9]{{32,}}{_AFTER}", "sk-"),
    _pattern("Google API key", rf"AIza[A-Za-z0-9_-]{{35}}{_AFTER}", "aiza"),
    _pattern("Google OAuth token", r"ya29\.[A-Za-z0-9_-]{20,}", "ya29."),
    _pattern("private key", r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----", "private key", long=False),
    _pattern("JSON Web Token", r"eyJ[A-Za-z0-9_-]{17,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", "eyj"),
    _pattern("npm token", rf"npm_[A-Za-z0-9]{{36}}{_AFTER}", "npm_"),
    _pattern("PyPI token", r"pypi-[A-Za-z0-9_-]{50,}", "pypi-"),
    _pattern("SendGrid key", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}", "sg."),
    # Only as a whole string: two letters are too little to look for inside of text.
    Pattern("Twilio key", r"\ASK[0-9a-f]{32}\Z", (('"sk',),)),
    _pattern("DigitalOcean token", r"do[opr]_v1_[a-f0-9]{64}", "_v1_"),
    _pattern("Hugging Face token", rf"hf_[A-Za-z0-9]{{30,}}{_AFTER}", "hf_"),
    _pattern("Databricks token", rf"dapi[0-9a-f]{{32}}{_AFTER}", "dapi"),
    _pattern("Azure account key", r"AccountKey=[A-Za-z0-9+/]{40,}", "accountkey=", ignore_case=True),
    _pattern("age secret key", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}", "secret-key-1"),
    _pattern("Vault token", r"hvs\.[A-Za-z0-9_-]{20,}", "hvs."),
    _pattern("Telegram bot token", rf"[0-9]{{8,10}}:AA[A-Za-z0-9_-]{{32,33}}{_AFTER}", ":aa"),
    _pattern("Shopify token", r"shpat_[a-fA-F0-9]{32}", "pat_"),
    _pattern("Linear key", r"lin_api_[A-Za-z0-9]{32,}", "n_api_"),
    _pattern("Doppler token", r"dp\.pt\.[A-Za-z0-9]{40,}", "dp.pt."),
    _pattern(
        "bearer authorization",
        r"Bearer (?=[A-Za-z0-9+/_-]*[0-9])[A-Za-z0-9+/_-]{20,}",
        "bearer ",
        ignore_case=True,
    ),
    _pattern(
        "basic authorization",
        r"Basic +(?=[A-Za-z0-9+/]*[0-9=])[A-Za-z0-9+/]{12,}={0,2}",
        "basic ",
        long=False,
        ignore_case=True,
    ),
)

# The password of an address is looked at on its own: `postgresql://app:${PASSWORD}@db` is how it should be.
ADDRESS = Pattern(
    "password in an address",
    r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>]*:([^\s/@\"']+)@[^\s@]",
    (("@", "://"),),
    long=False,
)

# Key names that promise a secret, as lower-case words without separators, each with its marker in the bytes.
# A key's end is part of its marker, because canonical JSON writes `":` right after it: secret_name passes.
DENIED_NAMES: dict[str, str] = {
    **dict.fromkeys(("password", "passwd", "userpassword", "dbpassword", "rootpassword"), "passw"),
    **dict.fromkeys(("adminpassword", "newpassword", "oldpassword", "currentpassword"), "passw"),
    "passphrase": "passp",
    **dict.fromkeys(("secret", "clientsecret", "appsecret", "sharedsecret", "jwtsecret"), 'ret":'),
    **dict.fromkeys(("webhooksecret", "signingsecret", "tokensecret", "accesstokensecret"), 'ret":'),
    **dict.fromkeys(("accesstoken", "refreshtoken", "authtoken", "bearertoken", "apitoken"), 'ken":'),
    **dict.fromkeys(("idtoken", "sessiontoken", "oauthtoken", "bottoken", "githubtoken", "token"), 'ken":'),
    **dict.fromkeys(("pwd", "dbpwd", "userpwd", "adminpwd", "rootpwd"), 'pwd":'),
    "awssecret": 'ret":',
    "awssecretkey": 'key":',
    **dict.fromkeys(("apikey", "privatekey", "secretkey", "secretaccesskey", "awssecretaccesskey"), 'key":'),
    **dict.fromkeys(("encryptionkey", "signingkey", "sshprivatekey", "masterkey"), 'key":'),
    **dict.fromkeys(("accountkey", "xapikey", "apisecretkey", "serviceaccountkey"), 'key":'),
    **dict.fromkeys(("credential", "credentials", "usercredentials", "awscredentials"), "credential"),
}
DENIED_KIND = "value under a key that names a secret"

# Below a denied key these still only describe a secret: {"credentials": {"secret_name": …, "version_id": …}}.
_DESCRIBES = re.compile(r"(?:id|ids|name|names|version|at|ref|type|kind|status|count|arn|path|expires)\Z")
_SEPARATOR = re.compile(r"[-_ .](?=[A-Za-z0-9])")
_WORDS = "redacted|removed|hidden|masked|omitted|filtered|scrubbed|sanitized|none|null|nil|undefined|unset|empty|n/a"
_PLACEHOLDER = re.compile(
    rf"""\s*(?:
        [*•.xX#_?-]*                                                  # *** xxxx ----
      | [\[<({{*]*(?:{_WORDS})[\]>)}}*]*                              # REDACTED <redacted> [removed]
      | <[^<>]*>                                                      # <your password>
      | \$\{{?[A-Za-z_][A-Za-z0-9_.:-]*\}}? | \$\(.*\) | \$\{{\{{.*\}}\}}   # $VAR ${{VAR}} ${{{{ secrets.X }}}}
      | \{{\{{.*\}}\}} | %[A-Za-z_]\w*% | %\(\w+\)s                   # {{{{ var }}}} %VAR% %(var)s
      | (?:vault|op|ssm|env|file|ref|secretref|keyring|keychain|sops|awssm|gcpsm|akv)(?:://?|:)[^\s]+
      | arn:aws[a-z-]*:(?:secretsmanager|ssm|kms):[^\s]+
      | projects/[^\s/]+/secrets/[^\s]+
    )\s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
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
_SHORT_PATTERNS = tuple(pattern for pattern in PATTERNS if not pattern.long)


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
            fold(group[-1].encode()).rstrip(NUMBER_CHARS).lstrip('"')
            for pattern in (*PATTERNS, ADDRESS)
            for group in pattern.markers
        }
        | {fold(name) for name in (b"passw", b"passp", b"pwd", b"token", b"secret", b"key", b"aws")}
    )
)
innocent_words: set[str] = set()
"""Words of ids that hold no marker, nor the beginning of one."""


def innocent(text: str) -> bool:
    """True when a short text is plainly an id and no secret; False says nothing."""
    if len(text) < 9:  # see _kinds
        return True
    if text.isalnum() and text.isascii():
        return len(text) < RUN_CHARS_MIN or not fold(text[:8].encode()).startswith(_BARE)
    word = text.rstrip(NUMBER_CHARS)
    folded = fold(word.encode())
    for stem in _STEMS:  # not any() of a generator, which would double the cost
        if stem in folded:
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


def known_clean(payload: Mapping[str, Any]) -> bool:
    """True when every key and every string of the payload was cleared before; False says nothing."""
    keys, strings = _cleared_keys, _cleared_strings
    for key, item in payload.items():
        if key not in keys:
            return False
        if type(item) is str:  # spelled out: a call for each would double the cost
            if len(item) > 8 and item not in strings:  # nothing shorter can hold a secret, see _kinds
                return False
        elif not _known_clean_value(item):
            return False
    return True


def _known_clean_value(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) < 9 or value in _cleared_strings
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
    if len(key) > _CLEARED_CHARS_MAX or _names_a_secret(key):
        return False
    _cleared_keys.add(key)
    if key.isascii():
        _plain_keys.add(key)
    return True


def find_secrets(payload: Mapping[str, Any]) -> list[Finding]:
    """Every place of the payload, keys included, that holds what looks like a secret."""
    found = dict.fromkeys(_walk(payload, "$", denied=False))
    return list(found)


def refuse_secrets(event_type: str, payload: Mapping[str, Any]) -> None:
    """Raise SecretFound when the payload (or the tags) holds a secret; the error never quotes it."""
    findings = find_secrets(payload)
    if not findings:
        return
    places = "; ".join(f"{finding.path}: {finding.kind}" for finding in findings)
    raise SecretFound(
        f"{event_type} would record a secret",
        why=places,
        hint="keep the value in a secret manager and log its version id, such as secret_version_id",
        type=event_type,
        findings=[{"path": finding.path, "kind": finding.kind} for finding in findings],
    )


def _walk(value: Any, path: str, *, denied: bool) -> Iterator[Finding]:
    if isinstance(value, str):
        kinds = list(_kinds(value))
        for kind in kinds:
            yield Finding(path, kind)
        if denied and not kinds and _PLACEHOLDER.fullmatch(value) is None:
            yield Finding(path, DENIED_KIND)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                continue  # not JSON: the canonical form refuses it, and names it
            hidden = False
            for kind in _kinds(key):
                hidden = True
                yield Finding(f"{path}.<key>", kind)
            place = f"{path}.<key>" if hidden else below(path, key)
            inherits = denied and _DESCRIBES.search(key.lower()) is None
            yield from _walk(item, place, denied=inherits or _names_a_secret(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, below(path, index), denied=denied)


def _kinds(text: str) -> Iterator[str]:
    # Most strings are shorter than any token, and the shortest address is a://:b@c.
    if len(text) < 9:
        return
    for pattern in PATTERNS if len(text) >= RUN_CHARS_MIN else _SHORT_PATTERNS:
        if pattern.expression.search(text) is not None:
            yield pattern.kind
    if "://" in text and "@" in text:
        for match in ADDRESS.expression.finditer(text):
            if _PLACEHOLDER.fullmatch(match[1]) is None:
                yield ADDRESS.kind
                break
    if assigns_a_secret(text, is_placeholder=_is_placeholder):
        yield ASSIGNED_KIND
    if len(text) >= AWS_CHARS and holds_an_aws_secret(text):
        yield AWS_KIND


def hide_secrets(text: str) -> str:
    """Return the text with *** in place of every secret in it."""
    text = hide_passwords(text)
    if not suspicious(f'"{text}"'.encode(errors="replace")) or not any(_kinds(text)):
        return text
    for pattern in PATTERNS:
        text = pattern.expression.sub(HIDDEN, text)
    return hide_assigned(text, HIDDEN, is_placeholder=_is_placeholder)


hide_with(hide_secrets)


def _is_placeholder(value: str) -> bool:
    return _PLACEHOLDER.fullmatch(value) is not None


def _names_a_secret(key: str) -> bool:
    """`API-Key`, `api_key` and `apiKey` are one name; `to_ken` is none, because no marker could find it."""
    lowered = key.lower()
    marker = DENIED_NAMES.get(_SEPARATOR.sub("", lowered))
    # Beyond ASCII, lower case makes a plain "k" of the Kelvin sign, whose bytes no marker knows.
    return marker is not None and key.isascii() and marker in f'{lowered}":'
