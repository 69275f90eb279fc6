"""What a secret looks like: the forms of tokens, the names of keys that promise one, and what only stands for one."""

from __future__ import annotations

import re
from functools import cache

import msgspec


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
SECRET_CHARS_MIN = 8  # a://:b@c, pwd=abcd
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


def is_placeholder(value: str) -> bool:
    return _PLACEHOLDER.fullmatch(value) is not None


def names_a_secret(key: str) -> bool:
    """`API-Key`, `api_key` and `apiKey` are one name; `to_ken` is none, because no marker could find it."""
    lowered = key.lower()
    marker = DENIED_NAMES.get(_SEPARATOR.sub("", lowered))
    # Beyond ASCII, lower case makes a plain "k" of the Kelvin sign, whose bytes no marker knows.
    return marker is not None and key.isascii() and marker in f'{lowered}":'
