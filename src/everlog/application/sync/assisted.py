"""A node that joins and begins with the snapshots of its peer, if a quorum of pinned keys signed them.

    statements   of the peer are looked at: this log, this code of the view, enough signatures
    rows         are fetched, and compared with the hash that was signed
    events       are fetched up to the heads that the statement names, and not further
    snapshot     if the heads here are exactly these, the rows become a snapshot of this log
    rest         is synced as usual, and views begin with the snapshot
    replay       some keys of each view are derived again from the events and compared

Anything that does not fit leaves the views to be derived from the events, as without a snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec

from everlog.application.sync.shared_snapshots import Rows, ends_of, heads_here, rows_of_body, usable
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.sync.exchange import VIEWS, Ask, Node
from everlog.sync.wire import SharedViews, Span, decode, encode
from everlog.trust.shared import Statement, has_quorum, signers
from everlog.views.registry import live_view, views_of
from everlog.views.snapshots.check import SAMPLE, check_all

BODY_BYTES_MAX = 256 * 1024 * 1024
"""The rows of a view that are larger are not fetched."""

_logger = logging.getLogger("everlog")


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that a node began with."""

    view: str
    keys: int
    signed_by: list[str]
    position: int
    replayed: int = 0
    ok: bool = True


def begin_with_snapshots(
    node: Node, ask: Ask, *, pinned: Collection[str], quorum: int = 0, peer: str = "peer:unknown"
) -> list[Used]:
    """Fetch the events that a peer's snapshots cover, and have views begin with these snapshots."""
    log = node.log
    if not pinned or log.head():
        return []
    reply = decode(ask(VIEWS, encode(SharedViews(community_id=node.log_id))), SharedViews)
    signed = [
        (statement, sorted(signers(note).intersection(pinned)))
        for note, statement in usable(log, reply.notes, pinned)
        if has_quorum(note, pinned, quorum)
    ]
    found = [(statement, by, rows) for statement, by in signed if (rows := _rows(node, ask, statement)) is not None]
    if not found:
        return []
    heads = found[0][2].heads  # those of another moment would need a log that ends there
    node.fetch(ask, [Span(origin, 1, end) for origin, (end, _) in ends_of(heads).items() if end], peer=peer)
    if heads_here(log) != heads:
        _logger.warning("the snapshots of the peer are not used: it did not send the events that they cover")
        return []
    return [_adopt(log, statement, by, rows) for statement, by, rows in found if rows.heads == heads]


def check_by_replay(log: Log, used: list[Used], *, sample: int | None = SAMPLE) -> list[Used]:
    """Derive some keys of each snapshot again from the events. A snapshot that is wrong is removed, and its view is
    derived from the events."""
    return [_checked(log, one, sample) for one in used]


def _checked(log: Log, one: Used, sample: int | None) -> Used:
    snapshots, live = views_of(log).snapshots, live_view(log, one.view)
    verdicts = [found for found in check_all(snapshots, live, sample=sample) if found.position == one.position]
    wrong = next((found for found in verdicts if not found.ok), None)
    if wrong is not None:
        snapshots.folder.remove([snapshots.folder.find(wrong.id)])
        live.rebuild()
        _logger.warning(
            "the snapshot of %s that %s signed does not follow from the events; it was removed, and the view is"
            " derived from the events",
            one.view,
            ", ".join(one.signed_by),
        )
    replayed = sum(found.replayed for found in verdicts)
    return msgspec.structs.replace(one, replayed=replayed, ok=wrong is None)


def _rows(node: Node, ask: Ask, statement: Statement) -> Rows | None:
    """Fetch the rows of a view, part by part; None if the peer has them no more, or they are not what was signed."""
    body = b""
    while True:
        wanted = SharedViews(community_id=node.log_id, wants=statement.rows, offset=len(body))
        part = decode(ask(VIEWS, encode(wanted)), SharedViews)
        body += part.body
        if len(body) >= part.size or not part.body or part.size > BODY_BYTES_MAX:
            break
    if not body:
        return None
    try:
        return rows_of_body(body, statement)
    except EverlogError as error:
        _logger.warning("the snapshot of %s is not used: %s", statement.view, error)
        return None


def _adopt(log: Log, statement: Statement, by: list[str], rows: Rows) -> Used:
    view = log.view(statement.view).view
    texts = {key: bytes(text) for key, text in rows.rows.items()}
    entry = views_of(log).snapshots.adopt(view, texts, reason="joined")
    return Used(view=statement.view, keys=len(texts), signed_by=by, position=entry.position)
