"""Text for people and for searches: counts, suggestions, the words of a text, and paths inside a payload."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable

from everlog.errors import InvalidField

WORD_CHARS_MAX = 64
"""Longer words are cut: PostgreSQL indexes none above 2 KB, and nobody types them."""

PathParts = tuple[str | int, ...]

_WORD = re.compile(r"[^\W_]+")
_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,9})\]|\[("(?:[^"\\]|\\.)*")\]""")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def counted(count: int, one: str, many: str = "") -> str:
    """Return the number with its noun; `many` is the plural where it is not `one` with an s.

    >>> counted(1, "event"), counted(1200, "event"), counted(0, "line is", "lines are")
    ('1 event', '1,200 events', '0 lines are')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean X?` for the known name that is nearest, or an empty text when none is near."""
    import difflib  # only a mistake needs it, and importing it would slow every start of the program

    names = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[near[0]]}?" if near else ""


def words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text in alphabetical order, case-folded and normalized (NFKC).

    Every search and comparison uses this function, so every store finds the same rows.

    >>> words("Fix the login-page; FIX it!")
    ('fix', 'it', 'login', 'page', 'the')
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return tuple(sorted({word[:WORD_CHARS_MAX] for word in _WORD.findall(unicodedata.normalize("NFKC", plain))}))


# ---- paths: the location of a value inside a payload, such as `$.name`, `$.items[3]` or `$["odd name"]`


def below(path: str, key: str | int) -> str:
    """Return the path of a member or an item of the value at `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{json.dumps(key)}]"


def path_of(parts: PathParts) -> str:
    """Return the text of a path."""
    path = "$"
    for part in parts:
        path = below(path, part)
    return path


def parse_path(text: str) -> PathParts:
    """Return the steps of a path. The `$.` in front may be left out: `lane` is `$.lane`."""
    rest = text.removeprefix("$")
    if not text.startswith("$"):
        rest = rest if rest.startswith("[") else "." + rest
    parts: list[str | int] = []
    end = 0
    while found := _STEP.match(rest, end):
        name, index, quoted = found.groups()
        parts.append(name if name is not None else int(index) if index is not None else _unquoted(quoted))
        end = found.end()
    if end < len(rest):
        raise InvalidField(
            f"{text[:60]!r} is not a path",
            why='a path is like $.lane, $.items[3] or $["odd name"]; the "$." in front may be left out',
            hint="everlog state lists the paths of a state",
            field="path",
        )
    return tuple(parts)


def _unquoted(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
