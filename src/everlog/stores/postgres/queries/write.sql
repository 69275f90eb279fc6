-- One write, in the order in which its parts are sent.

-- Whoever has this row writes; everybody else waits here. It is locked before any position is given, and let go of by
-- the commit, so that positions are in the order of commits. Waiting for it gives the newest state, not an older one.
-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: take_lock
SELECT head, clock FROM state FOR UPDATE

-- name: sequence
SELECT greatest(
    (SELECT max(sequence) FROM events WHERE stream = %(stream)s),
    (SELECT max(sequence) FROM purges WHERE stream = %(stream)s)
)

-- name: sequences_since
SELECT stream, max(sequence) FROM (
    SELECT stream, sequence FROM events WHERE position > %(after)s
    UNION ALL SELECT stream, sequence FROM purges WHERE reserved > %(after)s
) AS new GROUP BY stream

-- name: every_sequence
SELECT stream, max(sequence) FROM (
    SELECT stream, sequence FROM events UNION ALL SELECT stream, sequence FROM purges
) AS known GROUP BY stream

-- name: claims_since
SELECT name FROM claims WHERE first > %(after)s

-- name: claim_names
SELECT name FROM claims LIMIT %(limit)s

-- name: link
SELECT origin_seq, hash FROM chains WHERE origin = %(origin)s

-- name: links
SELECT origin, origin_seq, hash FROM chains WHERE origin = ANY(%(origins)s::text[])

-- name: purgeable
SELECT position, sequence, header FROM events WHERE stream = %(stream)s ORDER BY sequence

-- name: copy_events
COPY events (position, sequence, received_us, id, stream, type, scope, header, payload, salt, signature, path)
FROM STDIN (FORMAT binary)

-- name: insert_events
INSERT INTO events (position, sequence, received_us, id, stream, type, scope, header, payload, salt, signature, path)
SELECT * FROM unnest(%b::int8[], %b::int8[], %b::int8[], %b::uuid[], %b::text[], %b::text[], %b::text[], %b::text[],
    %b::text[], %b::bytea[], %b::bytea[], %b::bytea[])

-- name: insert_event
INSERT INTO events (position, sequence, received_us, id, stream, type, scope, header, payload, salt, signature, path)
VALUES (%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b)

-- name: set_clock
UPDATE state SET clock = %(clock)s

-- name: set_link
INSERT INTO chains VALUES (%(origin)s, %(origin_seq)s, %(hash)s, %(position)s)
ON CONFLICT (origin) DO UPDATE
SET origin_seq = excluded.origin_seq, hash = excluded.hash, position = excluded.position

-- name: place_purges
INSERT INTO purges (reserved, stream, scopes, actor, reason, purged_us, sequence, count)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)

-- name: place_purged
INSERT INTO purged (position, sequence, id, origin, origin_seq, hash, previous, reserved)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)

-- name: set_head
UPDATE state SET head = %(head)s

-- name: purge
SELECT reserved, sequence, count FROM purge(%(stream)s, %(actor)s, %(reason)s, %(now)s)

-- name: insert_claims
INSERT INTO claims
SELECT name, first, count, %(now)s
FROM unnest(%(names)s::uuid[], %(firsts)s::int8[], %(counts)s::int4[]) AS new (name, first, count)
ON CONFLICT (name) DO UPDATE SET first = excluded.first, count = excluded.count, made_us = excluded.made_us

-- name: forget_claims
DELETE FROM claims WHERE name IN (
    SELECT name FROM (SELECT name, made_us FROM claims ORDER BY first LIMIT %(limit)s) AS oldest
    WHERE made_us < %(before)s
)

-- name: set_notes
INSERT INTO notes
SELECT * FROM unnest(%(keys)s::text[], %(values)s::bytea[], %(ends)s::int8[])
ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_us = excluded.expires_us

-- name: remove_notes
DELETE FROM notes WHERE key = ANY(%(keys)s::text[])

-- name: forget_notes
DELETE FROM notes WHERE expires_us <= %(now)s

-- name: commit
COMMIT

-- After a connection was lost during a commit: with the lock taken, the lost transaction has ended one way or the other.
-- name: is_recorded
SELECT id FROM events WHERE position = %(position)s
