"""Refuse the use of a store after a fork, or after a failed flush: what all stores have in common for this."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from everlog.errors import WriterStopped

WHY_ABANDONED = "it was opened before a fork: open it after the fork, in each process"


class Inherited(Protocol):
    def abandon_after_fork(self) -> None:
        """In a child: leave what is the parent's alone, and refuse to be used."""
        ...


def abandon_in_forks(store: Inherited) -> None:
    """Have an open store abandoned in every forked child."""
    _open.add(store)


def _in_a_forked_child() -> None:
    for store in list(_open):
        store.abandon_after_fork()


_open: WeakSet[Inherited] = WeakSet()
os.register_at_fork(after_in_child=_in_a_forked_child)


def refuse_stopped_writer(place: object, failed: BaseException | None) -> None:
    """Refuse to write where a flush failed before (G12)."""
    if failed is not None:
        raise WriterStopped(
            f"{place} takes no more writes from this process",
            why=f"a flush failed before ({failed}), so that what is on the disk is unknown",
            hint="check the disk, then open the log again",
        ) from failed
