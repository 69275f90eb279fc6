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
