-- Who may do what. The owner calls these, for roles that exist:
--
--     SELECT everlog.grant_writer('shop')              append and read everything; nothing else
--     SELECT everlog.grant_reader('auditor')           read everything
--     SELECT everlog.grant_tenant('acme_app', 'acme')  read what is in a scope or below it
--     SELECT everlog.grant_purger('officer')           purge and erase

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
        'GRANT SELECT ON migrations, identity, state, chains, forks, groups, events, purges, purged, claims, notes,'
        ' projection_checkpoints TO %I', reader);
END $$;

CREATE FUNCTION grant_writer(writer name) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM grant_reader(writer);
    -- Every column but the derived one. A position that is not the next one is refused by events_follow_on.
    EXECUTE format(
        'GRANT INSERT (position, id, stream, sequence, type, scope, received_us, header, payload, salt, signature,'
        ' path, erased_by) ON events TO %I', writer);
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
