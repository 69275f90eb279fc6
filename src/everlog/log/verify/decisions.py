"""What was decided on chains is in notes with checksums (`everlog.trust.verdicts`): `verify` compares them."""

from __future__ import annotations

from collections.abc import Iterator

from everlog.core.event import START
from everlog.errors import Damaged
from everlog.stores.contract import Problem
from everlog.stores.small_state import RowReader
from everlog.trust.succession import successions_in
from everlog.trust.verdicts import forks_in, verdicts_in


def decision_problems(state: RowReader) -> Iterator[Problem]:
    for read in (verdicts_in, forks_in, successions_in):
        try:
            read(state)
        except Damaged as error:
            yield Problem(START, "notes_damaged", f"{error.what}: {error.why}")
