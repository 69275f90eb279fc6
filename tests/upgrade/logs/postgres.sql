-- The PostgreSQL form of a log in format 1, as it was: the table of migrations and the five files. It never changes.
CREATE TABLE migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    digest     bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
-- The PostgreSQL form of a log. Run with search_path = the log's schema, pg_temp, by the role that will own it.
-- Every function takes that search_path with it, so that nobody can slip a table of their own in front.

CREATE TABLE identity (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    log_id     text NOT NULL,
    origin     text NOT NULL,
    epoch      text NOT NULL,
    created_us bigint NOT NULL
);

-- The one row that every write locks first and holds until its commit. Positions are counted here and nowhere else:
-- so they are given in the order of commits, and a write that is rolled back gives its positions back.
CREATE TABLE state (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    head  bigint NOT NULL,
    clock bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
INSERT INTO state (head, clock) VALUES (0, 0);

-- The end of each origin's chain, with its place.
CREATE TABLE chains (
    origin     text COLLATE "C" PRIMARY KEY,
    origin_seq bigint NOT NULL,
    hash       bytea NOT NULL,
    position   bigint NOT NULL
) WITH (fillfactor = 50);

-- What a tenant reads. It holds no rows itself: those of "events", which inherits from it, show through it, filtered
-- by its row-level security. They are not one table because PostgreSQL refuses COPY into one that has such filters.
CREATE TABLE scoped_events (
    position    bigint NOT NULL CHECK (position > 0),
    id          uuid NOT NULL,
    stream      text COLLATE "C" NOT NULL,
    sequence    bigint NOT NULL CHECK (sequence > 0),
    type        text COLLATE "C" NOT NULL,
    scope       text COLLATE "C" NOT NULL,
    received_us bigint NOT NULL,
    header      text COLLATE "C" NOT NULL,
    payload     text COLLATE "C" NOT NULL,
    salt        bytea NOT NULL,
    signature   bytea NOT NULL,
    path        bytea NOT NULL,
    -- For queries only: jsonb writes numbers and keys in its own way, and has no place for the character U+0000.
    body        jsonb GENERATED ALWAYS AS (
        CASE
            WHEN payload = '' THEN NULL
            WHEN strpos(payload, '\u0000') = 0 THEN payload::jsonb
            WHEN payload ~ '(^|[^\\])(\\\\)*\\u0000' THEN NULL
            ELSE payload::jsonb
        END
    ) STORED
);

CREATE TABLE events (
    PRIMARY KEY (position),
    CONSTRAINT events_by_stream UNIQUE (stream, sequence),
    CONSTRAINT events_by_id UNIQUE (id)
) INHERITS (scoped_events);
CREATE INDEX events_by_type ON events (type, position);
CREATE INDEX events_by_scope ON events (scope, position) WHERE scope <> '';

CREATE TABLE purges (
    reserved  bigint PRIMARY KEY,
    stream    text COLLATE "C" NOT NULL,
    scopes    text[] NOT NULL,
    actor     text NOT NULL,
    reason    text NOT NULL,
    purged_us bigint NOT NULL,
    sequence  bigint NOT NULL,
    count     bigint NOT NULL
);
CREATE INDEX purges_by_stream ON purges (stream);

-- What stays of a purged event: its place, its hash and the hash before it.
CREATE TABLE purged (
    position   bigint PRIMARY KEY,
    sequence   bigint NOT NULL,
    id         uuid NOT NULL UNIQUE,
    origin     text NOT NULL,
    origin_seq bigint NOT NULL,
    hash       bytea NOT NULL,
    previous   bytea NOT NULL,
    reserved   bigint NOT NULL
);

-- Idempotency: which request made which events. The name is a hash of scope, actor, operation and key.
CREATE TABLE claims (
    name    uuid PRIMARY KEY,
    first   bigint NOT NULL,
    count   integer NOT NULL,
    made_us bigint NOT NULL
);
CREATE INDEX claims_by_place ON claims (first);

-- Small state that commits with the events. The value is UTF-8; text has no place for the character U+0000.
CREATE TABLE notes (
    key        text COLLATE "C" PRIMARY KEY,
    value      bytea NOT NULL,
    expires_us bigint
);
CREATE INDEX notes_by_end ON notes (expires_us) WHERE expires_us IS NOT NULL;

-- How far each projection got, for those who keep their tables in this database: update it in their transaction.
CREATE TABLE projection_checkpoints (
    projection            text PRIMARY KEY,
    last_applied_position bigint NOT NULL,
    epoch                 text NOT NULL DEFAULT '',
    updated_at            timestamptz NOT NULL DEFAULT now()
);

-- ---- Positions follow on

CREATE FUNCTION events_follow_on() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    lowest bigint;
    highest bigint;
    rows bigint;
BEGIN
    SELECT min(position), max(position), count(*) INTO lowest, highest, rows FROM added;
    IF rows = 0 THEN
        RETURN NULL;
    END IF;
    UPDATE state SET head = highest WHERE head = lowest - 1 AND highest - lowest + 1 = rows;
    IF NOT FOUND THEN
        -- A copy of another log has holes, and brings the record of each before: only the owner can write those.
        UPDATE state SET head = highest WHERE lowest > head AND highest - head = rows
            + (SELECT count(*) FROM purged WHERE purged.position > head AND purged.position < highest)
            + (SELECT count(*) FROM purges WHERE reserved > head AND reserved < highest);
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'everlog: positions are given in order, and % to % are not the next %', lowest, highest, rows
            USING ERRCODE = 'EV002';
    END IF;
    PERFORM pg_notify('everlog ' || TG_TABLE_SCHEMA, highest::text);
    RETURN NULL;
END $$;
CREATE TRIGGER events_follow_on AFTER INSERT ON events
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION events_follow_on();

-- ---- Nobody rewrites history, whatever they may do otherwise

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'everlog: %', TG_ARGV[0] USING ERRCODE = 'EV001';
END $$;

CREATE FUNCTION refuse_unless_purged() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM purged WHERE purged.position = OLD.position) THEN
        RAISE EXCEPTION 'everlog: events are never deleted; see everlog purge' USING ERRCODE = 'EV001';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('events are never changed');
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_purged();
CREATE TRIGGER events_are_not_emptied BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('events are never deleted; see everlog purge');
CREATE TRIGGER scoped_events_hold_nothing BEFORE INSERT ON scoped_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('events are recorded in the table events');
CREATE TRIGGER purged_is_not_changed BEFORE UPDATE OR DELETE ON purged
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('the record of a purge is never changed');
CREATE TRIGGER purged_is_not_emptied BEFORE TRUNCATE ON purged
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('the record of a purge is never deleted');
CREATE TRIGGER purges_are_not_changed BEFORE UPDATE OR DELETE ON purges
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('the record of a purge is never changed');
CREATE TRIGGER purges_are_not_emptied BEFORE TRUNCATE ON purges
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('the record of a purge is never deleted');
CREATE TRIGGER state_only_grows BEFORE UPDATE ON state
    FOR EACH ROW WHEN (NEW.head < OLD.head OR NEW.clock < OLD.clock)
    EXECUTE FUNCTION refuse('neither the head nor the clock goes back');
