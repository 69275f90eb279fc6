"""A purge inside a write: the stream's events go, and every word of them that is kept beside the events.

What is derived from them follows after the commit. The purge stands by then, whatever becomes of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from everlog.core.event import Purge, Recorded
from everlog.core.query import Query
from everlog.log.idempotency import forget_responses
from everlog.log.letters import forget_letters
from everlog.log.refusals import forget_refusals
from everlog.log.requests import Request
from everlog.stores.contract import Writer

if TYPE_CHECKING:
    from everlog.views.views import Views

_logger = logging.getLogger("everlog")


def purge(
    writer: Writer, stream: str, left: Request | None, *, actor: str, reason: str
) -> tuple[Purge, tuple[Recorded, ...]]:
    """Purge a stream and record `left`, which stays known of it; the purge, and what was recorded."""
    gone = {recorded.event.id for recorded in writer.read(Query(stream=stream))}
    records: tuple[Recorded, ...] = ()
    if left is not None:
        # First, because what it expects is a matter of the history that the purge takes away.
        receipt = left.do(writer)
        records = receipt.records
        if receipt.replayed:  # somebody with the same key was faster
            return next(done for done in reversed(writer.purges()) if done.stream == stream), records
    done = writer.purge(stream, actor=actor, reason=reason)
    forget_refusals(writer, stream)
    forget_letters(writer, stream)
    forget_responses(writer, gone)
    return done, records


def forget_derived(views: Callable[[], Views], stream: str) -> None:
    """Take a purged stream out of all that views keep. What hinders it is told, and is no failure of the purge."""
    try:
        views().forget_purged(stream)
    except BaseException as error:
        _logger.warning(
            "the purge of %s stands; but the states of views may still hold words of it: %s; when that is mended,"
            " type: everlog views run --to-end",
            stream,
            str(error) or type(error).__name__,
        )
        if not isinstance(error, Exception):  # an interrupt is still one
            raise
