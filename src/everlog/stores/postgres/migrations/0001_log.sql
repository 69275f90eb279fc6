-- The PostgreSQL form of a log. Run with search_path = the log's schema, pg_temp, by the role that will own it.
-- Every function takes that search_path with it, so that nobody can slip a table of their own in front.

CREATE TABLE identity (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    log_id     text NOT NULL,
    origin     text NOT NULL,
    epoch      text NOT NULL,
    created_us bigint NOT NULL,
    format     integer NOT NULL
);

-- The one row that every write locks first and holds until its commit. Positions are counted here and nowhere else:
-- so they are given in the order of commits, and a write that is rolled back gives its positions back.
CREATE TABLE state (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    head  bigint NOT NULL,
    clock bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
INSERT INTO state (head, clock) VALUES (0, 0);

-- The chain of each origin: a row for each run of events without a missing number. The run that begins with 1 ends with
-- the contiguous end; nearly always it is the only one.
CREATE TABLE chains (
    origin     text COLLATE "C" NOT NULL,
    first      bigint NOT NULL,
    previous   bytea NOT NULL,   -- what the first event carries as the hash before it
    origin_seq bigint NOT NULL,  -- the number of the last event, its hash and its place
    hash       bytea NOT NULL,
    position   bigint NOT NULL,
    PRIMARY KEY (origin, first)
) WITH (fillfactor = 50);

-- Events whose number another event of their origin had before.
CREATE TABLE forks (
    position   bigint PRIMARY KEY,
    origin     text COLLATE "C" NOT NULL,
    origin_seq bigint NOT NULL,
    hash       bytea NOT NULL
);
CREATE INDEX forks_by_origin ON forks (origin);

-- One signature for events that were recorded together, at the positions first to first + count - 1. It survives a purge.
CREATE TABLE groups (
    first     bigint PRIMARY KEY,
    origin    text COLLATE "C" NOT NULL,
    first_seq bigint NOT NULL,
    count     integer NOT NULL CHECK (count BETWEEN 1 AND 128),
    signature bytea NOT NULL CHECK (signature <> '')
);

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
    signature   bytea NOT NULL,  -- of an event of another log whose group is not here, and the path to its root
    path        bytea NOT NULL,
    erased_by   text COLLATE "C" NOT NULL DEFAULT '',  -- the event that allowed the erasure of payload and salt
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
    lamport    bigint NOT NULL,
    reserved   bigint NOT NULL,
    hash_format integer NOT NULL
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

-- The one change that an event may have: its payload and its salt go, and who allowed it stays on record.
CREATE FUNCTION refuse_unless_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.erased_by <> '' OR NEW.erased_by = '' OR OLD.salt = '' OR NEW.salt <> '' OR NEW.payload <> ''
        OR (NEW.position, NEW.id, NEW.stream, NEW.sequence, NEW.type, NEW.scope, NEW.received_us, NEW.header,
            NEW.signature, NEW.path)
        IS DISTINCT FROM (OLD.position, OLD.id, OLD.stream, OLD.sequence, OLD.type, OLD.scope, OLD.received_us,
            OLD.header, OLD.signature, OLD.path)
    THEN
        RAISE EXCEPTION 'everlog: events are never changed' USING ERRCODE = 'EV001';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
    FOR EACH ROW EXECUTE FUNCTION refuse_unless_erased();
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
CREATE TRIGGER groups_are_not_changed BEFORE UPDATE OR DELETE ON groups
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('a signature is never changed');
CREATE TRIGGER groups_are_not_emptied BEFORE TRUNCATE ON groups
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('a signature is never deleted');
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
ALTER TABLE groups ENABLE ALWAYS TRIGGER groups_are_not_changed;
ALTER TABLE groups ENABLE ALWAYS TRIGGER groups_are_not_emptied;
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
            sha256('\x00'::bytea || convert_to(header, 'UTF8')), decode(fields ->> 16, 'base64'),
            (fields ->> 4)::bigint, place, 2
        FROM (SELECT *, header::json AS fields FROM events WHERE events.stream = the_stream) AS gone;
    DELETE FROM events WHERE events.stream = the_stream;
    PERFORM pg_notify('everlog ' || current_schema(), place::text);
    RETURN QUERY SELECT place, last, removed;
END $$;

REVOKE ALL ON FUNCTION purge(text, text, text, bigint), events_follow_on(), refuse(), refuse_unless_purged(),
    refuse_unless_erased() FROM PUBLIC;
