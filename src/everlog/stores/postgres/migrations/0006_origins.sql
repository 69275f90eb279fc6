-- A log that was put back from a dump continues under a new origin, so that no number of its chain is given twice.

ALTER TABLE identity
    ADD COLUMN former text[] NOT NULL DEFAULT '{}',    -- the origins that it had before
    ADD COLUMN heads  bigint[] NOT NULL DEFAULT '{}',  -- the head when each of them ended
    ADD COLUMN place  text NOT NULL DEFAULT '';        -- where it made its last events

-- The cluster, its timeline, the database and the table: a restored dump has another table, a promoted standby and a
-- recovery to a point in time have another timeline.
CREATE FUNCTION place_here() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT concat_ws('.', (SELECT system_identifier FROM pg_control_system()),
        left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
        (SELECT oid FROM pg_database WHERE datname = current_database()), 'state'::regclass::oid)
$$;

-- Have the log continue under another origin, which must be new.
CREATE FUNCTION continue_as(new_origin text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM chains WHERE chains.origin = new_origin) THEN
        RAISE EXCEPTION 'everlog: the origin % is in use', new_origin USING ERRCODE = 'EV004';
    END IF;
    UPDATE identity SET former = former || origin, heads = heads || (SELECT head FROM state), origin = new_origin;
END $$;

-- Record the place of the log. If it was at another one, it continues under the given origin; without one, return true.
CREATE FUNCTION settle(new_origin text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    here text := place_here();
BEGIN
    IF EXISTS (SELECT FROM identity WHERE place NOT IN ('', here)) THEN
        IF new_origin = '' THEN
            RETURN true;
        END IF;
        PERFORM continue_as(new_origin);
    END IF;
    UPDATE identity SET place = here WHERE place <> here;
    RETURN false;
END $$;

REVOKE ALL ON FUNCTION place_here(), settle(text), continue_as(text) FROM PUBLIC;

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
        ' forget_claims(bigint, bigint), keep_notes(text[], bytea[], bigint[]), forget_notes(bigint), settle(text),'
        ' continue_as(text), sign_groups(bigint[], integer[], bytea[]) TO %I', writer);
    -- To lock the row: this column is true in every row there can be.
    EXECUTE format('GRANT UPDATE (one) ON state TO %I', writer);
    EXECUTE format('GRANT INSERT, UPDATE ON projection_checkpoints TO %I', writer);
END $$;

-- Roles that may write already.
DO $$
DECLARE
    the_role name;
BEGIN
    FOR the_role IN
        SELECT DISTINCT rolname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid, aclexplode(attacl) AS given
            JOIN pg_roles ON pg_roles.oid = given.grantee
        WHERE pg_class.oid = 'events'::regclass AND privilege_type = 'INSERT' AND grantee <> relowner
    LOOP
        PERFORM grant_writer(the_role);
    END LOOP;
END $$;
