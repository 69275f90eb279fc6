"""Stages: named steps at the end of every write, in its transaction, once for the whole commit group.

    refusals    write the refusals that wait, if the write records something anyway
    standing    look again at what counts, if the write has events that decide on it
    derive      fold the new events into the views that are kept with the events
    seal        sign the groups of the write with `write.sign`. Nothing changes the write after it.
    measure     take the time until the write is on the disk, for a server's metrics

A signature covers the hashes of events, and so their headers, which commit to the payloads. No header covers the
signature or the path.

A stage may refuse. Then the whole write is undone, and the error names the stage.
"""

from __future__ import annotations

import logging
from typing import Protocol

from everlog.errors import EverlogError, Unavailable
from everlog.stores.open_write import OpenWrite

STAGES = ("refusals", "standing", "derive", "seal", "measure")
"""The order in which stages run, whatever the order in which they were added."""

_logger = logging.getLogger("everlog")


class Stage(Protocol):
    @property
    def name(self) -> str:
        """One of `STAGES`."""
        ...

    def run(self, write: OpenWrite) -> None:
        """Take part in an open write. An exception undoes all of it."""
        ...

    def committed(self) -> None:
        """The write is on the disk. This must not raise, and is called before the next write opens."""
        ...

    def undone(self) -> None:
        """The write failed after `run` was called. This must not raise."""
        ...


class StageFailed(Unavailable):
    """A stage raised, so the write was undone."""


class Stages:
    """The stages of one log, at most one per name."""

    def __init__(self) -> None:
        self.active: tuple[Stage, ...] = ()

    def add(self, stage: Stage) -> None:
        """Have a stage run in every write from now on. It replaces the one of the same name."""
        if stage.name not in STAGES:
            raise ValueError(f"there is no stage {stage.name!r}; the stages are {', '.join(STAGES)}")
        others = [other for other in self.active if other.name != stage.name]
        self.active = tuple(sorted((*others, stage), key=lambda one: STAGES.index(one.name)))

    def remove(self, stage: Stage) -> None:
        """Have a stage run no longer. It may be added again."""
        self.active = tuple(other for other in self.active if other is not stage)

    def run(self, write: OpenWrite) -> tuple[Stage, ...]:
        """Run every stage and return them, for `committed` or `undone`."""
        stages = self.active
        for count, stage in enumerate(stages):
            try:
                stage.run(write)
            except BaseException as error:
                undone(stages[: count + 1])
                if not isinstance(error, Exception):
                    raise
                raise StageFailed(
                    f"the stage {stage.name} of the write failed, so nothing was recorded",
                    why=f"{type(error).__name__}: {error}",
                    hint=(error.hint if isinstance(error, EverlogError) else "") or "everlog doctor",
                    stage=stage.name,
                ) from error
        return stages


def committed(stages: tuple[Stage, ...]) -> None:
    for stage in stages:
        try:
            stage.committed()
        except Exception:  # the events are on the disk, and that must not be reported as a failure
            _logger.exception("the stage %s failed after a commit; the commit is not affected", stage.name)


def undone(stages: tuple[Stage, ...]) -> None:
    for stage in reversed(stages):
        try:
            stage.undone()
        except Exception:  # the caller must get the error that undid the write
            _logger.exception("the stage %s failed after a write was undone", stage.name)
