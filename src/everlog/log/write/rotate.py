"""Rotation: a signed log ends its chain with `origin.succeeded`, and continues under another key.

Both happen in one write, so no other writer gets between them: a handle that was open before finds the new origin
when its next write opens. A log whose origin is no key, or whose key is not here, is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from everlog.core.event import Recorded
from everlog.errors import Conflict, NoKey
from everlog.log.write.draft import Draft, Limits
from everlog.log.write.prepare import prepare
from everlog.log.write.writer import Writer
from everlog.stores.contract import Identity
from everlog.stores.open_write import OpenWrite
from everlog.trust.keys import PrivateKey, is_key
from everlog.trust.signer import Signer
from everlog.trust.succession import CATALOG, SUCCEEDED, put_succession, succeeded_by, succession_of


def rotate_key(
    writer: Writer, signer: Signer | None, identity: Callable[[], Identity], *, to: str = "", actor: str
) -> Recorded:
    """End the chain of the log's key, and have the log continue under the key `to`, or a new one."""
    before = identity()
    if signer is None or not is_key(before.origin):
        raise NoKey(
            "this log is not signed, so it has no key to rotate",
            why=f"its origin {before.origin or 'is made with its first event, and'} is not a key",
            hint="everlog config set sign required; the next event is signed, with a new key",
        )
    signer.key(before.origin)  # somebody may have to type a passphrase: before the write opens
    new = signer.key(to or signer.new(0, before=before.origin))
    payload = succeeded_by(before.log_id, before.origin, new)
    draft = Draft(SUCCEEDED, f"origin/{before.origin}", payload)
    prepared = prepare([draft], CATALOG, actor=actor, limits=Limits())

    def work(write: OpenWrite) -> Recorded:
        _refuse_unusable(write, before.origin, new)
        (recorded,) = writer.stamp(prepared, write)
        stated = succession_of(before.log_id, recorded.event)
        assert stated is not None, "both keys signed it"
        put_succession(write, stated)
        write.continue_as(new.public.origin)
        writer.settle(write)
        return recorded

    return writer.write(work, exclusive=True)


def _refuse_unusable(write: OpenWrite, before: str, new: PrivateKey) -> None:
    origin = new.public.origin
    if write.own_origin() != before:
        raise Conflict(
            "the key of this log was changed by another process",
            why=f"it was {before}, and is {write.identity.origin} now",
            hint="everlog keys list; rotate again if that is still wanted",
        )
    if origin == before or write.chain(origin).runs or write.identity.made(origin):
        raise Conflict(
            f"the key {origin} has signed events of this log before",
            why="the log would give their numbers to other events, and the chain would fork",
            hint="everlog keys rotate, which makes a new key",
        )
