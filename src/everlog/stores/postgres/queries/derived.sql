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
INSERT INTO derived SELECT %(space)s, * FROM unnest(%(keys)s::text[], %(values)s::bytea[])
ON CONFLICT (space, key) DO UPDATE SET value = excluded.value

-- name: remove
DELETE FROM derived WHERE space = %(space)s AND key = ANY(%(keys)s::text[])
