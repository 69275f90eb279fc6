-- The SQLite form of a log, format 2. One row an event; its header and payload are the exact bytes that were
-- hashed and committed to, as text, so that any SQLite client can read and check them.

CREATE TABLE identity (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    log_id     TEXT NOT NULL,
    origin     TEXT NOT NULL,
    epoch      TEXT NOT NULL,
    created_us INTEGER NOT NULL
) STRICT;

-- What a write starts from, updated in the transaction of every write: the clock, and the end of each origin's
-- chain with its place. A log whose last rows were cut off disagrees with this table, and takes no more writes.
CREATE TABLE state (
    name     TEXT PRIMARY KEY,
    number   INTEGER NOT NULL,
    hash     BLOB NOT NULL,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Names that repeat (streams, types, scopes), so that a row carries small numbers.
CREATE TABLE names (
    name_id INTEGER PRIMARY KEY,
    family  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    UNIQUE (family, name)
) STRICT;

CREATE TABLE events (
    position    INTEGER PRIMARY KEY CHECK (position > 0),
    stream      INTEGER NOT NULL,
    sequence    INTEGER NOT NULL,
    type        INTEGER NOT NULL,
    scope       INTEGER NOT NULL,
    received_us INTEGER NOT NULL,
    header      TEXT NOT NULL,
    payload     TEXT NOT NULL,
    salt        BLOB NOT NULL,
    claim       BLOB
) STRICT;

-- Signatures, apart: an unsigned log pays nothing for them.
CREATE TABLE proofs (
    position  INTEGER PRIMARY KEY,
    signature BLOB NOT NULL,
    path      BLOB NOT NULL
) STRICT;

-- Where a stream's events are: the index of streams. It is filled a thousand events at a time, because each entry
-- lands on a page of its own; `state` says up to which position ("indexed"), and what comes after is found by a scan.
CREATE TABLE stream_places (
    stream   INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (stream, sequence)
) STRICT, WITHOUT ROWID;

-- Finding an id. Ids that this log makes grow with their positions, so the first id of each block of 128 positions
-- leads to any of them; an index entry for every event would cost a tenth of the whole append. Ids that came from
-- elsewhere, or after the clock was set back, are listed one by one. The id itself is the first element of the
-- header: ["01K…26 characters…".
CREATE TABLE id_blocks (
    first_id TEXT PRIMARY KEY,
    block    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE id_strays (
    id       TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which types and scopes occur in which block of 128 positions. An index entry for every event would cost as much as
-- the event's own row; a mark for every block costs almost nothing and leads a reader with rare matches to them.
CREATE TABLE marks (
    family  INTEGER NOT NULL,
    name_id INTEGER NOT NULL,
    block   INTEGER NOT NULL,
    PRIMARY KEY (family, name_id, block)
) STRICT, WITHOUT ROWID;

CREATE TABLE purges (
    reserved  INTEGER PRIMARY KEY,
    stream    TEXT NOT NULL,
    scopes    TEXT NOT NULL,
    actor     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    purged_us INTEGER NOT NULL,
    sequence  INTEGER NOT NULL,
    count     INTEGER NOT NULL
) STRICT;
CREATE INDEX purges_by_stream ON purges (stream);

-- What stays of a purged event: its place, its hash and the hash before it, so that every position is accounted for
-- and the chain holds.
CREATE TABLE purged (
    position   INTEGER PRIMARY KEY,
    sequence   INTEGER NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    origin     TEXT NOT NULL,
    origin_seq INTEGER NOT NULL,
    hash       BLOB NOT NULL,
    previous   BLOB NOT NULL,
    lamport    INTEGER NOT NULL,
    reserved   INTEGER NOT NULL,
    hash_format INTEGER NOT NULL
) STRICT;

-- Which request made which events. A claim is 28 bytes: the name, which is 16 bytes of a hash over scope, actor,
-- operation and idempotency key, the position of the first of its events (8 bytes, big-endian) and how many there are
-- (4). It is first stored in the column of that event, and moved here with the index of streams: a thousand claims are
-- one row, later sorted by the first byte of their names into 256 drawers. A place is the drawer's number (256: not
-- sorted yet) times 2^32, and which of its rows. The two tables take turns, so that the older half can be forgotten at
-- once.
CREATE TABLE claims_even (
    place  INTEGER PRIMARY KEY,
    claims BLOB NOT NULL
) STRICT;
CREATE TABLE claims_odd (
    place  INTEGER PRIMARY KEY,
    claims BLOB NOT NULL
) STRICT;

-- Small state that commits with the events: responses to requests, refusals, cursors.
CREATE TABLE notes (
    key        TEXT PRIMARY KEY,
    value      TEXT NOT NULL,
    expires_us INTEGER
) STRICT, WITHOUT ROWID;

-- Nobody rewrites history (G9). The one door is a purge: a row may go only when its place is already on record.
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'everlog: events are never changed');
END;
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM purged WHERE purged.position = OLD.position) BEGIN
    SELECT RAISE(ABORT, 'everlog: events are never deleted; see everlog purge');
END;
CREATE TRIGGER purged_is_not_changed BEFORE UPDATE ON purged BEGIN
    SELECT RAISE(ABORT, 'everlog: the record of a purge is never changed');
END;
CREATE TRIGGER purged_is_not_deleted BEFORE DELETE ON purged BEGIN
    SELECT RAISE(ABORT, 'everlog: the record of a purge is never deleted');
END;
CREATE TRIGGER purges_are_not_changed BEFORE UPDATE ON purges BEGIN
    SELECT RAISE(ABORT, 'everlog: the record of a purge is never changed');
END;
CREATE TRIGGER purges_are_not_deleted BEFORE DELETE ON purges BEGIN
    SELECT RAISE(ABORT, 'everlog: the record of a purge is never deleted');
END;
CREATE TRIGGER names_are_not_changed BEFORE UPDATE ON names BEGIN
    SELECT RAISE(ABORT, 'everlog: names are never changed');
END;
CREATE TRIGGER names_are_not_deleted BEFORE DELETE ON names BEGIN
    SELECT RAISE(ABORT, 'everlog: names are never deleted');
END;
