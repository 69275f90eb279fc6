-- The index of a JSONL log: where each line stands, which position it has, and what filters ask for. Derived from the
-- day files, but for the positions of what a merge brought: those are this copy's own order of arrival.
CREATE TABLE about (
    epoch  TEXT NOT NULL,
    format INTEGER NOT NULL,
    origin TEXT NOT NULL,
    branch TEXT NOT NULL,
    clock  INTEGER NOT NULL
) STRICT;
CREATE TABLE files (
    file       INTEGER PRIMARY KEY AUTOINCREMENT,  -- a number never comes to mean another file
    name       TEXT NOT NULL UNIQUE,
    size       INTEGER NOT NULL,  -- how far it was read
    changed_ns INTEGER NOT NULL,
    inode      INTEGER NOT NULL,
    checksum   INTEGER NOT NULL   -- CRC-32 of these bytes: whether the file has only grown since
) STRICT;
CREATE TABLE names (
    name_id INTEGER PRIMARY KEY,
    family  INTEGER NOT NULL,     -- 0 stream, 1 type, 2 scope
    name    TEXT NOT NULL,
    UNIQUE (family, name)
) STRICT;
CREATE TABLE events (
    position    INTEGER PRIMARY KEY,
    file        INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    size        INTEGER NOT NULL,
    stream      INTEGER NOT NULL,
    sequence    INTEGER NOT NULL,
    type        INTEGER NOT NULL,
    scope       INTEGER,          -- NULL: none
    received_us INTEGER NOT NULL,
    crc         INTEGER NOT NULL  -- the line's checksum: whether the line at this place is still the same
) STRICT;
-- An id is 16 bytes; that of a line whose id is no ULID is text.
CREATE TABLE ids (
    id       ANY PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- Events that were here and are in no file any more, and not by git: damage.
CREATE TABLE missing (
    position INTEGER PRIMARY KEY,
    stream   INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    id       TEXT NOT NULL UNIQUE,
    name     TEXT NOT NULL,       -- the day file that it was in
    at       INTEGER NOT NULL
) STRICT;
CREATE TABLE purged (
    position   INTEGER PRIMARY KEY,
    sequence   INTEGER NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    origin     TEXT NOT NULL,
    origin_seq INTEGER NOT NULL,
    hash       BLOB NOT NULL,
    previous   BLOB NOT NULL,
    lamport    INTEGER NOT NULL,
    hash_format INTEGER NOT NULL,
    purge      TEXT NOT NULL,
    stream     INTEGER NOT NULL
) STRICT;
CREATE TABLE purges (
    reserved  INTEGER PRIMARY KEY,
    purge     TEXT NOT NULL UNIQUE,
    stream    TEXT NOT NULL,
    scopes    TEXT NOT NULL,
    actor     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    purged_us INTEGER NOT NULL,
    sequence  INTEGER NOT NULL
) STRICT;
CREATE TABLE claims (
    name  BLOB PRIMARY KEY,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- The contiguous end of each origin's chain. `chain` is the whole of it, as MessagePack, if anything lies beyond a hole or
-- it is forked.
CREATE TABLE chains (
    origin   TEXT PRIMARY KEY,
    number   INTEGER NOT NULL,
    hash     BLOB NOT NULL,
    position INTEGER NOT NULL,
    chain    BLOB
) STRICT, WITHOUT ROWID;
-- Signatures of groups, and where the line stands that has each of them.
CREATE TABLE groups (
    origin    TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    signature BLOB NOT NULL,
    position  INTEGER NOT NULL,
    PRIMARY KEY (origin, first_seq)
) STRICT, WITHOUT ROWID;
-- Lines that cannot be read, set aside where they stand. Such a line takes a position, at which every read stops, unless
-- it stands in the place of an event that is missing.
CREATE TABLE bad_lines (
    file     INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    code     TEXT NOT NULL,
    reason   TEXT NOT NULL,
    position INTEGER NOT NULL,    -- 0: none
    PRIMARY KEY (file, at)
) STRICT, WITHOUT ROWID;
