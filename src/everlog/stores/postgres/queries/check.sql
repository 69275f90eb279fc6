-- Asked when a log is checked, and in part before the first write of a process.

-- name: snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: chain_ends
SELECT chains.origin, chains.origin_seq, chains.hash, chains.position,
    (SELECT sha256('\x00'::bytea || convert_to(header, 'UTF8')) FROM events WHERE events.position = chains.position),
    (SELECT purged.hash FROM purged WHERE purged.position = chains.position)
FROM chains

-- name: ends
SELECT head, clock, (SELECT max(position) FROM events),
    greatest((SELECT max(reserved) FROM purges), (SELECT max(position) FROM purged))
FROM state

-- name: triggers
SELECT tgname, tgenabled::text FROM pg_trigger
WHERE tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace) AND NOT tgisinternal

-- name: functions
SELECT proname, md5(prosrc) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace

-- name: indexes
SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = current_schema()::regnamespace AND NOT (indisvalid AND indisready)

-- name: columns_and_headers
SELECT position, id, stream, type, scope, header FROM {events}
WHERE position > %(after)s ORDER BY position LIMIT %(limit)s

