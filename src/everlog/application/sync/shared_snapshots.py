"""Snapshots of views between nodes: one node shares its rows, others sign that theirs are the same.

    shared/VIEW     beside the events: the signed statement, its heads, and the snapshot that has the rows

Only a view in causal order has the same rows on every node. One that reads personal fields is not shared: its rows
have values for which a reader may lack the keys.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Iterable
from hashlib import sha256

import msgspec

from everlog.core.canonical import canonical
from everlog.errors import BadFile, Conflict, Damaged, EverlogError, NotFound
from everlog.log.log import Log
from everlog.stores.identity import no_key
from everlog.stores.small_state import NOTES, read_note, read_notes
from everlog.sync.holdings import chains_that_count
from everlog.sync.wire import SHARED_MAX
from everlog.trust.keys import is_key
from everlog.trust.notes import Note, heads_text, parse_note
from everlog.trust.shared import Statement, signed_by, signers, statement_of, valid_only
from everlog.views.builds.fingerprint import catalog_fingerprint, code_fingerprint, is_code_of
from everlog.views.registry import live_view, views_of
from everlog.views.view import Order, View

_PREFIX = "shared/"
_TRIES = 3


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about a view, as a node keeps it."""

    note: str
    heads: str
    snapshot: str

    @property
    def parsed(self) -> Note:
        return parse_note(self.note.encode())


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a view as they travel, with the heads that they are about."""

    heads: str
    rows: dict[str, msgspec.Raw]


_shared = msgspec.json.Decoder(Shared)
_rows = msgspec.json.Decoder(Rows)


def share(log: Log, name: str) -> Shared:
    """Save a snapshot of a view, and sign what it states, so that nodes that join can use it."""
    live = live_view(log, name)
    _require_shareable(log, live.view)
    for _ in range(_TRIES):
        entry = views_of(log).snapshots.create(live, full=True, reason="shared")
        heads = _heads(log)
        loaded = views_of(log).snapshots.folder.load(entry)
        if loaded.body["letters"] or loaded.header.stopped_at:
            raise Conflict(
                f"the view {name} could not apply every event",
                why="its rows may differ from those of other nodes",
                hint=f"everlog views dead-letters {name}",
                view=name,
            )
        if entry.position == log.head() and heads == _heads(log):
            statement = _statement(log, live.view, heads, loaded.body["rows"])
            return _keep(log, Note(statement.text), heads=heads, snapshot=entry.id)
    raise Conflict(f"no snapshot of {name} was shared", why="the log grew all the time", hint="try once more")


def shared_views(log: Log) -> dict[str, Shared]:
    """Return what this node shares, by view."""
    notes = read_notes(log.writer.small_state, _PREFIX)
    return {key.removeprefix(_PREFIX): _shared.decode(text) for key, text in sorted(notes.items())}


class SharedView(msgspec.Struct, frozen=True, kw_only=True):
    """What a node shares of a view, for people."""

    view: str
    rows: str
    heads: str
    signed_by: list[str]


def described(one: Shared) -> SharedView:
    statement = statement_of(one.parsed)
    return SharedView(
        view=statement.view, rows=statement.rows, heads=statement.heads, signed_by=sorted(signers(one.parsed))
    )


class Shelf:
    """What one node shares, for its peers: see `everlog.sync.exchange`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def notes(self) -> list[str]:
        return [one.note for one in shared_views(self._log).values()][:SHARED_MAX]

    def body(self, rows: str) -> bytes:
        """Return the rows with this hash, and their heads; nothing if they are not here any more."""
        for one in shared_views(self._log).values():
            if statement_of(one.parsed).rows == rows:
                return self._body(one)
        return b""

    def _body(self, one: Shared) -> bytes:
        snapshots = views_of(self._log).snapshots
        try:
            loaded = snapshots.folder.load(snapshots.folder.find(one.snapshot))
        except (NotFound, Damaged):
            return b""  # it was thinned out, or removed with a stream that was purged
        if snapshots.purged(loaded):
            return b""
        return _body_bytes(one.heads, loaded.body["rows"])

    def take(self, notes: Iterable[str]) -> bool:
        """Take over signatures of statements that are the same here, and sign those that this node agrees with.

        Return whether something is new.
        """
        changed = False
        for text in list(notes)[:SHARED_MAX]:
            try:
                theirs = valid_only(parse_note(text.encode()))
                changed |= self._take(theirs, statement_of(theirs))
            except BadFile:
                continue
        return changed

    def _take(self, theirs: Note, statement: Statement) -> bool:
        text = read_note(self._log.writer.small_state, _PREFIX + statement.view)
        if text is None:  # this node does not share that view
            return False
        ours = _shared.decode(text)
        if ours.parsed.text != theirs.text and statement.heads == _hash(_heads(self._log).encode()):
            try:
                ours = share(self._log, statement.view)  # at the same heads: are the rows the same, too?
            except EverlogError:
                return False
        if ours.parsed.text != theirs.text or signers(theirs) <= signers(ours.parsed):
            return False
        merged = ours.parsed
        for one in theirs.signatures:
            merged = merged.with_signature(one)
        _put(self._log, statement.view, msgspec.structs.replace(ours, note=str(merged)))
        return True


