-- What views keep.

-- name: may_write
SELECT has_table_privilege('derived', 'SELECT, INSERT') AND has_table_privilege('derived', 'UPDATE')
    AND has_table_privilege('derived', 'DELETE')

-- name: get
SELECT key, value FROM derived WHERE space = %(space)s AND key = ANY(%(keys)s::text[])

-- name: scan
SELECT key, value FROM derived WHERE space = %(space)s AND key > %(after)s ORDER BY key LIMIT %(limit)s

-- name: scan_all
SELECT key, value FROM derived WHERE space = %(space)s ORDER BY key LIMIT %(limit)s

-- name: count
SELECT count(*) FROM derived WHERE space = %(space)s

-- name: clear
DELETE FROM derived WHERE space = ANY(%(spaces)s::text[])

-- name: put
INSERT INTO derived (space, key, value) SELECT %(space)s, * FROM unnest(%(keys)s::text[], %(values)s::bytea[])
ON CONFLICT (space, key) DO UPDATE SET value = excluded.value

-- name: remove
DELETE FROM derived WHERE space = %(space)s AND key = ANY(%(keys)s::text[])

-- name: put_texts
UPDATE derived SET part = given.part, title = array_to_tsvector(string_to_array(given.title, ' ')),
    body = array_to_tsvector(string_to_array(given.body, ' '))
FROM unnest(%(keys)s::text[], %(parts)s::text[], %(titles)s::text[], %(bodies)s::text[])
    AS given (key, part, title, body)
WHERE space = %(space)s AND derived.key = given.key

-- name: holding
SELECT key FROM derived WHERE space = %(space)s AND title IS NOT NULL AND (title || body) @@ %(query)s::tsquery
    AND (%(within)s = '' OR starts_with(part || '/', %(within)s || '/'))
ORDER BY key DESC LIMIT %(limit)s

-- name: alike
SELECT key FROM (
    SELECT key, shared::float8 / (%(count)s + length(title) - shared) AS score
    FROM derived, LATERAL (
        SELECT count(*) AS shared FROM unnest(tsvector_to_array(title)) AS word WHERE word = ANY(%(words)s::text[])
    ) AS hits
    WHERE space = %(space)s AND part = %(part)s AND title IS NOT NULL AND title @@ %(query)s::tsquery
) AS scored
WHERE score >= %(least)s ORDER BY score DESC, key LIMIT %(limit)s
