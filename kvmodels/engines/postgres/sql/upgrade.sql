-- What the tables of earlier releases lack. An upgraded store keeps the reads that its programs were promised. Roles have
-- rights on the tables that were there when they were granted, so the new one gets those of "commits".

ALTER TABLE SCHEMA.commits ADD COLUMN IF NOT EXISTS base int8;
ALTER TABLE SCHEMA.meta ADD COLUMN IF NOT EXISTS durable_reads boolean NOT NULL DEFAULT true;
CREATE TABLE IF NOT EXISTS SCHEMA.seals (version int8 PRIMARY KEY);

DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END AS role, a.privilege_type AS privilege
        FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
        WHERE c.oid = 'SCHEMA.commits'::pg_catalog.regclass AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE pg_catalog.format('GRANT %s ON SCHEMA.seals TO %s', one.privilege, one.role);
    END LOOP;
END
$$;