CREATE TRIGGER state_is_not_deleted BEFORE DELETE OR TRUNCATE ON state
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('the state of a log is never deleted');

-- ALWAYS: also where session_replication_role would switch triggers off.
ALTER TABLE events ENABLE ALWAYS TRIGGER events_follow_on;
ALTER TABLE events ENABLE ALWAYS TRIGGER events_are_not_changed;
ALTER TABLE events ENABLE ALWAYS TRIGGER events_are_not_deleted;
ALTER TABLE events ENABLE ALWAYS TRIGGER events_are_not_emptied;
ALTER TABLE scoped_events ENABLE ALWAYS TRIGGER scoped_events_hold_nothing;
ALTER TABLE purged ENABLE ALWAYS TRIGGER purged_is_not_changed;
ALTER TABLE purged ENABLE ALWAYS TRIGGER purged_is_not_emptied;
ALTER TABLE purges ENABLE ALWAYS TRIGGER purges_are_not_changed;
ALTER TABLE purges ENABLE ALWAYS TRIGGER purges_are_not_emptied;
ALTER TABLE state ENABLE ALWAYS TRIGGER state_only_grows;
ALTER TABLE state ENABLE ALWAYS TRIGGER state_is_not_deleted;

-- ---- The one door: a purge, carried out by the owner's rights for whoever was given the right to call it

