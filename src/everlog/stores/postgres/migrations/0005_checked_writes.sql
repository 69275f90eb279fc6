-- What a writer changes beside the events is changed by functions that check it. They run with the owner's rights and
-- with this schema's search_path. A role that can become the owner is trusted by them: it makes copies of other logs.

-- How many positions the newest transaction has been given so far: the clock and claims are bounded by it.
ALTER TABLE state
    ADD COLUMN given_in xid8,
    ADD COLUMN given    bigint NOT NULL DEFAULT 0;

-- ---- Chains: a run of new events is joined with those before and after it; one that overlaps others is a fork

CREATE TYPE chain_step AS (position bigint, number bigint, previous bytea, hash bytea);

CREATE FUNCTION join_run(
    the_origin text, the_first bigint, the_previous bytea, the_last bigint, the_hash bytea, the_position bigint
) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    following chains;
BEGIN
    IF EXISTS (SELECT FROM chains WHERE origin = the_origin AND first <= the_last AND origin_seq >= the_first) THEN
        RETURN false;
    END IF;
    DELETE FROM chains WHERE origin = the_origin AND first = the_last + 1 AND previous = the_hash
        RETURNING * INTO following;
    IF FOUND THEN
        the_last := following.origin_seq;
        the_hash := following.hash;
        the_position := following.position;
    END IF;
    UPDATE chains SET origin_seq = the_last, hash = the_hash, position = the_position
    WHERE origin = the_origin AND origin_seq = the_first - 1 AND hash = the_previous;
    IF NOT FOUND THEN
        INSERT INTO chains VALUES (the_origin, the_first, the_previous, the_last, the_hash, the_position);
    END IF;
    RETURN true;
END $$;

-- ---- Events: the next positions, readable, filed as their headers say. The clock and the ends of chains follow them.

CREATE OR REPLACE FUNCTION events_follow_on() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    trusted boolean := pg_has_role(session_user, current_user, 'MEMBER');
    lowest bigint;
    highest bigint;
    rows bigint;
    latest bigint;
    first_origin text;
    last_origin text;
    first_shift bigint;
    last_shift bigint;
    begin_header text;
    end_header text;
    sound boolean;
    linked boolean := false;
    unlinked boolean;
    broken boolean;
    run record;
    part record;
