-- A node that follows a purge of another one removes the events that the record lists. Others of the stream may stay:
-- this node recorded them since, or the other one never had them.

CREATE FUNCTION purge_some(the_stream text, the_ids uuid[], the_actor text, the_reason text, at_us bigint)
RETURNS TABLE (reserved bigint, sequence bigint, count bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    place bigint;
    last bigint;
    removed bigint;
BEGIN
    UPDATE state SET head = head + 1, given_in = pg_current_xact_id(),
        given = 1 + CASE WHEN given_in = pg_current_xact_id() THEN given ELSE 0 END
    RETURNING head INTO place;
    SELECT count(*) INTO removed FROM events WHERE events.stream = the_stream AND events.id = ANY (the_ids);
    IF removed = 0 THEN
        RAISE EXCEPTION 'everlog: % has no events to purge', the_stream USING ERRCODE = 'EV003';
    END IF;
    -- Events with a greater sequence may have been purged before.
    SELECT greatest((SELECT max(events.sequence) FROM events WHERE events.stream = the_stream),
        (SELECT max(purges.sequence) FROM purges WHERE purges.stream = the_stream)) INTO last;
    INSERT INTO purges
        SELECT place, the_stream, array_agg(DISTINCT scope ORDER BY scope), the_actor, the_reason, at_us, last, removed
        FROM events WHERE events.stream = the_stream AND events.id = ANY (the_ids);
    INSERT INTO purged
        SELECT position, sequence, id, fields ->> 5, (fields ->> 6)::bigint,
            sha256('\x00'::bytea || convert_to(header, 'UTF8')), decode(fields ->> 16, 'base64'),
            (fields ->> 4)::bigint, place, 2
        FROM (
            SELECT *, header::json AS fields FROM events WHERE events.stream = the_stream AND events.id = ANY (the_ids)
        ) AS gone;
    DELETE FROM events WHERE events.stream = the_stream AND events.id = ANY (the_ids);
    PERFORM pg_notify('everlog ' || current_schema(), place::text);
    RETURN QUERY SELECT place, last, removed;
END $$;

-- A purge of a whole stream is one of all of its events.
CREATE OR REPLACE FUNCTION purge(the_stream text, the_actor text, the_reason text, at_us bigint)
RETURNS TABLE (reserved bigint, sequence bigint, count bigint)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT * FROM purge_some(the_stream, ARRAY(SELECT id FROM events WHERE events.stream = the_stream), the_actor,
        the_reason, at_us)
$$;

REVOKE ALL ON FUNCTION purge_some(text, uuid[], text, text, bigint) FROM PUBLIC;

CREATE OR REPLACE FUNCTION grant_purger(purger name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM grant_writer(purger);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION purge(text, text, text, bigint), purge_some(text, uuid[], text, text, bigint),'
        ' erase(uuid[], text[]) TO %I', purger);
END $$;

-- Roles that may purge already.
DO $$
DECLARE
    the_role name;
BEGIN
    FOR the_role IN
        SELECT DISTINCT rolname FROM pg_proc, aclexplode(proacl) AS given JOIN pg_roles ON pg_roles.oid = given.grantee
        WHERE pg_proc.oid = 'purge'::regproc AND grantee <> proowner
    LOOP
        PERFORM grant_purger(the_role);
    END LOOP;
END $$;
