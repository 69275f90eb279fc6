-- The SQLite form of a log, format 2. One row per group of events that were written together, as JSON text, and a view
-- with one row per event, so that any SQLite client can read every event.

-- One row: the id of the log, the origin that its events carry, and the epoch, which names this copy in cursors.
CREATE TABLE identity (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    log_id     TEXT NOT NULL,
    origin     TEXT NOT NULL,
    epoch      TEXT NOT NULL,
    created_us INTEGER NOT NULL
) STRICT;

-- What a write starts from, updated in the transaction of every write. A log whose last rows were cut off disagrees with
-- this table, and takes no more writes. By name:
--     clock      number: the Lamport clock; position: the head
--     ids        number: the last block in id_blocks; hash: the greatest id so far, as text
--     claims     number: 0 while claims_even is in use, 1 while claims_odd is; position: since when, in microseconds
--     indexed    number: the last position in stream_places and in the tables of claims
--     scrub      number: 1 while purged or erased bytes may still be in the write-ahead log
--     origin ID  number, hash, position: the contiguous end of the origin's chain, the last number with none missing
--                before it; the hash is empty if the first event of the origin is not here
--     chain ID   only of a chain with a hole or a fork: the same number, and in hash the whole chain in MessagePack, an
--                array of runs [first, previous, last, hash, position] and one of forks [number, hash, position]. It
--                counts only if its number is that of "origin ID"
--     identity   hash: of all that identifies the log
--     place      hash: the name of the lock file beside the log, as text
--     former ID  an origin that the log had before it was put back: its number among them, and the head at that moment
CREATE TABLE state (
    name     TEXT PRIMARY KEY,
    number   INTEGER NOT NULL,
    hash     BLOB NOT NULL,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Names that repeat, so that the indexes have small numbers. A family is 0 for streams, 1 for types, 2 for scopes.
CREATE TABLE names (
    name_id INTEGER PRIMARY KEY,
    family  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    UNIQUE (family, name)
) STRICT;

-- The events, in groups of at most 128. Positions `first` to `last` belong to the group; `kept` of them are in `events`,
-- and the others in `purged`. `count` is how many there were before any purge. What all events of a group share is here
-- once: the time of arrival, the origin, the hash before the first event and the hash of the last one (empty if that one
-- was purged before the group was copied here), and perhaps a signature over the root of the tree of its hashes. `events` is a JSON array of
--     [position, sequence, 0, [id, type, version, stream, lamport, "", origin_seq, occurred_at, actor, scope,
--      request_id, causation_id, correlation_id, idempotency_key, tags, commitment, previous, payload, salt]]
-- where null means that the value follows from the group, and bytes are base64. An erased event has three more values:
-- its own signature, its path, and the id of the event that allowed the erasure. The payload is the exact text that was
-- committed to. `claims` are the claims of requests on these events, 28 bytes each (see below).
-- `checksum` is the CRC-32 over the JSON array of all other columns except `events`, in order and without spaces, blobs
-- in base64, followed by the text of `events`. Every read compares it.
CREATE TABLE groups (
    first       INTEGER PRIMARY KEY CHECK (first > 0),
    last        INTEGER NOT NULL,
    kept        INTEGER NOT NULL,
    received_us INTEGER NOT NULL,
    origin      TEXT NOT NULL,
    first_seq   INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    previous    BLOB NOT NULL,
    hash        BLOB NOT NULL,
    signature   BLOB NOT NULL,
    claims      BLOB NOT NULL,
    events      TEXT NOT NULL,
    checksum    INTEGER NOT NULL
) STRICT;

CREATE VIEW events AS SELECT
    json_extract(value, '$[0]') AS position,
    json_extract(value, '$[1]') AS sequence,
    json_extract(value, '$[3][0]') AS id,
    json_extract(value, '$[3][1]') AS type,
    json_extract(value, '$[3][2]') AS version,
    json_extract(value, '$[3][3]') AS stream,
    json_extract(value, '$[3][4]') AS lamport,
    origin,
    json_extract(value, '$[3][6]') AS origin_seq,
    coalesce(json_extract(value, '$[3][7]'), strftime('%Y-%m-%dT%H:%M:%S', received_us / 1000000, 'unixepoch')
        || CASE received_us % 1000000 WHEN 0 THEN 'Z' ELSE printf('.%06dZ', received_us % 1000000) END) AS occurred_at,
    received_us,
    json_extract(value, '$[3][8]') AS actor,
    json_extract(value, '$[3][9]') AS scope,
    json_extract(value, '$[3][10]') AS request_id,
    json_extract(value, '$[3][11]') AS causation_id,
    json_extract(value, '$[3][12]') AS correlation_id,
    json_extract(value, '$[3][13]') AS idempotency_key,
    json_extract(value, '$[3][14]') AS tags,
    json_extract(value, '$[3][17]') AS payload,
    json_extract(value, '$[3][18]') AS salt,
    coalesce(json_extract(value, '$[3][21]'), '') AS erased_by
FROM groups, json_each(groups.events);

-- Where a stream's events are: the index of streams. It is filled a thousand events at a time, because each entry
-- lands on another page; `state` says up to which position ("indexed"), and what comes after is found by a scan.
CREATE TABLE stream_places (
    stream   INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (stream, sequence)
) STRICT, WITHOUT ROWID;

-- Finding an id. Ids that this log makes grow with their positions, so the first id of each block of 128 positions
-- leads to any of them; an index entry for every event would cost a tenth of the whole append. Ids that came from
-- elsewhere, or after the clock was set back, are listed one by one.
CREATE TABLE id_blocks (
    first_id TEXT PRIMARY KEY,
    block    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE id_strays (
    id       TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which types and scopes occur in which block of 128 positions. An index entry for every event would cost as much as
-- the event itself; a mark for every block costs almost nothing and leads a reader with rare matches to them.
CREATE TABLE marks (
    family  INTEGER NOT NULL,
    name_id INTEGER NOT NULL,
    block   INTEGER NOT NULL,
    PRIMARY KEY (family, name_id, block)
) STRICT, WITHOUT ROWID;

-- The record of each purge: the position that it took for itself, a JSON array of the scopes that the removed events were
-- in, the last sequence of the stream, after which it continues, and how many events were removed.
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
-- and the chain holds. `hash_format` is 1 if it was removed in format 1.
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
-- operation and idempotency key with a NUL character between them, the position of the first of its events (8 bytes,
-- big-endian) and how many there are (4). Of two claims of one name the one with the higher position counts. It is first stored with the group of that event, and copied here with the index of streams: a thousand claims are
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

-- Small state that commits with the events, in JSON: responses to requests under a key ("key/…"), refusals ("refusal/…"),
-- their number per actor and minute ("refused/…"), cursors. NULL never expires.
CREATE TABLE notes (
    key        TEXT PRIMARY KEY,
    value      TEXT NOT NULL,
    expires_us INTEGER
) STRICT, WITHOUT ROWID;

-- Nobody rewrites history (G9). A group is never deleted. Its text changes in two ways only: a record goes when its
-- place is already on record as purged, and an erased record loses its payload and salt, and gets its commitment and the
-- id of the event that allowed it.
CREATE TRIGGER groups_are_not_deleted BEFORE DELETE ON groups BEGIN
    SELECT RAISE(ABORT, 'everlog: events are never deleted; see everlog purge');
END;
CREATE TRIGGER groups_are_not_changed BEFORE UPDATE ON groups
WHEN NEW.first IS NOT OLD.first OR NEW.last IS NOT OLD.last OR NEW.received_us IS NOT OLD.received_us
    OR NEW.origin IS NOT OLD.origin OR NEW.first_seq IS NOT OLD.first_seq OR NEW.count IS NOT OLD.count
    OR NEW.previous IS NOT OLD.previous OR NEW.hash IS NOT OLD.hash OR NEW.signature IS NOT OLD.signature
    OR NEW.claims IS NOT OLD.claims OR NEW.events IS OLD.events OR NEW.kept IS NOT json_array_length(NEW.events)
BEGIN
    SELECT RAISE(ABORT, 'everlog: events are never changed');
END;
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON groups
WHEN EXISTS (
    SELECT 1 FROM (
        SELECT value AS was, json_extract(value, '$[0]') AS position FROM (
            SELECT value FROM json_each(OLD.events) EXCEPT SELECT value FROM json_each(NEW.events))
    ) LEFT JOIN (
        SELECT value AS became, json_extract(value, '$[0]') AS position FROM (
            SELECT value FROM json_each(NEW.events) EXCEPT SELECT value FROM json_each(OLD.events))
    ) USING (position)
    WHERE CASE WHEN became IS NULL THEN position NOT IN (SELECT position FROM purged)
    ELSE json_remove(became, '$[3][21]', '$[3][20]', '$[3][19]', '$[3][18]', '$[3][17]', '$[3][15]')
            IS NOT json_remove(was, '$[3][21]', '$[3][20]', '$[3][19]', '$[3][18]', '$[3][17]', '$[3][15]')
        OR json_extract(became, '$[3][17]') IS NOT '{}' OR json_extract(became, '$[3][18]') IS NOT ''
        OR json_extract(was, '$[3][18]') IS '' OR length(json_extract(became, '$[3][15]')) IS NOT 44
        OR json_extract(became, '$[3][19]') IS NOT coalesce(json_extract(was, '$[3][19]'), '')
        OR json_extract(became, '$[3][20]') IS NOT coalesce(json_extract(was, '$[3][20]'), '[]')
        OR coalesce(json_extract(became, '$[3][21]'), '') = ''
    END)
    -- No record is new: what is left over are the old ones, less those that are purged.
    OR (SELECT count(*) FROM json_each(NEW.events)) IS NOT (SELECT count(*) FROM json_each(OLD.events)
        WHERE json_extract(value, '$[0]') NOT IN (SELECT position FROM purged))
BEGIN
    SELECT RAISE(ABORT, 'everlog: events are never changed');
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
