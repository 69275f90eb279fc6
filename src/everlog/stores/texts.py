"""Full-text search over what views keep: which rows hold some words, and which titles are like a given one.

A text belongs to a row, is set and removed in the same change, and is made of words (`everlog.core.text`)
rather than of prose: so that SQLite, PostgreSQL and memory, whatever they think of languages, find the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec


class Text(msgspec.Struct, frozen=True, gc=False):
    """What a row is found by. `part` is where it belongs, as a path; the words are distinct."""

    part: str
    title: tuple[str, ...]
    body: tuple[str, ...]


class TextIndex(Protocol):
    """What a small state can be asked about texts. Keys of a space, at most `limit`."""

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        """The rows whose text holds every word, the greatest key first; `within` is a part or what lies below it."""
        ...

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        """The rows of a part whose title shares at least this much with the words, the most alike first.

        The measure is Jaccard's: words in both, divided by words in either.
        """
        ...


class MemoryTexts:
    """The reference: which keys hold which word, in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[str, Text]] = defaultdict(dict)
        self._holders: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def put(self, space: str, texts: Mapping[str, Text | None]) -> None:
        """Set texts; None removes one."""
        there, holders = self._texts[space], self._holders[space]
        for key, text in texts.items():
            before = there.pop(key, None)
            for word in () if before is None else (*before.title, *before.body):
                holders[word].discard(key)
            if text is not None:
                there[key] = text
                for word in (*text.title, *text.body):
                    holders[word].add(key)

    def clear(self, space: str) -> None:
        self._texts.pop(space, None)
        self._holders.pop(space, None)

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        if not words or space not in self._texts:
            return []
        there, holders = self._texts[space], self._holders[space]
        found = set.intersection(*(holders.get(word, set()) for word in words))
        inside = [key for key in found if not within or (there[key].part + "/").startswith(within + "/")]
        return sorted(inside, reverse=True)[:limit]

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        if not words or space not in self._texts:
            return []
        there, holders = self._texts[space], self._holders[space]
        shared = Counter(key for word in words for key in holders.get(word, ()) if word in there[key].title)
        scores = {
            key: count / (len(words) + len(there[key].title) - count)
            for key, count in shared.items()
            if there[key].part == part
        }
        found = [key for key, score in scores.items() if score >= least]
        return sorted(found, key=lambda key: (-scores[key], key))[:limit]
