-- One write, in the order in which its parts are sent.

-- Whoever has this row writes; everybody else waits here. It is locked before any position is given, and let go of by
-- the commit, so that positions are in the order of commits. Waiting for it gives the newest state, not an older one.
-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: take_lock
SELECT head, clock, tableoid FROM state FOR UPDATE

-- Before the first event of this log on a connection: a log that was put back takes a new origin.
-- name: settle
SELECT settle(%(origin)s)

-- name: continue_as
SELECT continue_as(%(origin)s)

-- name: identity
SELECT log_id, origin, epoch, created_us, former, heads FROM identity

-- name: last_sequences
SELECT asked, greatest(
    (SELECT max(sequence) FROM events WHERE stream = asked),
    (SELECT max(sequence) FROM purges WHERE stream = asked),
    0
) FROM unnest(%(streams)s::text[]) AS asked

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

-- Runs of chains, and forks: those have no first number.
-- name: chains
SELECT origin, first, previous, origin_seq, hash, position FROM chains WHERE origin = ANY(%(origins)s::text[])
UNION ALL SELECT origin, 0, '', origin_seq, hash, position FROM forks WHERE origin = ANY(%(origins)s::text[])
ORDER BY first, position

-- name: purgeable
SELECT position, sequence, header FROM events WHERE stream = %(stream)s ORDER BY sequence

-- name: copy_events
COPY events (position, sequence, received_us, id, stream, type, scope, header, payload, salt, signature, path,
    erased_by)
FROM STDIN (FORMAT binary)

-- The events of a usual write. A trigger looks at them, and moves the head, the clock and the ends of chains.
-- name: insert_events
INSERT INTO events (position, sequence, received_us, id, stream, type, scope, header, payload, salt, signature, path,
    erased_by)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
    $9::text[], $10::bytea[], $11::bytea[], $12::bytea[], $13::text[])

-- name: claim
SELECT claim($1::uuid[], $2::int8[], $3::int4[], $4::int8)

-- name: move_clock
SELECT move_clock($1::int8)

-- name: sign_groups
SELECT sign_groups($1::int8[], $2::int4[], $3::bytea[])

-- name: erase
SELECT erase(%(ids)s::uuid[], %(allowed_by)s::text[])

-- What a copy brings is written by the owner, as it stands.
-- name: place_groups
INSERT INTO groups (first, origin, first_seq, count, signature) VALUES (%s, %s, %s, %s, %s)

-- name: place_purges
INSERT INTO purges (reserved, stream, scopes, actor, reason, purged_us, sequence, count)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)

-- name: place_purged
INSERT INTO purged (position, sequence, id, origin, origin_seq, hash, previous, lamport, reserved, hash_format)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: set_head
UPDATE state SET head = %(head)s

-- name: purge
SELECT reserved, sequence, count FROM purge_some(%(stream)s, %(ids)s::uuid[], %(actor)s, %(reason)s, %(now)s)

-- The chains of a copy in which purged events are: the events alone would leave holes. Only the owner may.
-- name: forget_chains
WITH gone AS (DELETE FROM forks WHERE origin = ANY(%(origins)s::text[]))
DELETE FROM chains WHERE origin = ANY(%(origins)s::text[])

-- name: place_chains
INSERT INTO chains (origin, first, previous, origin_seq, hash, position) VALUES (%s, %s, %s, %s, %s, %s)

-- name: place_forks
INSERT INTO forks (origin, origin_seq, hash, position) VALUES (%s, %s, %s, %s)

-- name: forget_claims
SELECT forget_claims(%(limit)s, %(before)s)

-- name: keep_notes
SELECT keep_notes(%(keys)s::text[], %(values)s::bytea[], %(ends)s::int8[])

-- name: forget_notes
SELECT forget_notes(%(now)s)

-- name: commit
COMMIT

-- After a connection was lost during a commit: with the lock taken, the lost transaction has ended one way or the other.
-- name: is_recorded
SELECT id FROM events WHERE position = %(position)s