BEGIN
    SELECT min(position), max(position), count(*), max((fields ->> 4)::bigint),
        min((fields ->> 5) COLLATE "C"), max((fields ->> 5) COLLATE "C"),
        min(position - (fields ->> 6)::bigint), max(position - (fields ->> 6)::bigint), min(header), max(header),
        bool_and(coalesce(
            jsonb_array_length(fields) = 17
            AND fields ->> 1 = type AND fields ->> 3 = stream AND fields ->> 9 = scope AND sequence <= position
            AND (fields ->> 2)::bigint > 0 AND (fields ->> 4)::bigint > 0 AND (fields ->> 6)::bigint > 0
            AND fields ->> 7 LIKE '____-__-__T__:__:__%Z' AND (fields ->> 7)::timestamptz IS NOT NULL
            AND jsonb_typeof(fields -> 14) = 'object'
            AND length(decode(fields ->> 15, 'base64')) = 32
            AND length(decode(fields ->> 16, 'base64')) IN (0, 32)
            AND CASE
                WHEN body IS NOT NULL THEN jsonb_typeof(body) = 'object'
                WHEN payload <> '' THEN json_typeof(payload::json) = 'object'
                ELSE true
            END,
            false))
    INTO lowest, highest, rows, latest, first_origin, last_origin, first_shift, last_shift, begin_header,
        end_header, sound
    FROM (SELECT *, header::jsonb AS fields FROM added OFFSET 0) AS parsed;
    IF rows = 0 THEN
        RETURN NULL;
    END IF;
    IF NOT sound THEN
        RAISE EXCEPTION 'everlog: an event is not in its form, or is filed under another name than its header says'
            USING ERRCODE = 'EV004';
    END IF;
    UPDATE state SET head = highest, clock = greatest(clock, latest), given_in = pg_current_xact_id(),
        given = rows + CASE WHEN given_in = pg_current_xact_id() THEN given ELSE 0 END
    WHERE head = lowest - 1 AND highest - lowest + 1 = rows
        AND (trusted OR latest <= least(clock + rows * 1048576, 9007199254740991));
    IF NOT FOUND THEN
        -- A copy of another log has holes, and brings the record of each before: only the owner can write those.
        UPDATE state SET head = highest, clock = greatest(clock, latest)
        WHERE trusted AND lowest > head AND highest - head = rows
            + (SELECT count(*) FROM purged WHERE purged.position > head AND purged.position < highest)
            + (SELECT count(*) FROM purges WHERE reserved > head AND reserved < highest);
        IF NOT FOUND THEN
            IF EXISTS (SELECT FROM state WHERE head = lowest - 1 AND highest - lowest + 1 = rows) THEN
                RAISE EXCEPTION 'everlog: the clock value % is too far above the clock of the log', latest
                    USING ERRCODE = 'EV005';
            END IF;
            RAISE EXCEPTION 'everlog: positions are given in order, and % to % are not the next %',
                lowest, highest, rows USING ERRCODE = 'EV002';
        END IF;
    END IF;
    -- Nearly always: the next events of one origin, in order, so that its chain ends with the last row.
    linked := first_origin = last_origin AND first_shift = last_shift;
    IF linked AND rows > 1 THEN
        SELECT bool_and(decode(previous, 'base64') = before) INTO linked FROM (
            SELECT position, header::jsonb ->> 16 AS previous,
                lag(sha256('\x00'::bytea || convert_to(header, 'UTF8'))) OVER (ORDER BY position) AS before
            FROM added
        ) AS neighbours WHERE position > lowest;
    END IF;
    IF linked THEN
        -- Ids grow, so the least header is nearly always that of the first row, and the greatest that of the last.
        IF (begin_header::jsonb ->> 6)::bigint <> lowest - first_shift THEN
            SELECT header INTO begin_header FROM events WHERE position = lowest;
        END IF;
        IF (end_header::jsonb ->> 6)::bigint <> highest - last_shift THEN
            SELECT header INTO end_header FROM events WHERE position = highest;
        END IF;
        UPDATE chains SET origin_seq = highest - last_shift, hash = sha256('\x00'::bytea || convert_to(end_header, 'UTF8')),
            position = highest
        WHERE origin = last_origin AND origin_seq = lowest - first_shift - 1
            AND hash = decode(begin_header::jsonb ->> 16, 'base64')
            AND NOT EXISTS (
                SELECT FROM chains AS beyond WHERE beyond.origin = last_origin AND beyond.first >= lowest - first_shift
            );
        linked := FOUND;
    END IF;
    IF NOT linked THEN
        SELECT found.first <> 1 + coalesce(chains.origin_seq, 0) OR found.last - found.first + 1 <> found.count,
            found.first = 1 + coalesce(chains.origin_seq, 0)
                AND decode(found.previous, 'base64') <> coalesce(chains.hash, '')
        INTO unlinked, broken
        FROM identity LEFT JOIN chains ON chains.origin = identity.origin AND chains.first = 1 AND chains.previous = ''
        JOIN (
            SELECT fields ->> 5 AS origin, count(*) AS count, min((fields ->> 6)::bigint) AS first,
                max((fields ->> 6)::bigint) AS last,
                (array_agg(fields ->> 16 ORDER BY (fields ->> 6)::bigint))[1] AS previous
            FROM (SELECT header::jsonb AS fields FROM added OFFSET 0) AS parsed GROUP BY 1
        ) AS found ON found.origin = identity.origin;
        -- A program of an older format that went on after an upgrade has another hash of the event before.
        IF broken OR (unlinked AND NOT trusted) THEN
            RAISE EXCEPTION 'everlog: the events of the log''s own origin do not go on where its chain ends'
                USING ERRCODE = 'EV004';
        END IF;
        FOR run IN
            SELECT origin, island, min(number) AS first, max(number) AS last, max(position) AS position,
                (array_agg(previous ORDER BY position))[1] AS previous,
                (array_agg(hash ORDER BY position DESC))[1] AS hash,
                array_agg((position, number, previous, hash)::chain_step ORDER BY position) AS steps
            FROM (
                SELECT *, sum(begins::integer) OVER (PARTITION BY origin ORDER BY position) AS island FROM (
                    SELECT *, (number = 1 + lag(number) OVER own AND previous = lag(hash) OVER own) IS NOT TRUE AS begins
                    FROM (
                        SELECT position, fields ->> 5 AS origin, (fields ->> 6)::bigint AS number,
                            decode(fields ->> 16, 'base64') AS previous,
                            sha256('\x00'::bytea || convert_to(header, 'UTF8')) AS hash
                        FROM (SELECT position, header, header::jsonb AS fields FROM added OFFSET 0) AS parsed
                    ) AS events WINDOW own AS (PARTITION BY origin ORDER BY position)
                ) AS compared
            ) AS divided GROUP BY origin, island ORDER BY min(position)
        LOOP
            -- The second run of the own origin: an event that is not linked to the one before it.
            IF run.island > 1 AND NOT trusted AND run.origin = (SELECT identity.origin FROM identity) THEN
                RAISE EXCEPTION 'everlog: the events of the log''s own origin do not go on where its chain ends'
                    USING ERRCODE = 'EV004';
            END IF;
            IF NOT join_run(run.origin, run.first, run.previous, run.last, run.hash, run.position) THEN
                -- Of a run that overlaps others, each event is taken by itself.
                FOR part IN SELECT * FROM unnest(run.steps) LOOP
                    IF NOT join_run(run.origin, part.number, part.previous, part.number, part.hash, part.position) THEN
                        INSERT INTO forks SELECT part.position, run.origin, part.number, part.hash
                        WHERE (SELECT count(*) FROM forks WHERE origin = run.origin) < 1000;
                    END IF;
                END LOOP;
            END IF;
        END LOOP;
    END IF;
    -- As an expression: PERFORM would be one more statement of every write.
    IF pg_notify('everlog ' || TG_TABLE_SCHEMA, highest::text) IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN NULL;
