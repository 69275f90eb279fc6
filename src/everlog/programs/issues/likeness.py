"""How similar two issues are, from 0 to 1: the words of the titles count six tenths, those of the bodies four. Pure.

Each part is the Jaccard index: words in both, divided by words in either. If neither has a body, the titles decide,
because two empty bodies show nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from everlog.core.text import words

TITLE, BODY = 0.6, 0.4

BLOCKED_AT = 0.7

TITLES_ALIKE_MIN = (BLOCKED_AT - BODY) / TITLE
"""Below this no body can make up for the titles: so a search among titles finds every candidate."""


def likeness(title: str, body: str, other_title: str, other_body: str) -> float:
    titles = _shared(words(title), words(other_title))
    mine, others = words(body), words(other_body)
    if not mine and not others:
        return titles
    return round(TITLE * titles + BODY * _shared(mine, others), 4)


def _shared(mine: Collection[str], others: Collection[str]) -> float:
    both = len({*mine} & {*others})
    return both / len({*mine, *others}) if both else 0.0
