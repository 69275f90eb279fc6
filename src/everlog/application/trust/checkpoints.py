"""Checkpoints of a log, and heads of its chains, as signed notes; what of a checkpoint still holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from everlog.application.move_log import output_file
from everlog.core.merkle import node, root
from everlog.errors import BadFile, Damaged, InvalidField, NotFound
from everlog.files import DiskFiles, replace_file
from everlog.log.log import Log
from everlog.stores.contract import Problem
from everlog.stores.small_state import NOTES, read_note
from everlog.sync.holdings import chains_that_count
from everlog.trust.keys import PrivateKey, PublicKey, key_of
from everlog.trust.leaves import leaves
from everlog.trust.notes import (
    NOTE_BYTES_MAX,
    Checkpoint,
    Note,
    Signed,
    heads_text,
    name_of,
    parse_checkpoint,
    parse_name,
    parse_note,
    parse_verifier,
    sign,
    who_signed,
)
from everlog.trust.witness import cosign_checkpoint

_OWN, _SEEN = "checkpoint", "checkpoint-seen "
"""The notes beside a log: the last checkpoint that it made, and the last of each other log that it cosigned."""

UNSIGNED = "this log has no key, so nobody else can check who wrote this; everlog init --signed makes a log with one"


def make_checkpoint(log: Log, key: PrivateKey | None) -> Note:
    """Return a checkpoint of the log as it is now, signed with its key if it has one.

    The last one is kept beside the log. A log never signs a checkpoint that does not continue it.
    """
    head = log.tree.head()
    name = str(name_of(log.identity))
    note = Note(Checkpoint(name, head.size, head.root).text)
    kept = last_checkpoint(log)
    if kept is not None and kept.text == note.text and (kept.signatures or key is None):
        return kept  # with the cosignatures that it got
    if kept is not None:
        before = parse_checkpoint(kept.text)
        if before.origin == name and (before.size > head.size or log.tree.root(before.size) != before.root):
            raise Damaged(
                f"the log does not continue its checkpoint of {before.size} positions",
                why="an event was changed, removed or moved since",
                hint="everlog verify, and restore a backup",
            )
    if key is not None:
        note = sign(note, name, key)
    _keep(log, _OWN, note)
    return note


def last_checkpoint(log: Log) -> Note | None:
    """Return the last checkpoint that this log made, with the cosignatures that it got."""
    return _kept(log, _OWN)


def take_cosigned(log: Log, note: Note) -> Signed:
    """Keep a checkpoint of this log that came back with cosignatures."""
    kept = last_checkpoint(log)
    signed = who_signed(note)
    if kept is None or kept.text != note.text:
        raise NotFound(
            "this is not the last checkpoint of this log",
            why="cosignatures are kept with the checkpoint that they are about",
            hint="everlog checkpoint --out FILE, and have that file cosigned",
        )
    for one in note.signatures:
        kept = kept.with_signature(one)
    _keep(log, _OWN, kept)
    return signed


def cosign_for(log: Log, key: PrivateKey, note: Note, proof: Sequence[bytes], *, now_s: int | None = None) -> Note:
    """Return the checkpoint of another log with the cosignature of this log's key.

    It must continue the last checkpoint of that log that was cosigned here (`seen_size` leaves), which `proof` shows.
    """
    origin = parse_checkpoint(note.text).origin
    seen = _kept(log, _SEEN + origin)
    done = cosign_checkpoint(
        note, seen=seen, proof=proof, key=key, now_s=int(time.time()) if now_s is None else now_s
    )
    _keep(log, _SEEN + origin, done)
    return done


def seen_size(log: Log, origin: str) -> int:
    """Return the size of the last checkpoint of another log that was cosigned here, 0 if there is none."""
    seen = _kept(log, _SEEN + origin)
    return 0 if seen is None else parse_checkpoint(seen.text).size


def _keep(log: Log, name: str, note: Note) -> None:
    log.writer.write(lambda write: write.put(NOTES, {name: str(note).encode()}))


def _kept(log: Log, name: str) -> Note | None:
    text = read_note(log.writer.small_state, name)
    return None if text is None else parse_note(text.encode(), unsigned=True)


# ---- heads


def make_heads(log: Log, key: PrivateKey | None) -> Note:
    """Return every origin with its contiguous end and hash, signed with the key of the log if it has one.

    It is about what counts, so that nodes which differ only in what does not have the same heads.
    """
    note = Note(heads_text(log.identity.log_id, chains_that_count(log)))
    return note if key is None else sign(note, key.public.origin, key)


# ---- checking


class Checked(msgspec.Struct, frozen=True):
    """A checkpoint whose signatures were checked."""

    checkpoint: Checkpoint
    signed: Signed

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "checkpoint": self.checkpoint.size,
            "of": self.checkpoint.origin,
            "root": self.checkpoint.root.hex(),
            "signed_by": self.signed.by or "nobody",
            "cosigned_by": [
                f"{key} at {datetime.fromtimestamp(second, UTC).isoformat()}" for key, second in self.signed.cosigned
            ],
            **({"unknown_signers": list(self.signed.unknown)} if self.signed.unknown else {}),
        }


def read_file(path: Path) -> bytes:
    """Return the content of a note or a proof."""
    files = DiskFiles()
    if not files.exists(path) or path.is_dir():
        raise NotFound(f"there is no file {path}", hint="check the name", path=str(path))
    handle = files.open(path, create=False)
    try:
        data = files.read(handle, NOTE_BYTES_MAX + 1, at=0)
    finally:
        files.close(handle)
    if len(data) > NOTE_BYTES_MAX:
        raise BadFile(f"{path} is too large", why=f"it has more than {NOTE_BYTES_MAX} bytes", hint="check the name")
    return data


def write_file(path: Path, text: str) -> None:
    """Write a note or a proof; the file gets its name when it is complete."""
    replace_file(DiskFiles(), output_file(path, replace=True), text.encode())


def parse_key(text: str) -> PublicKey:
    """Return the key that somebody names: z6Mk…, did:key:…, ssh-ed25519 … or a verifier key of signed notes."""
    return parse_verifier(text).key if text.count("+") >= 2 and not text.startswith("ssh-") else key_of(text)


def check_checkpoint(data: bytes, key: PublicKey | None = None) -> Checked:
    """Check the signatures of a checkpoint. With `key`, the log must have signed it with that key."""
    note = parse_note(data, unsigned=True)
    checkpoint = parse_checkpoint(note.text)
    signed = who_signed(note)
    if key is not None and signed.by != key.origin:
        raise BadFile(
            f"the checkpoint is not signed by {key.origin}",
            why=f"it is signed by {signed.by or 'nobody'}",
            hint="check the key, and where the file comes from",
        )
    return Checked(checkpoint, signed)


def compare_with_log(log: Log, checkpoint: Checkpoint) -> Problem | None:
    """Return how the log differs from a checkpoint; None if it continues it. Every hash is computed again."""
    name, here = parse_name(checkpoint.origin), log.identity
    if name is None or name.log_id != here.log_id:
        raise InvalidField(
            f"the checkpoint is of another log: {checkpoint.origin}",
            why=f"this log has the id {here.log_id}",
            hint="check it against its own log, or without one: everlog -C / verify --checkpoint FILE",
            field="checkpoint",
        )
    head = log.head()
    again = "" if name.epoch == here.epoch else "; the log was restored or renumbered since"
    if checkpoint.size > head:
        reason = f"the checkpoint covers {checkpoint.size} positions, and the log ends at #{head}{again}"
        return Problem(head, "log_cut_off", reason)
    try:
        found = _root_of_events(log, checkpoint.size)
    except Damaged as error:
        return Problem(error.details.get("position", 0), "checkpoint_differs", f"{error.what}: {error.why}")
    if found == checkpoint.root:
        return None
    reason = "an event up to here was changed, removed or moved after the checkpoint was made"
    return Problem(checkpoint.size, "checkpoint_differs", reason + again)  # type: ignore[arg-type]


def _root_of_events(log: Log, size: int) -> bytes:
    """Return the root that the stored events make, without the tiles: these are derived, and prove nothing."""
    whole: list[tuple[int, bytes]] = []  # subtrees, each with its height, the highest first
    for piece in leaves(log.stored, after=0, upto=size):
        for leaf in piece:
            height, hash = 0, leaf
            while whole and whole[-1][0] == height:
                hash = node(whole.pop()[1], hash)
                height += 1
            whole.append((height, hash))
    if not whole:
        return root(())
    found = whole.pop()[1]
    while whole:
        found = node(whole.pop()[1], found)
    return found
