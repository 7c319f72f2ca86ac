-- The tables of one store, made once in an empty schema. SCHEMA stands for its quoted name.

CREATE TABLE SCHEMA.kv (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    encoding int4 NOT NULL,
    version int8 NOT NULL,
    expires_at int8
);
CREATE INDEX kv_deadlines ON SCHEMA.kv (expires_at) WHERE expires_at IS NOT NULL;

-- One row for each commit, never updated: an updated counter row would collect dead versions beside a long snapshot.
-- "prev" names the predecessor, so that two commits after the same one violate a unique constraint. "base" is null for a
-- commit that was visible only when it was on the disk; for an early one it is the greatest version known to be durable.
CREATE TABLE SCHEMA.commits (
    version int8 PRIMARY KEY,
    prev int8 NOT NULL CONSTRAINT commits_prev UNIQUE,
    at int8 NOT NULL,
    id uuid NOT NULL CONSTRAINT commits_id UNIQUE,
    void boolean NOT NULL,
    base int8
);

-- The last change of each key, kept while meta.log_ms is not null.
CREATE TABLE SCHEMA.log (
    key bytea PRIMARY KEY,
    version int8 NOT NULL
);
CREATE INDEX log_versions ON SCHEMA.log (version, key);

-- Versions up to which everything is durable: a row is visible only after its own flush, and that of a standby.
CREATE TABLE SCHEMA.seals (version int8 PRIMARY KEY);

-- The lock of writers. It holds no rows.
CREATE TABLE SCHEMA.gate (nothing int4);

CREATE TABLE SCHEMA.meta (
    one boolean PRIMARY KEY CHECK (one),
    format int4 NOT NULL,
    functions int4 NOT NULL,
    clock_offset int8 NOT NULL,
    forgotten int8 NOT NULL,
    resolutions int8 NOT NULL,
    system_id int8 NOT NULL,
    timeline text NOT NULL,
    log_ms int8,
    log_floor int8,
    durable_reads boolean NOT NULL DEFAULT true
);

INSERT INTO SCHEMA.meta
SELECT true, 1, 0, 0, 0, 0, system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), NULL, NULL, false
FROM pg_control_system();

-- What the first commit comes after; its version is the wall clock, as that of every commit is at least.
INSERT INTO SCHEMA.commits (version, prev, at, id, void) VALUES (1, 0, 0, gen_random_uuid(), true);