# ---- for a node that joins


def usable(log: Log, notes: Iterable[str], trusted: Collection[str]) -> list[tuple[Note, Statement]]:
    """Return the statements that concern this log, and views that its code derives in the same way."""
    found = []
    for text in list(notes)[:SHARED_MAX]:
        try:
            note = parse_note(text.encode())
            statement = statement_of(note)
            view = log.view(statement.view).view
            _require_shareable(log, view, signed=False)
        except EverlogError:
            continue
        same_code = statement.version == view.version and is_code_of(view, statement.code)
        same = same_code and statement.catalog == catalog_fingerprint(log.catalog, view)
        if same and statement.log_id == log.identity.log_id and signers(note).intersection(trusted):
            found.append((note, statement))
    return found


def rows_of_body(body: bytes, statement: Statement) -> Rows:
    """Return the rows that a peer sent, if they are those that were signed."""
    try:
        found = _rows.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadFile("the rows of a snapshot cannot be read", why=str(error)[:200], hint="join again") from error
    rows = {key: bytes(text) for key, text in found.rows.items()}
    if _hash(found.heads.encode()) != statement.heads or _hash_of_rows(rows) != statement.rows:
        raise BadFile(
            "the rows of a snapshot are not those that were signed",
            why="their hash, or that of their heads, differs",
            hint="everlog peers list; the views are derived from the events",
        )
    return found


def ends_of(heads: str) -> dict[str, tuple[int, bytes]]:
    """Return the ends of chains that heads name: the number and the hash of each."""
    found: dict[str, tuple[int, bytes]] = {}
    try:
        for line in heads.splitlines()[2:]:
            origin, number, text = line.split(" ")
            found[origin] = (int(number), b"" if text == "-" else b64decode(text, validate=True))
    except ValueError as error:
        raise BadFile("the heads of a snapshot cannot be read", why=str(error)[:80], hint="join again") from error
    return found


def heads_here(log: Log) -> str:
    """Return the heads of a log as a statement has them."""
    return _heads(log)


# ---- inside


def _require_shareable(log: Log, view: View, *, signed: bool = True) -> None:
    if signed and not is_key(log.identity.origin):
        raise no_key(log.identity.origin)
    personal = log.catalog.personal_fields()
    if view.order is not Order.CAUSAL:
        raise Conflict(
            f"the view {view.name} is not shared",
            why="it applies events in the order in which they arrived here, so its rows differ from node to node",
            hint="share a view in causal order; everlog views list",
            view=view.name,
        )
    if personal and (not view.types or not personal.keys().isdisjoint(view.types)):
        raise Conflict(
            f"the view {view.name} is not shared",
            why="it reads personal fields, and its rows may have values that others must not see",
            hint="share a view without personal fields",
            view=view.name,
        )


def _heads(log: Log) -> str:
    chains = chains_that_count(log)
    whole = [origin for origin, chain in chains.items() if not chain.simple]
    if whole:
        raise Conflict(
            "no snapshot can be shared",
            why=f"the chain of {whole[0]} has a hole or a fork here, so its end does not name all of its events",
            hint="everlog sync fetches what is missing",
        )
    return heads_text(log.identity.log_id, chains)


def _statement(log: Log, view: View, heads: str, rows: dict[str, bytes]) -> Statement:
    return Statement(
        log_id=log.identity.log_id,
        view=view.name,
        version=view.version,
        code=code_fingerprint(view),
        catalog=catalog_fingerprint(log.catalog, view),
        heads=_hash(heads.encode()),
        rows=_hash_of_rows(rows),
    )


def _keep(log: Log, note: Note, *, heads: str, snapshot: str) -> Shared:
    """Sign a statement and keep it, with the signatures that it has already."""
    key = log.signing_key()
    if key is None:
        raise no_key(log.identity.origin)
    view = statement_of(note).view
    text = read_note(log.writer.small_state, _PREFIX + view)
    before = None if text is None else _shared.decode(text).parsed
    if before is not None and before.text == note.text:
        note = before
    shared = Shared(note=str(signed_by(note, key)), heads=heads, snapshot=snapshot)
    _put(log, view, shared)
    return shared


def _put(log: Log, view: str, shared: Shared) -> None:
    log.writer.write(lambda write: write.put(NOTES, {_PREFIX + view: msgspec.json.encode(shared)}))


def _body_bytes(heads: str, rows: dict[str, bytes]) -> bytes:
    return msgspec.json.encode(Rows(heads=heads, rows={key: msgspec.Raw(text) for key, text in rows.items()}))


def _hash_of_rows(rows: dict[str, bytes]) -> str:
    return _hash(canonical({key: sha256(text).hexdigest() for key, text in rows.items()}))


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()