END $$;

-- ---- Signatures: of groups of the same transaction, whose events follow each other in the chain of one origin

CREATE FUNCTION sign_groups(firsts bigint[], counts integer[], signatures bytea[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    trusted boolean := pg_has_role(session_user, current_user, 'MEMBER');
    made bigint;
BEGIN
    INSERT INTO groups
    SELECT new.first, found.origin, found.first_seq, new.count, new.signature
    FROM unnest(firsts, counts, signatures) AS new (first, count, signature), state, LATERAL (
        SELECT min(header::jsonb ->> 5) AS origin, max(header::jsonb ->> 5) AS last_origin, count(*) AS count,
            min((header::jsonb ->> 6)::bigint) AS first_seq,
            max(position - (header::jsonb ->> 6)::bigint) - min(position - (header::jsonb ->> 6)::bigint) AS shift
        FROM events WHERE position >= new.first AND position < new.first + new.count
    ) AS found
    WHERE found.count = new.count AND found.origin = found.last_origin AND found.shift = 0
        AND (trusted OR (new.first > head - given AND new.first + new.count - 1 <= head
            AND given_in = pg_current_xact_id()));
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made < cardinality(firsts) THEN
        RAISE EXCEPTION 'everlog: a signature is for events of its own write, which follow each other in one chain'
            USING ERRCODE = 'EV004';
    END IF;
END $$;

-- The groups that these positions were in, each with the hashes of all its events, which lead to its root. A hash tells
-- nothing about an event that its reader may not see.
CREATE FUNCTION signed_groups(places bigint[])
RETURNS TABLE (first bigint, first_seq bigint, count integer, signature bytea, hashes bytea[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT groups.first, groups.first_seq, groups.count, groups.signature, (
        SELECT array_agg(hash ORDER BY position) FROM (
            SELECT position, sha256('\x00'::bytea || convert_to(header, 'UTF8')) AS hash FROM events
            WHERE position >= groups.first AND position < groups.first + groups.count
            UNION ALL SELECT position, hash FROM purged
            WHERE position >= groups.first AND position < groups.first + groups.count
        ) AS members
    )
    FROM groups WHERE groups.first IN (
        SELECT (SELECT max(before.first) FROM groups AS before WHERE before.first <= place) FROM unnest(places) AS place
    )
$$;

-- ---- Erasures: payload and salt go; the header, and so the commitment, stays

CREATE FUNCTION erase(ids uuid[], allowed_by text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    erased bigint;
BEGIN
    PERFORM FROM state FOR UPDATE;
    UPDATE events SET payload = '', salt = '', erased_by = given.by
    FROM unnest(ids, allowed_by) AS given (id, by) WHERE events.id = given.id AND events.salt <> '';
    GET DIAGNOSTICS erased = ROW_COUNT;
    RETURN erased;
END $$;

-- ---- Claims: for the events of the same transaction, and never in place of one that has not expired

CREATE FUNCTION claim(names uuid[], firsts bigint[], counts integer[], at_us bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode TO force_generic_plan AS $$
DECLARE
    trusted boolean := pg_has_role(session_user, current_user, 'MEMBER');
    made bigint;
BEGIN
    IF NOT trusted THEN
        at_us := extract(epoch FROM clock_timestamp()) * 1000000;
    END IF;
    -- Five minutes less than a day: a client decides by its own clock that a key has expired.
    INSERT INTO claims AS known
    SELECT name, first, count, at_us FROM unnest(names, firsts, counts) AS new (name, first, count), state
    WHERE trusted OR (
        count > 0 AND first > head - given AND first + count - 1 <= head AND given_in = pg_current_xact_id())
    ON CONFLICT (name) DO UPDATE SET first = excluded.first, count = excluded.count, made_us = excluded.made_us
    WHERE trusted OR known.made_us < at_us - 86100000000;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made < cardinality(names) THEN
        RAISE EXCEPTION 'everlog: a claim is for events of its own write, and stays until it expires'
            USING ERRCODE = 'EV004';
    END IF;
END $$;

-- Move the clock past what the events of a transaction say: by one for each of them at most.
CREATE FUNCTION move_clock(the_clock bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE state SET clock = the_clock
    WHERE pg_has_role(session_user, current_user, 'MEMBER') OR (the_clock >= clock AND the_clock <= least(
        clock + CASE WHEN given_in = pg_current_xact_id() THEN given ELSE 0 END, 9007199254740991));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'everlog: the clock goes as far as the events of a write carry it, and not to %', the_clock
            USING ERRCODE = 'EV005';
    END IF;
END $$;

-- Remove claims that were made before a moment, of the oldest ones; none younger than a day by the server's clock.
CREATE FUNCTION forget_claims(looked_at bigint, before_us bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    server_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
    IF NOT pg_has_role(session_user, current_user, 'MEMBER') THEN
        before_us := least(before_us, server_us - 86400000000);
    END IF;
    DELETE FROM claims WHERE name IN (
        SELECT name FROM (SELECT name, made_us FROM claims ORDER BY first LIMIT looked_at) AS oldest
        WHERE made_us < before_us
    );
END $$;

-- ---- Notes: written, replaced, or removed where the value is NULL

CREATE FUNCTION keep_notes(keys text[], contents bytea[], ends bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    -- A note of this kind says that the log is an unfinished copy, which nobody can open.
    IF NOT pg_has_role(session_user, current_user, 'MEMBER')
        AND EXISTS (SELECT FROM unnest(keys) AS key WHERE starts_with(key, 'copy/'))
    THEN
        RAISE EXCEPTION 'everlog: notes under copy/ are kept by the owner of the log only' USING ERRCODE = 'EV006';
    END IF;
    PERFORM convert_from(content, 'UTF8') FROM unnest(contents) AS content;
    INSERT INTO notes SELECT * FROM unnest(keys, contents, ends) AS new (key, value, expires_us)
    WHERE value IS NOT NULL
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_us = excluded.expires_us;
    IF array_position(contents, NULL) IS NOT NULL THEN
        DELETE FROM notes WHERE key IN (
            SELECT gone.key FROM unnest(keys, contents) AS gone (key, value) WHERE gone.value IS NULL
        );
    END IF;
END $$;

CREATE FUNCTION forget_notes(before_us bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM notes WHERE expires_us <= before_us;
END $$;

-- ---- A purge, as before; its reserved position counts as given

CREATE OR REPLACE FUNCTION purge(the_stream text, the_actor text, the_reason text, at_us bigint)
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
    SELECT max(events.sequence), count(*) INTO last, removed FROM events WHERE events.stream = the_stream;
    IF removed = 0 THEN
        RAISE EXCEPTION 'everlog: % has no events to purge', the_stream USING ERRCODE = 'EV003';
    END IF;
    INSERT INTO purges
        SELECT place, the_stream, array_agg(DISTINCT scope ORDER BY scope), the_actor, the_reason, at_us, last, removed
        FROM events WHERE events.stream = the_stream;
    INSERT INTO purged
        SELECT position, sequence, id, fields ->> 5, (fields ->> 6)::bigint,
            sha256('\x00'::bytea || convert_to(header, 'UTF8')), decode(fields ->> 16, 'base64'),
            (fields ->> 4)::bigint, place, 2
        FROM (SELECT *, header::json AS fields FROM events WHERE events.stream = the_stream) AS gone;
    DELETE FROM events WHERE events.stream = the_stream;
    PERFORM pg_notify('everlog ' || current_schema(), place::text);
    RETURN QUERY SELECT place, last, removed;
END $$;

-- ---- Tenants: the scopes of a role are found once for a statement, and compared where the rows are

DROP POLICY own_scope ON scoped_events;
DROP POLICY own_scope ON purges;
DROP POLICY everything ON purges;
DROP POLICY own_row ON tenants;
ALTER TABLE purges DISABLE ROW LEVEL SECURITY;
ALTER TABLE tenants DISABLE ROW LEVEL SECURITY;
DROP FUNCTION may_see(text);
DROP FUNCTION in_scope(text, text);

-- What the role that asks may see: what it was granted, narrowed to what its session says.
CREATE VIEW own_scopes WITH (security_barrier) AS
SELECT DISTINCT CASE WHEN granted = '' OR (asked || '/') ^@ (granted || '/') THEN asked ELSE granted END AS scope
FROM (
    SELECT tenants.scope AS granted, coalesce(current_setting('everlog.scope', true), '') COLLATE "C" AS asked
    FROM tenants WHERE pg_has_role(tenants.role::oid, 'USAGE')
) AS own
WHERE (granted <> '' OR asked <> '')
    AND (granted = '' OR asked = '' OR (asked || '/') ^@ (granted || '/') OR (granted || '/') ^@ (asked || '/'));

CREATE POLICY own_scope ON scoped_events FOR SELECT
    USING ((scope || '/') ^@ ANY ((SELECT array_agg(own_scopes.scope || '/') FROM own_scopes)::text[]));

-- The purges that touched the role's scopes. Of the scopes that a purge touched, it sees its own.
CREATE VIEW scoped_purges WITH (security_barrier) AS
SELECT reserved, stream, own.scopes, actor, reason, purged_us, sequence, count
FROM purges, LATERAL (
    SELECT array_agg(touched) AS scopes FROM unnest(purges.scopes) AS touched
    WHERE (touched || '/') ^@ ANY ((SELECT array_agg(own_scopes.scope || '/') FROM own_scopes)::text[])
) AS own
WHERE own.scopes IS NOT NULL;

-- What stays of events that were purged in the role's scopes. It is not known which event was in which scope, so a
-- purge that touched other scopes too is left out.
CREATE VIEW scoped_purged WITH (security_barrier) AS
SELECT purged.* FROM purged JOIN purges USING (reserved)
WHERE NOT EXISTS (
    SELECT FROM unnest(purges.scopes) AS touched
    WHERE ((touched || '/') ^@ ANY ((SELECT array_agg(own_scopes.scope || '/') FROM own_scopes)::text[])) IS NOT TRUE
);

-- ---- Who may do what

REVOKE ALL ON FUNCTION claim(uuid[], bigint[], integer[], bigint), move_clock(bigint), forget_claims(bigint, bigint),
    keep_notes(text[], bytea[], bigint[]), forget_notes(bigint), join_run(text, bigint, bytea, bigint, bytea, bigint),
    sign_groups(bigint[], integer[], bytea[]), signed_groups(bigint[]), erase(uuid[], text[]) FROM PUBLIC;

CREATE OR REPLACE FUNCTION grant_reader(reader name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), reader);
    EXECUTE format(
        'GRANT SELECT ON migrations, identity, state, chains, forks, groups, events, purges, purged, claims, notes,'
        ' projection_checkpoints TO %I', reader);
    EXECUTE format('GRANT EXECUTE ON FUNCTION signed_groups(bigint[]) TO %I', reader);
END $$;

CREATE OR REPLACE FUNCTION grant_purger(purger name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM grant_writer(purger);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION purge(text, text, text, bigint), erase(uuid[], text[]) TO %I', purger);
END $$;

CREATE OR REPLACE FUNCTION grant_writer(writer name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM grant_reader(writer);
    -- Every column but the derived one; events_follow_on looks at every row.
    EXECUTE format(
        'GRANT INSERT (position, id, stream, sequence, type, scope, received_us, header, payload, salt, signature,'
        ' path, erased_by) ON events TO %I', writer);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION claim(uuid[], bigint[], integer[], bigint), move_clock(bigint),'
        ' forget_claims(bigint, bigint), keep_notes(text[], bytea[], bigint[]), forget_notes(bigint),'
        ' sign_groups(bigint[], integer[], bytea[]) TO %I', writer);
    -- To lock the row: this column is true in every row there can be.
    EXECUTE format('GRANT UPDATE (one) ON state TO %I', writer);
    EXECUTE format('GRANT INSERT, UPDATE ON projection_checkpoints TO %I', writer);
END $$;

CREATE OR REPLACE FUNCTION grant_tenant(tenant name, scope text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO tenants VALUES (quote_ident(tenant)::regrole, grant_tenant.scope)
        ON CONFLICT (role) DO UPDATE SET scope = excluded.scope;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), tenant);
    EXECUTE format(
        'GRANT SELECT ON migrations, identity, state, groups, scoped_events, own_scopes, scoped_purges, scoped_purged'
        ' TO %I', tenant);
    EXECUTE format('GRANT EXECUTE ON FUNCTION signed_groups(bigint[]) TO %I', tenant);
END $$;

-- Roles that had their rights before: what they must not have any more is taken back, and the rest is given.
DO $$
DECLARE
    the_role name;
    the_scope text;
BEGIN
    FOR the_role, the_scope IN
        SELECT rolname, tenants.scope FROM tenants JOIN pg_roles ON pg_roles.oid = tenants.role::oid
    LOOP
        EXECUTE format('REVOKE SELECT ON purges, tenants FROM %I', the_role);
        PERFORM grant_tenant(the_role, the_scope);
    END LOOP;
    FOR the_role IN
        SELECT DISTINCT rolname FROM pg_class, aclexplode(relacl) AS given JOIN pg_roles ON pg_roles.oid = given.grantee
        WHERE pg_class.oid = 'events'::regclass AND privilege_type = 'SELECT' AND grantee <> relowner
    LOOP
        PERFORM grant_reader(the_role);
    END LOOP;
    FOR the_role IN
        SELECT DISTINCT rolname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid, aclexplode(attacl) AS given
            JOIN pg_roles ON pg_roles.oid = given.grantee
        WHERE pg_class.oid = 'events'::regclass AND privilege_type = 'INSERT' AND grantee <> relowner
    LOOP
        EXECUTE format('REVOKE UPDATE (clock) ON state FROM %I', the_role);
        EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON chains, claims, notes FROM %I', the_role);
        PERFORM grant_writer(the_role);
    END LOOP;
    FOR the_role IN
        SELECT DISTINCT rolname FROM pg_proc, aclexplode(proacl) AS given JOIN pg_roles ON pg_roles.oid = given.grantee
        WHERE pg_proc.oid = 'purge'::regproc AND grantee <> proowner
    LOOP
        PERFORM grant_purger(the_role);
    END LOOP;
END $$;
