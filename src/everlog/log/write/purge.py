"""A purge inside a write: it removes the stream's events, and what is kept of them beside the events.

What views derived from them is removed after the commit. If that fails, the purge is not affected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from everlog.core.event import Purge, Recorded
from everlog.core.query import Query
from everlog.log.dead_letters import forget_letters
from everlog.log.derived import ViewsOfLog
from everlog.log.write.idempotency import forget_responses
from everlog.log.write.refusals import forget_refusals
from everlog.log.write.requests import Request
from everlog.stores.open_write import OpenWrite

_logger = logging.getLogger("everlog")


def purge(
    writer: OpenWrite, stream: str, left: Request | None, *, actor: str, reason: str
) -> tuple[Purge, tuple[Recorded, ...]]:
    """Purge a stream and record `left`, which stays known of it; return the purge and the records."""
    gone = {recorded.event.id for recorded in writer.read(Query(stream=stream))}
    records: tuple[Recorded, ...] = ()
    if left is not None:
        # First, because its expectations concern the history that the purge removes.
        receipt = left.do(writer)
        records = receipt.records
        if receipt.replayed:  # somebody with the same key was faster
            return next(done for done in reversed(writer.purges()) if done.stream == stream), records
    done = writer.purge(stream, actor=actor, reason=reason)
    forget_refusals(writer, stream)
    forget_letters(writer, stream)
    forget_responses(writer, gone)
    return done, records


def forget_derived(views: Callable[[], ViewsOfLog], stream: str) -> None:
    """Remove a purged stream from what views keep. A failure is logged, and does not affect the purge."""
    try:
        views().forget_purged(stream)
    except BaseException as error:
        _logger.warning(
            "the purge of %s is done, but the states of views may still contain words of it: %s; after a repair,"
            " type: everlog views run --to-end",
            stream,
            str(error) or type(error).__name__,
        )
        if not isinstance(error, Exception):  # an interrupt is still one
            raise
