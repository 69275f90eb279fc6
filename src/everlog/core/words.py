"""The words of a text, for every search and comparison alike: what one store finds, all find."""

from __future__ import annotations

import re
import unicodedata

WORD_CHARS_MAX = 64
"""Longer words are cut: PostgreSQL takes none above 2 KB, and nobody types them."""

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> tuple[str, ...]:
    """The distinct words of a text in order of the alphabet, without case and without the forms that only look other.

    >>> words("Fix the login-page; FIX it!")
    ('fix', 'it', 'login', 'page', 'the')
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return tuple(sorted({word[:WORD_CHARS_MAX] for word in _WORD.findall(unicodedata.normalize("NFKC", plain))}))
