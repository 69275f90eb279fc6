-- Reading. {events}, {purged} and {purges} are the tables, or what a tenant may see of them; {where} and {order} are
-- other parts of this file.

-- The last one: whether there is any signed group, whose signature the events do not have themselves.
-- name: columns
position, sequence, received_us, header, payload, salt, signature, path, erased_by, EXISTS (SELECT FROM groups)

-- name: by_position
SELECT {columns} FROM {events} WHERE position > %(after)s AND position <= %(upto)s {where}
ORDER BY position {order} LIMIT %(limit)s

-- name: by_stream
SELECT {columns} FROM {events}
WHERE stream = %(stream)s AND sequence > %(low)s AND sequence < %(high)s
    AND position > %(after)s AND position <= %(upto)s {where}
ORDER BY sequence {order} LIMIT %(limit)s

-- Each type's own part of the index is in the order of positions already: of each so many, and the first of all.
-- name: by_type
SELECT found.* FROM unnest(%(types)s::text[]) AS wanted, LATERAL (
    SELECT {columns} FROM {events}
    WHERE type = wanted AND position > %(after)s AND position <= %(upto)s {where}
    ORDER BY position {order} LIMIT %(limit)s
) AS found
ORDER BY position {order} LIMIT %(limit)s

-- The scopes that are there, found by stepping from one to the next along the index, and then as with types.
-- name: by_scope
WITH RECURSIVE below(scope) AS (
    (SELECT scope FROM {events} WHERE scope >= %(scope_from)s AND scope < %(scope_to)s AND scope <> ''
     ORDER BY scope LIMIT 1)
    UNION ALL
    SELECT (SELECT scope FROM {events} WHERE scope > below.scope AND scope < %(scope_to)s AND scope <> ''
            ORDER BY scope LIMIT 1)
    FROM below WHERE below.scope IS NOT NULL
)
SELECT found.* FROM (
    SELECT %(scope)s::text COLLATE "C" AS scope UNION ALL SELECT scope FROM below WHERE scope IS NOT NULL
) AS wanted, LATERAL (
    SELECT {columns} FROM {events}
    WHERE scope = wanted.scope AND scope <> '' AND position > %(after)s AND position <= %(upto)s {where}
    ORDER BY position {order} LIMIT %(limit)s
) AS found
ORDER BY position {order} LIMIT %(limit)s

-- What a tenant reads without a filter that leads elsewhere: as with a scope, from each of its own.
-- name: by_own_scopes
WITH RECURSIVE below(top, scope) AS (
    SELECT own_scopes.scope, (
        SELECT scope FROM {events}
        WHERE scope >= own_scopes.scope || '/' AND scope < own_scopes.scope || '0' AND scope <> ''
        ORDER BY scope LIMIT 1)
    FROM own_scopes
    UNION ALL
    SELECT below.top, (
        SELECT scope FROM {events} WHERE scope > below.scope AND scope < below.top || '0' AND scope <> ''
        ORDER BY scope LIMIT 1)
    FROM below WHERE below.scope IS NOT NULL
)
SELECT found.* FROM (
    SELECT scope FROM own_scopes UNION SELECT scope FROM below WHERE scope IS NOT NULL
) AS wanted, LATERAL (
    SELECT {columns} FROM {events}
    WHERE scope = wanted.scope AND scope <> '' AND position > %(after)s AND position <= %(upto)s {where}
    ORDER BY position {order} LIMIT %(limit)s
) AS found
ORDER BY position {order} LIMIT %(limit)s

-- name: and_types
AND type = ANY(%(types)s::text[])

-- name: and_scope
AND (scope = %(scope)s OR (scope >= %(scope_from)s AND scope < %(scope_to)s))

-- name: and_kind
AND stream >= %(kind_from)s AND stream < %(kind_to)s

-- name: and_actor
AND header::json ->> 8 = %(actor)s

-- name: and_correlation
AND header::json ->> 12 = %(correlation)s

-- name: and_since
AND received_us >= %(since)s

-- name: and_until
AND received_us < %(until)s

-- name: by_id
SELECT {columns} FROM {events} WHERE id = %(id)s

-- name: purged_by_id
SELECT hash FROM purged WHERE id = %(id)s

-- name: purged_places
SELECT position, sequence, id, origin, origin_seq, hash, previous, lamport, reserved, hash_format,
    EXISTS (SELECT FROM groups)
FROM {purged}
WHERE position > %(after)s AND position <= %(upto)s ORDER BY position

-- name: signed_groups
SELECT first, first_seq, count, signature, hashes FROM signed_groups(%(places)s::int8[])

-- Where something was purged, or a purge is recorded.
-- name: gone_places
SELECT position FROM purged WHERE position > %(after)s AND position <= %(upto)s
UNION ALL SELECT reserved FROM purges WHERE reserved > %(after)s AND reserved <= %(upto)s

-- name: every_place
SELECT position FROM events WHERE position > %(after)s AND position <= %(upto)s
UNION ALL SELECT position FROM purged WHERE position > %(after)s AND position <= %(upto)s
UNION ALL SELECT reserved FROM purges WHERE reserved > %(after)s AND reserved <= %(upto)s

-- How many positions are an event, a purged place or a purge.
-- name: accounted
SELECT (SELECT count(*) FROM events WHERE position > %(after)s AND position <= %(upto)s)
    + (SELECT count(*) FROM purged WHERE position > %(after)s AND position <= %(upto)s)
    + (SELECT count(*) FROM purges WHERE reserved > %(after)s AND reserved <= %(upto)s)

-- name: head
SELECT head FROM state

-- name: clock
SELECT clock FROM state

-- Runs of chains, and forks: those have no first number.
-- name: every_chain
SELECT origin, first, previous, origin_seq, hash, position FROM chains
UNION ALL SELECT origin, 0, '', origin_seq, hash, position FROM forks
ORDER BY first, position

-- name: purges
SELECT reserved, stream, scopes, actor, reason, purged_us, sequence, count FROM {purges}
WHERE reserved > %(after)s ORDER BY reserved

-- name: claims
SELECT name, first, count FROM claims WHERE name = ANY(%(names)s::uuid[])

-- name: every_claim
SELECT name, first, count FROM claims WHERE name > %(after)s ORDER BY name LIMIT %(limit)s

-- name: every_note
SELECT key, value, expires_us FROM notes
WHERE key > %(after)s AND (expires_us IS NULL OR expires_us > %(now)s) ORDER BY key LIMIT %(limit)s

-- name: noted
SELECT value, expires_us FROM notes WHERE key = %(key)s

-- name: notes
SELECT key, value FROM notes
WHERE key >= %(prefix)s AND key < %(prefix_end)s AND (expires_us IS NULL OR expires_us > %(now)s)
ORDER BY key {order} LIMIT %(limit)s
