"""What nodes sign about a view: with these events, its rows are these. The same text on every node that agrees.

    everlog view 1
    01K9…                              the log
    market.board 2                     the view and its version
    5a0c… 91fe…                        the code of the view, and how its events are read
    3b77…                              SHA-256 of the heads: the end of every chain (`everlog heads`)
    c81d…                              SHA-256 of the rows

A node that joins uses the rows only if enough of the keys that it trusts have signed this text.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from everlog.errors import BadFile, InvalidField
from everlog.trust.keys import PrivateKey, is_key, key_of
from everlog.trust.notes import ED25519, Note, Verifier, sign

_FIRST = "everlog view 1"


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a view with the events up to these heads."""

    log_id: str
    view: str
    version: int
    code: str
    catalog: str
    heads: str
    rows: str

    @property
    def text(self) -> str:
        view, code = f"{self.view} {self.version}", f"{self.code} {self.catalog}"
        return "".join(f"{line}\n" for line in (_FIRST, self.log_id, view, code, self.heads, self.rows))


def statement_of(note: Note) -> Statement:
    """Return what a note states; refuse one of another kind."""
    try:
        first, log_id, view, code, heads, rows, end = note.text.split("\n")
        name, version = view.split(" ")
        own, catalog = code.split(" ")
        found = Statement(
            log_id=log_id, view=name, version=int(version), code=own, catalog=catalog, heads=heads, rows=rows
        )
        if first != _FIRST or end or found.text != note.text:
            raise ValueError(first)
    except ValueError as error:
        raise BadFile(
            "this is not a statement about a view", why=str(error)[:80], hint="everlog snapshot share VIEW"
        ) from error
    return found


def signed_by(note: Note, key: PrivateKey) -> Note:
    """Return the note with the signature of a node."""
    return sign(note, key.public.origin, key)


def signers(note: Note) -> set[str]:
    """Return the keys that have signed a note. A signature that is wrong counts for nobody."""
    found = set()
    for one in note.signatures:
        if not is_key(one.name):
            continue
        try:
            verifier = Verifier(one.name, key_of(one.name), ED25519)
        except InvalidField:
            continue
        if verifier.made(one) and verifier.key.origin == one.name and verifier.accepts(note.text, one.signature):
            found.add(one.name)
    return found


def valid_only(note: Note) -> Note:
    """Return the note with the signatures that are right."""
    good = signers(note)
    return Note(note.text, tuple(one for one in note.signatures if one.name in good))


def quorum_of(pinned: Collection[str], quorum: int) -> int:
    """Return how many of the pinned keys must have signed: as many as are set, or a majority."""
    return quorum or len(set(pinned)) // 2 + 1


def has_quorum(note: Note, pinned: Collection[str], quorum: int) -> bool:
    """Return whether enough of the pinned keys have signed a note. Without pinned keys, nobody's word is enough."""
    return bool(pinned) and len(signers(note) & set(pinned)) >= quorum_of(pinned, quorum)