CREATE FUNCTION purge(the_stream text, the_actor text, the_reason text, at_us bigint)
RETURNS TABLE (reserved bigint, sequence bigint, count bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    place bigint;
    last bigint;
    removed bigint;
BEGIN
    UPDATE state SET head = head + 1 RETURNING head INTO place;
    SELECT max(events.sequence), count(*) INTO last, removed FROM events WHERE events.stream = the_stream;
    IF removed = 0 THEN
        RAISE EXCEPTION 'everlog: % has no events to purge', the_stream USING ERRCODE = 'EV003';
    END IF;
    INSERT INTO purges
        SELECT place, the_stream, array_agg(DISTINCT scope ORDER BY scope), the_actor, the_reason, at_us, last, removed
        FROM events WHERE events.stream = the_stream;
    INSERT INTO purged
        SELECT position, sequence, id, fields ->> 5, (fields ->> 6)::bigint,
            sha256(convert_to(header, 'UTF8')), decode(fields ->> 16, 'base64'), place
        FROM (SELECT *, header::json AS fields FROM events WHERE events.stream = the_stream) AS gone;
    DELETE FROM events WHERE events.stream = the_stream;
    PERFORM pg_notify('everlog ' || current_schema(), place::text);
    RETURN QUERY SELECT place, last, removed;
END $$;

REVOKE ALL ON FUNCTION purge(text, text, text, bigint), events_follow_on(), refuse(), refuse_unless_purged()
    FROM PUBLIC;
-- Who may do what. The owner calls these, for roles that exist:
--
--     SELECT everlog.grant_writer('shop')              append and read everything; nothing else
--     SELECT everlog.grant_reader('auditor')           read everything
--     SELECT everlog.grant_tenant('acme_app', 'acme')  read what is in a scope or below it
--     SELECT everlog.grant_purger('officer')           purge

-- Which scope each tenant role sees. The empty scope is for a role that serves many: it sees nothing until its
-- session says which one, with SET everlog.scope.
CREATE TABLE tenants (
    role  regrole PRIMARY KEY,
    scope text COLLATE "C" NOT NULL
);

CREATE FUNCTION in_scope(scope text, prefix text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT prefix = '' OR scope = prefix OR starts_with(scope, prefix || '/')
$$;

CREATE FUNCTION may_see(event_scope text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT FROM tenants, coalesce(current_setting('everlog.scope', true), '') AS session_scope
        WHERE pg_has_role(tenants.role::oid, 'USAGE')
            AND in_scope(event_scope, tenants.scope)
            AND in_scope(event_scope, session_scope)
            AND (tenants.scope <> '' OR session_scope <> '')
    )
$$;

ALTER TABLE scoped_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE scoped_events FORCE ROW LEVEL SECURITY;
CREATE POLICY own_scope ON scoped_events FOR SELECT USING (may_see(scope));

ALTER TABLE purges ENABLE ROW LEVEL SECURITY;
CREATE POLICY everything ON purges FOR SELECT USING (has_table_privilege('events'::regclass, 'SELECT'));
CREATE POLICY own_scope ON purges FOR SELECT
    USING (EXISTS (SELECT FROM unnest(scopes) AS touched WHERE may_see(touched)));

ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_row ON tenants FOR SELECT USING (pg_has_role(role::oid, 'USAGE'));

CREATE FUNCTION grant_reader(reader name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), reader);
    EXECUTE format(
        'GRANT SELECT ON migrations, identity, state, chains, events, purges, purged, claims, notes,'
        ' projection_checkpoints TO %I', reader);
END $$;

CREATE FUNCTION grant_writer(writer name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM grant_reader(writer);
    -- Every column but the derived one. A position that is not the next one is refused by events_follow_on.
    EXECUTE format(
        'GRANT INSERT (position, id, stream, sequence, type, scope, received_us, header, payload, salt, signature,'
        ' path) ON events TO %I', writer);
    EXECUTE format('GRANT UPDATE (clock) ON state TO %I', writer);
    EXECUTE format('GRANT INSERT, UPDATE ON chains, projection_checkpoints TO %I', writer);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON claims, notes TO %I', writer);
END $$;

CREATE FUNCTION grant_purger(purger name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM grant_writer(purger);
    EXECUTE format('GRANT EXECUTE ON FUNCTION purge(text, text, text, bigint) TO %I', purger);
END $$;

CREATE FUNCTION grant_tenant(tenant name, scope text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO tenants VALUES (quote_ident(tenant)::regrole, grant_tenant.scope)
        ON CONFLICT (role) DO UPDATE SET scope = excluded.scope;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), tenant);
    EXECUTE format('GRANT SELECT ON migrations, identity, state, scoped_events, purges, tenants TO %I', tenant);
END $$;

REVOKE ALL ON FUNCTION grant_reader(name), grant_writer(name), grant_purger(name), grant_tenant(name, text)
    FROM PUBLIC;
-- What views keep: rows by space and key, written in the transaction of the events or in one of their own. All of it
-- can be made again from the events.
CREATE TABLE derived (
    space text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (space, key)
);

-- The owner calls this for a role that runs views; one without it keeps what it derives in its own memory.
--
--     SELECT everlog.grant_views('shop')
CREATE FUNCTION grant_views(runner name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON derived TO %I', runner);
END $$;
REVOKE ALL ON FUNCTION grant_views(name) FROM PUBLIC;
-- What rows that views keep are found by: words, as they are, without the opinions of a dictionary. Columns of the same
-- table, so that a row and its text are one, and whoever may keep views may keep these.
ALTER TABLE derived
    ADD COLUMN part  text COLLATE "C",
    ADD COLUMN title tsvector,
    ADD COLUMN body  tsvector;
CREATE INDEX derived_by_title ON derived USING gin (title) WHERE title IS NOT NULL;
CREATE INDEX derived_by_words ON derived USING gin ((title || body)) WHERE title IS NOT NULL;
-- What a writer changes beside the events is changed by functions that check it. They run with the owner's rights and
-- with this schema's search_path. A role that can become the owner is trusted by them: it makes copies of other logs.

-- How many positions the newest transaction has been given so far: the clock and claims are bounded by it.
ALTER TABLE state
    ADD COLUMN given_in xid8,
    ADD COLUMN given    bigint NOT NULL DEFAULT 0;

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
    end_header text;
    sound boolean;
    linked boolean := false;
    unlinked boolean;
BEGIN
    SELECT min(position), max(position), count(*), max((fields ->> 4)::bigint),
        min((fields ->> 5) COLLATE "C"), max((fields ->> 5) COLLATE "C"),
        min(position - (fields ->> 6)::bigint), max(position - (fields ->> 6)::bigint), max(header),
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
    INTO lowest, highest, rows, latest, first_origin, last_origin, first_shift, last_shift, end_header,
        sound
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
    IF first_origin = last_origin AND first_shift = last_shift THEN
        -- Ids grow, so the greatest header is nearly always that of the last row.
        IF (end_header::jsonb ->> 6)::bigint <> highest - last_shift THEN
            SELECT header INTO end_header FROM events WHERE position = highest;
        END IF;
        UPDATE chains SET origin_seq = highest - last_shift, hash = sha256(convert_to(end_header, 'UTF8')),
            position = highest
        WHERE origin = last_origin AND origin_seq = lowest - first_shift - 1;
        linked := FOUND;
    END IF;
    IF NOT linked THEN
        SELECT found.first <> 1 + coalesce(chains.origin_seq, 0) OR found.last - found.first + 1 <> found.count
        INTO unlinked
        FROM identity LEFT JOIN chains USING (origin) JOIN (
            SELECT fields ->> 5 AS origin, count(*) AS count, min((fields ->> 6)::bigint) AS first,
                max((fields ->> 6)::bigint) AS last
            FROM (SELECT header::jsonb AS fields FROM added OFFSET 0) AS parsed GROUP BY 1
        ) AS found USING (origin);
        IF unlinked AND NOT trusted THEN
            RAISE EXCEPTION 'everlog: the events of the log''s own origin do not go on where its chain ends'
                USING ERRCODE = 'EV004';
        END IF;
        INSERT INTO chains AS known
        SELECT DISTINCT ON (fields ->> 5) fields ->> 5, (fields ->> 6)::bigint, sha256(convert_to(header, 'UTF8')),
            position
        FROM (SELECT position, header, header::jsonb AS fields FROM added OFFSET 0) AS parsed
        ORDER BY fields ->> 5, (fields ->> 6)::bigint DESC, position
        ON CONFLICT (origin) DO UPDATE
        SET origin_seq = excluded.origin_seq, hash = excluded.hash, position = excluded.position
        WHERE excluded.origin_seq > known.origin_seq;
    END IF;
    -- As an expression: PERFORM would be one more statement of every write.
    IF pg_notify('everlog ' || TG_TABLE_SCHEMA, highest::text) IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN NULL;
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
            sha256(convert_to(header, 'UTF8')), decode(fields ->> 16, 'base64'), place
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
    keep_notes(text[], bytea[], bigint[]), forget_notes(bigint) FROM PUBLIC;

CREATE OR REPLACE FUNCTION grant_writer(writer name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM grant_reader(writer);
    -- Every column but the derived one; events_follow_on looks at every row.
    EXECUTE format(
        'GRANT INSERT (position, id, stream, sequence, type, scope, received_us, header, payload, salt, signature,'
        ' path) ON events TO %I', writer);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION claim(uuid[], bigint[], integer[], bigint), move_clock(bigint),'
        ' forget_claims(bigint, bigint), keep_notes(text[], bytea[], bigint[]), forget_notes(bigint) TO %I', writer);
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
        'GRANT SELECT ON migrations, identity, state, scoped_events, own_scopes, scoped_purges, scoped_purged TO %I',
        tenant);
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
END $$;
