"""Cosigning: a node vouches that a log only ever grew, as far as it has seen checkpoints of that log."""

from __future__ import annotations

from collections.abc import Sequence

from everlog.core.merkle import is_consistent
from everlog.errors import HistoryChanged, NotFound
from everlog.trust.keys import PrivateKey
from everlog.trust.notes import Note, cosign, parse_checkpoint, who_signed


def cosign_checkpoint(new: Note, *, seen: Note | None, proof: Sequence[bytes], key: PrivateKey, now_s: int) -> Note:
    """Return a checkpoint with the cosignature of this key, after it was checked.

    The log must have signed it, and its tree must continue that of `seen`, the last checkpoint of the same log that
    this node has seen. The caller keeps the result as the next `seen`.
    """
    checkpoint = parse_checkpoint(new.text)
    if not who_signed(new).by:
        raise NotFound(
            f"the checkpoint of {checkpoint.origin} is not signed by its log",
            why="a cosignature confirms what a log claims, and an unsigned claim is nobody's",
            hint="everlog checkpoint in a signed log writes one that is signed",
        )
    if seen is not None:
        before = parse_checkpoint(seen.text)
        if before.origin != checkpoint.origin:
            raise ValueError(f"the checkpoint that was seen is of {before.origin}")
        if not is_consistent(before.size, before.root, checkpoint.size, checkpoint.root, proof):
            raise HistoryChanged(
                f"the tree of {checkpoint.origin} with {checkpoint.size} leaves does not continue the one with"
                f" {before.size} that was seen before",
                why="the log was cut or changed, or shows different histories to different readers, or the proof is"
                " missing",
                hint="keep both checkpoints: together they prove it",
            )
    return cosign(new, key, now_s)
