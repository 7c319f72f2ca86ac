-- The functions of one store, version 1. SCHEMA stands for its quoted name.
--
-- Each has its own search path: a function of a tenant in a shared schema would otherwise run with the rights of the
-- caller. JIT is off and scans of whole tables are, because the planner knows nothing of arrays in parameters; plans
-- are generic, so that no call plans. Parameters that mean "none" are -2^63, so that types never change with a value.

-- The present time in milliseconds: the given one, or the server's with the offset of the store, never before "mark".
CREATE OR REPLACE FUNCTION SCHEMA.state_1(given int8, mark int8)
RETURNS TABLE (state int8, present int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    last_at int8;
BEGIN
    SELECT c.version, c.at INTO STRICT state, last_at FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1;
    IF given = -9223372036854775808 THEN
        present := (extract(epoch FROM clock_timestamp()) * 1000)::int8 + (SELECT m.clock_offset FROM SCHEMA.meta m WHERE m.one);
    ELSE
        present := given;
    END IF;
    present := greatest(present, last_at, mark);
    RETURN NEXT;
END
$$;

-- Reads ranges in one snapshot. The first row of the answer (part -1) is the state: its version and time.
-- Part -2 says that the guard does not hold, with the version that its key has; then nothing is read. Part i is a row
-- of range i; the parts from "cardinality(starts)" on are rows that follow. bounds[i]: 1 reverse, 2 keys only, 4 one key.
-- follow 1: the row behind each entry of the one range, whose key is prefixes[1] and the rest of the entry's from
-- cuts[1] on; version -1: there is none. follow 2: the row behind the one key, guessed of its value: way i of
-- the guess is for values of lengths[i] bytes. follow 3: the same as 1 for several ranges, range i with cuts[i], and
-- only for the first lengths[1] entries of them all; version -2: a later one.
CREATE OR REPLACE FUNCTION SCHEMA.read_1(
    starts bytea[], ends bytea[], limits int8[], bounds int8[], guard bytea, guarded int8,
    given int8, mark int8, hiding boolean,
    follow int8, prefixes bytea[], cuts int8[], suffixes bytea[], lengths int8[]
)
RETURNS TABLE (part int4, k bytea, v bytea, e int4, s int8, d int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    state int8;
    present int8;
    last_at int8;
    horizon int8 := -9223372036854775808;
    found int8;
    behind bytea;
    way int4;
    remaining int8;
BEGIN
    SELECT c.version, c.at INTO STRICT state, last_at FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1;
    IF given = -9223372036854775808 THEN
        present := (extract(epoch FROM clock_timestamp()) * 1000)::int8 + (SELECT m.clock_offset FROM SCHEMA.meta m WHERE m.one);
    ELSE
        present := given;
    END IF;
    present := greatest(present, last_at, mark);
    IF hiding THEN
        horizon := present;
    END IF;
    part := -1; s := state; d := present;
    RETURN NEXT;
    IF guarded <> -9223372036854775808 THEN
        found := coalesce(
            (SELECT t.version FROM SCHEMA.kv t WHERE t.key = guard AND (t.expires_at IS NULL OR t.expires_at > horizon)), -1
        );
        IF found <> guarded THEN
            part := -2; s := found;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF follow = 1 THEN
        IF bounds[1] & 1 = 0 THEN
            RETURN QUERY
            SELECT 0, o.key, r.value, r.encoding, coalesce(r.version, -1), r.expires_at
            FROM (
                SELECT t.key FROM SCHEMA.kv t
                WHERE t.key >= starts[1] AND t.key < ends[1] AND (t.expires_at IS NULL OR t.expires_at > horizon)
                ORDER BY t.key LIMIT limits[1]
            ) o
            LEFT JOIN LATERAL (
                SELECT * FROM SCHEMA.kv t
                WHERE t.key = prefixes[1] || substr(o.key, (cuts[1] + 1)::int4)
                AND (t.expires_at IS NULL OR t.expires_at > horizon) LIMIT 1
            ) r ON true
            ORDER BY o.key;
        ELSE
            RETURN QUERY
            SELECT 0, o.key, r.value, r.encoding, coalesce(r.version, -1), r.expires_at
            FROM (
                SELECT t.key FROM SCHEMA.kv t
                WHERE t.key >= starts[1] AND t.key < ends[1] AND (t.expires_at IS NULL OR t.expires_at > horizon)
                ORDER BY t.key DESC LIMIT limits[1]
            ) o
            LEFT JOIN LATERAL (
                SELECT * FROM SCHEMA.kv t
                WHERE t.key = prefixes[1] || substr(o.key, (cuts[1] + 1)::int4)
                AND (t.expires_at IS NULL OR t.expires_at > horizon) LIMIT 1
            ) r ON true
            ORDER BY o.key DESC;
        END IF;
        RETURN;
    END IF;
    IF follow = 2 THEN
        FOR part, k, v, e, s, d IN
            SELECT 0, t.key, t.value, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key = starts[1] AND (t.expires_at IS NULL OR t.expires_at > horizon)
        LOOP
            RETURN NEXT;
            way := coalesce(array_position(lengths, length(v)::int8), 1);
            behind := prefixes[way] || substr(v, (cuts[way] + 1)::int4) || suffixes[way];
            RETURN QUERY
            SELECT 1, t.key, t.value, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key = behind AND (t.expires_at IS NULL OR t.expires_at > horizon);
        END LOOP;
        RETURN;
    END IF;
    IF follow = 3 THEN
        remaining := lengths[1];
        FOR i IN 1 .. cardinality(starts) LOOP
            IF bounds[i] & 1 = 0 THEN
                RETURN QUERY
                SELECT i - 1, o.key, r.value, r.encoding,
                    CASE WHEN o.n > remaining THEN -2 ELSE coalesce(r.version, -1) END, r.expires_at
                FROM (
                    SELECT e.key, row_number() OVER (ORDER BY e.key) AS n
                    FROM (
                        SELECT t.key FROM SCHEMA.kv t
                        WHERE t.key >= starts[i] AND t.key < ends[i] AND (t.expires_at IS NULL OR t.expires_at > horizon)
                        ORDER BY t.key LIMIT limits[i]
                    ) e
                ) o
                LEFT JOIN LATERAL (
                    SELECT * FROM SCHEMA.kv t
                    WHERE o.n <= remaining AND t.key = prefixes[1] || substr(o.key, (cuts[i] + 1)::int4)
                    AND (t.expires_at IS NULL OR t.expires_at > horizon) LIMIT 1
                ) r ON true
                ORDER BY o.key;
            ELSE
                RETURN QUERY
                SELECT i - 1, o.key, r.value, r.encoding,
                    CASE WHEN o.n > remaining THEN -2 ELSE coalesce(r.version, -1) END, r.expires_at
                FROM (
                    SELECT e.key, row_number() OVER (ORDER BY e.key DESC) AS n
                    FROM (
                        SELECT t.key FROM SCHEMA.kv t
                        WHERE t.key >= starts[i] AND t.key < ends[i] AND (t.expires_at IS NULL OR t.expires_at > horizon)
                        ORDER BY t.key DESC LIMIT limits[i]
                    ) e
                ) o
                LEFT JOIN LATERAL (
                    SELECT * FROM SCHEMA.kv t
                    WHERE o.n <= remaining AND t.key = prefixes[1] || substr(o.key, (cuts[i] + 1)::int4)
                    AND (t.expires_at IS NULL OR t.expires_at > horizon) LIMIT 1
                ) r ON true
                ORDER BY o.key DESC;
            END IF;
            GET DIAGNOSTICS found = ROW_COUNT;
            remaining := remaining - found;
        END LOOP;
        RETURN;
    END IF;
    IF 4 <= ALL (bounds) THEN
        RETURN QUERY
        SELECT (o.i - 1)::int4, r.* FROM unnest(starts) WITH ORDINALITY o(key, i)
        CROSS JOIN LATERAL (
            SELECT t.key, t.value, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key = o.key AND (t.expires_at IS NULL OR t.expires_at > horizon) LIMIT 1
        ) r;
        RETURN;
    END IF;
    FOR i IN 1 .. cardinality(starts) LOOP
        IF bounds[i] & 4 <> 0 THEN
            RETURN QUERY
            SELECT i - 1, t.key, t.value, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key = starts[i] AND (t.expires_at IS NULL OR t.expires_at > horizon);
        ELSIF bounds[i] = 0 THEN
            RETURN QUERY
            SELECT i - 1, t.key, t.value, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key >= starts[i] AND t.key < ends[i] AND (t.expires_at IS NULL OR t.expires_at > horizon)
            ORDER BY t.key LIMIT limits[i];
        ELSIF bounds[i] = 1 THEN
            RETURN QUERY
            SELECT i - 1, t.key, t.value, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key >= starts[i] AND t.key < ends[i] AND (t.expires_at IS NULL OR t.expires_at > horizon)
            ORDER BY t.key DESC LIMIT limits[i];
        ELSIF bounds[i] = 2 THEN
            RETURN QUERY
            SELECT i - 1, t.key, ''::bytea, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key >= starts[i] AND t.key < ends[i] AND (t.expires_at IS NULL OR t.expires_at > horizon)
            ORDER BY t.key LIMIT limits[i];
        ELSE
            RETURN QUERY
            SELECT i - 1, t.key, ''::bytea, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
            WHERE t.key >= starts[i] AND t.key < ends[i] AND (t.expires_at IS NULL OR t.expires_at > horizon)
            ORDER BY t.key DESC LIMIT limits[i];
        END IF;
    END LOOP;
END
$$;

-- Counts what read_1 would give. The first row (part -1) is the state; part -2 says that the guard does not hold.
CREATE OR REPLACE FUNCTION SCHEMA.count_1(
    starts bytea[], ends bytea[], limits int8[], guard bytea, guarded int8, given int8, mark int8
)
RETURNS TABLE (part int4, s int8, d int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    found int8;
BEGIN
    SELECT -1, o.state, o.present INTO part, s, d FROM SCHEMA.state_1(given, mark) o;
    RETURN NEXT;
    IF guarded <> -9223372036854775808 THEN
        found := coalesce(
            (SELECT t.version FROM SCHEMA.kv t WHERE t.key = guard AND (t.expires_at IS NULL OR t.expires_at > d)), -1
        );
        IF found <> guarded THEN
            part := -2; s := found;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    FOR i IN 1 .. cardinality(starts) LOOP
        part := i - 1;
        SELECT count(*) INTO s FROM (
            SELECT FROM SCHEMA.kv t
            WHERE t.key >= starts[i] AND t.key < ends[i] AND (t.expires_at IS NULL OR t.expires_at > d)
            LIMIT limits[i]
        ) o;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Takes the lock of writers, which no other role and no other store can take, and returns what a commit starts from.
-- It has no settings of its own, because those of its callers, which are the functions below, are in force.
CREATE OR REPLACE FUNCTION SCHEMA.enter_1(
    given int8, mark int8, since int8, wait_ms int8, synced boolean,
    OUT state int8, OUT present int8, OUT floor int8, OUT forgotten int8, OUT logging boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    last_at int8;
    ahead int8;
    known text;
    server text;
    epoch float8;
    done text;
BEGIN
    -- Under repeatable read two commits that conflict would both be applied.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation level is not read committed' USING ERRCODE = 'KV002';
    END IF;
    -- A setting on the function would be gone before the end of the transaction, where it counts.
    IF NOT synced THEN
        done := set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        done := set_config('synchronous_commit', 'on', true);
    END IF;
    done := set_config('lock_timeout', wait_ms::text, true);
    LOCK TABLE SCHEMA.gate IN EXCLUSIVE MODE;
    SELECT c.version, c.at INTO STRICT state, last_at FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1;
    SELECT m.forgotten, m.log_ms IS NOT NULL, m.clock_offset, m.timeline || m.system_id
    INTO STRICT forgotten, logging, ahead, known FROM SCHEMA.meta m WHERE m.one;
    IF given = -9223372036854775808 THEN
        epoch := date_part('epoch', clock_timestamp());
        present := (epoch * 1000)::int8 + ahead;
        IF greatest(last_at, mark) - present > 1000 THEN
            -- Time goes on from the mark at its full rate, instead of standing still until the clock has caught up.
            UPDATE SCHEMA.meta o SET clock_offset = o.clock_offset + greatest(last_at, mark) - present WHERE o.one;
        END IF;
        floor := (epoch * 1000000)::int8;
    ELSE
        present := given;
        floor := given * 1000 + 1;
    END IF;
    present := greatest(present, last_at, mark);
    floor := greatest(floor, state + 1, since + 1);
    -- Once for each session: it ends with the server, and takes the lock only after a promotion, not before.
    server := current_setting('kvmodels.server', true);
    IF coalesce(server, '') = '' THEN
        server := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || (pg_control_system()).system_identifier;
        done := set_config('kvmodels.server', server, false);
    END IF;
    IF server <> known OR since > state THEN
        -- A failover or a restore: versions of commits that were lost by it are never given again.
        floor := floor + 3600000000;
        UPDATE SCHEMA.meta o SET timeline = left(server, 8), system_id = substr(server, 9)::int8 WHERE o.one;
    END IF;
END
$$;

-- Tells listeners of a commit, if there are any: they share an advisory lock. Nothing is sent without them, because the
-- server lets one notifying transaction commit at a time, in all its databases.
CREATE OR REPLACE FUNCTION SCHEMA.notify_1(version int8)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(1802923364, 'SCHEMA.gate'::regclass::oid::int4) THEN
        PERFORM pg_notify('kvmodels_' || 'SCHEMA.gate'::regclass::oid, version::text);
    END IF;
END
$$;

-- Four bytes of a number in little endian, from the one at "start" on.
CREATE OR REPLACE FUNCTION SCHEMA.half_1(number bytea, start int4)
RETURNS int8
LANGUAGE sql IMMUTABLE
AS $$
SELECT get_byte(number, start) + (get_byte(number, start + 1) << 8) + (get_byte(number, start + 2) << 16)
    + (get_byte(number, start + 3)::int8 << 24)
$$;

-- What is stored after a sum (kind 0), minimum (1) or maximum (2). In two halves, because PostgreSQL has no unsigned
-- 64-bit integers.
CREATE OR REPLACE FUNCTION SCHEMA.combined_1(kind int8, stored bytea, operand bytea)
RETURNS bytea
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    low int8 := SCHEMA.half_1(stored, 0);
    high int8 := SCHEMA.half_1(stored, 4);
    other_low int8 := SCHEMA.half_1(operand, 0);
    other_high int8 := SCHEMA.half_1(operand, 4);
BEGIN
    IF kind > 0 THEN
        RETURN CASE WHEN ((high, low) < (other_high, other_low)) = (kind = 1) THEN stored ELSE operand END;
    END IF;
    low := low + other_low;
    high := high + other_high + (low >> 32);
    FOR b IN 0 .. 3 LOOP
        stored := set_byte(set_byte(stored, b, (low >> 8 * b & 255)::int4), b + 4, (high >> 8 * b & 255)::int4);
    END LOOP;
    RETURN stored;
END
$$;

-- Applies operations, each whole or not at all, in one transaction. "numbers" begins with the time (-2^63: the
-- server's), the mark, "since", the milliseconds to wait for the lock, and 1 if the commit waits for the disk. Then, of
-- each operation: how many checks, sets, sets whose key ends with the versionstamp, deletes and sums it has; version
-- and kind of each check; encoding and deadline of each set; the kind of each sum; the deadlines of the sums whose kind
-- has 8. "blobs" has, of each operation: the keys of its checks, sets, deletes and sums, then the values of the sets and
-- the operands of the sums. Few arrays, because each parameter takes the client and the server a microsecond or two.
-- A key appears once among the sets, deletes and sums of an operation; sets with a versionstamp are the last. Kinds of
-- checks: 0 a live row, 1 a stored row, 2 no live row below a prefix; version -1: absent. Kinds of sums: 0 sum, 1 min,
-- 2 max, of unsigned 64-bit integers in little endian with the encoding 2; plus 4 if a live row keeps its deadline, or
-- stays without one; plus 8 with a deadline for every other row. Programs of earlier releases send neither.
-- The first row (part -1) is the state before; part i is operation i. outcome 0: applied, with its version; 1: the
-- positions of the checks that failed; 2: the positions of the sums that met another value.
-- A series in the list of a subquery numbers the rows; "unnest" of slices of the arrays took longer. A row is looked up
-- by a subquery for a value: EXISTS would become a join, for which the planner once read the whole table.
CREATE OR REPLACE FUNCTION SCHEMA.commit_1(ids uuid[], blobs bytea[], numbers int8[])
RETURNS TABLE (part int4, outcome int4, s int8, d int8, failed int4[])
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    g record;
    blob int4 := 0; -- so many blobs and numbers are of operations before
    at int4 := 5;
    checks int4;
    sets int4;
    stamped int4;
    changes int4;
    sums int4;
    timed int4;
    rule int8;
    deadline int8;
    present int8;
    last int8;
    next int8;
    stamp bytea;
BEGIN
    g := SCHEMA.enter_1(numbers[1], numbers[2], numbers[3], numbers[4], numbers[5] = 1);
    IF numbers[3] < g.forgotten THEN
        RAISE EXCEPTION 'the operation is older than the memory of the store' USING ERRCODE = 'KV003';
    END IF;
    present := g.present;
    last := g.state;
    part := -1; s := last; d := present;
    RETURN NEXT;
    FOR i IN 1 .. cardinality(ids) LOOP
        checks := numbers[at + 1]; sets := numbers[at + 2]; stamped := numbers[at + 3]; sums := numbers[at + 5];
        changes := sets + numbers[at + 4] + sums;
        at := at + 5;
        part := i - 1; outcome := 0; s := last; failed := NULL;
        IF checks > 0 THEN
            failed := ARRAY(
                SELECT o.n - 1 FROM (SELECT generate_series(1, checks) AS n) o
                WHERE CASE numbers[at + 2 * o.n]
                    WHEN 2 THEN EXISTS (
                        SELECT FROM SCHEMA.kv t
                        WHERE t.key >= blobs[blob + o.n] || '\x00'::bytea
                        AND t.key < blobs[blob + o.n] || '\xff'::bytea
                        AND (t.expires_at IS NULL OR t.expires_at > present)
                        ORDER BY t.key LIMIT 1)
                    ELSE numbers[at + 2 * o.n - 1] <> coalesce((
                        SELECT t.version FROM SCHEMA.kv t WHERE t.key = blobs[blob + o.n]
                        AND (numbers[at + 2 * o.n] = 1 OR t.expires_at IS NULL OR t.expires_at > present)), -1)
                END
            );
            blob := blob + checks; at := at + 2 * checks;
            IF cardinality(failed) > 0 THEN
                outcome := 1;
            END IF;
        END IF;
        IF sums > 0 AND outcome = 0 THEN
            failed := ARRAY(
                SELECT o.n - 1 FROM (SELECT generate_series(1, sums) AS n) o
                WHERE (
                    SELECT t.encoding <> 2 OR length(t.value) <> 8 FROM SCHEMA.kv t
                    WHERE t.key = blobs[blob + changes - sums + o.n]
                    AND (t.expires_at IS NULL OR t.expires_at > present)
                )
            );
            IF cardinality(failed) > 0 THEN
                outcome := 2;
            END IF;
        END IF;
        IF outcome = 0 THEN
            next := greatest(last + 1, g.floor);
            IF stamped > 0 THEN
                stamp := '\x02'::bytea || convert_to(lpad(to_hex(next), 16, '0') || '0000', 'UTF8') || '\x00'::bytea;
            END IF;
            IF sets > 0 THEN
                INSERT INTO SCHEMA.kv AS t (key, value, encoding, version, expires_at)
                SELECT
                    CASE WHEN o.n <= sets - stamped THEN blobs[blob + o.n] ELSE blobs[blob + o.n] || stamp END,
                    blobs[blob + changes + o.n], numbers[at + 2 * o.n - 1], next, numbers[at + 2 * o.n]
                FROM (SELECT generate_series(1, sets) AS n) o
                ON CONFLICT (key) DO UPDATE SET
                    value = excluded.value, encoding = excluded.encoding,
                    version = excluded.version, expires_at = excluded.expires_at;
            END IF;
            IF changes > sets + sums THEN
                DELETE FROM SCHEMA.kv t
                WHERE t.key = ANY (ARRAY(SELECT blobs[blob + n] FROM generate_series(sets + 1, changes - sums) n));
            END IF;
            timed := 0;
            FOR n IN 1 .. sums LOOP
                rule := numbers[at + 2 * sets + n];
                deadline := NULL;
                IF rule & 8 <> 0 THEN
                    timed := timed + 1;
                    deadline := numbers[at + 2 * sets + sums + timed];
                END IF;
                INSERT INTO SCHEMA.kv AS t (key, value, encoding, version, expires_at)
                VALUES (blobs[blob + changes - sums + n], blobs[blob + changes + sets + n], 2, next, deadline)
                ON CONFLICT (key) DO UPDATE SET
                    value = CASE
                        WHEN t.expires_at <= present THEN excluded.value
                        ELSE SCHEMA.combined_1(rule & 3, t.value, excluded.value)
                    END,
                    encoding = 2, version = excluded.version,
                    expires_at = CASE
                        WHEN rule & 4 = 0 OR t.expires_at <= present THEN excluded.expires_at
                        ELSE t.expires_at
                    END;
            END LOOP;
            IF g.logging THEN
                INSERT INTO SCHEMA.log AS l (key, version)
                SELECT
                    CASE WHEN o.n <= sets - stamped OR o.n > sets THEN blobs[blob + o.n] ELSE blobs[blob + o.n] || stamp END,
                    next
                FROM (SELECT generate_series(1, changes) AS n) o
                ON CONFLICT (key) DO UPDATE SET version = excluded.version;
            END IF;
            INSERT INTO SCHEMA.commits (version, prev, at, id, void) VALUES (next, last, present, ids[i], false);
            last := next;
            s := next;
        END IF;
        blob := blob + changes + sets + sums; at := at + 2 * sets + sums;
        IF sums > 0 THEN
            at := at + (SELECT count(*) FROM generate_series(at - sums + 1, at) n WHERE numbers[n] & 8 <> 0);
        END IF;
        RETURN NEXT;
    END LOOP;
    IF last <> g.state THEN
        PERFORM SCHEMA.notify_1(last);
    END IF;
END
$$;

-- Finds out what became of operations whose answer was lost, under the lock of writers, so that none of them is still
-- under way. Those that were not applied get a void row: a late delivery then fails on the unique index.
-- outcome 0: applied, with its version; 1: void; 2: forgotten, the rows of that time have been removed.
-- It always writes, so that its own commit is replicated as the commits that it reports.
CREATE OR REPLACE FUNCTION SCHEMA.resolve_1(ids uuid[], given int8, mark int8, since int8, wait_ms int8)
RETURNS TABLE (part int4, outcome int4, s int8)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    g record;
    voided boolean;
    last int8;
BEGIN
    -- "since" of the operations may be of a lost future, which must not raise the counter twice.
    g := SCHEMA.enter_1(given, mark, since, wait_ms, true);
    last := g.state;
    FOR i IN 1 .. cardinality(ids) LOOP
        part := i - 1;
        SELECT c.version, c.void INTO s, voided FROM SCHEMA.commits c WHERE c.id = ids[i];
        IF FOUND THEN
            outcome := voided::int4;
        ELSIF since < g.forgotten THEN
            outcome := 2;
        ELSE
            outcome := 1;
            s := greatest(last + 1, g.floor);
            INSERT INTO SCHEMA.commits (version, prev, at, id, void) VALUES (s, last, g.present, ids[i], true);
            last := s;
        END IF;
        RETURN NEXT;
    END LOOP;
    UPDATE SCHEMA.meta m SET resolutions = m.resolutions + 1 WHERE m.one;
END
$$;

-- Removes up to "most" rows whose deadline is reached, the earliest first, as one commit; how many there were.
-- After a jump of the clock by more than an hour it removes nothing until the clock of the caller confirms the time.
CREATE OR REPLACE FUNCTION SCHEMA.sweep_1(
    most int8, confirmed int8, given int8, mark int8, since int8, wait_ms int8, synced boolean
)
RETURNS TABLE (removed int8, s int8, d int8)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    g record;
    doomed bytea[];
    last_at int8;
BEGIN
    g := SCHEMA.enter_1(given, mark, since, wait_ms, synced);
    s := g.state; d := g.present; removed := 0;
    SELECT c.at INTO STRICT last_at FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1;
    IF given = -9223372036854775808 AND d - last_at > 3600000 AND abs(d - confirmed) > 3600000 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    doomed := ARRAY(
        SELECT t.key FROM SCHEMA.kv t WHERE t.expires_at IS NOT NULL AND t.expires_at <= d ORDER BY t.expires_at LIMIT most
    );
    removed := cardinality(doomed);
    IF removed > 0 THEN
        s := greatest(s + 1, g.floor);
        DELETE FROM SCHEMA.kv t WHERE t.key = ANY (doomed);
        IF g.logging THEN
            INSERT INTO SCHEMA.log AS l (key, version) SELECT o.key, s FROM unnest(doomed) o(key)
            ON CONFLICT (key) DO UPDATE SET version = excluded.version;
        END IF;
        INSERT INTO SCHEMA.commits (version, prev, at, id, void) VALUES (s, g.state, d, gen_random_uuid(), false);
        PERFORM SCHEMA.notify_1(s);
    END IF;
    RETURN NEXT;
END
$$;

-- Forgets changes, and rows of commits, that were made up to a time (-2^63: as long ago as changes are kept); at most
-- "most" commits. Both keep their end in meta, so that a search for the oldest does not pass the dead rows of earlier
-- ones.
CREATE OR REPLACE FUNCTION SCHEMA.trim_1(
    log_before int8, commits_before int8, most int8, given int8, mark int8, since int8, wait_ms int8, synced boolean
)
RETURNS int8
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    g record;
    m record;
    cut int8;
    version int8;
    made int8;
    removed int8 := 0;
BEGIN
    g := SCHEMA.enter_1(given, mark, since, wait_ms, synced);
    SELECT * INTO STRICT m FROM SCHEMA.meta o WHERE o.one;
    IF g.logging THEN
        IF log_before = -9223372036854775808 THEN
            log_before := g.present - m.log_ms;
        END IF;
        -- Times rise with versions. A loop ends at the first that is too young, where a condition would read them all.
        FOR version, made IN
            SELECT c.version, c.at FROM SCHEMA.commits c WHERE c.version > m.log_floor ORDER BY c.version LIMIT most
        LOOP
            EXIT WHEN made > log_before;
            cut := version;
        END LOOP;
        IF cut IS NOT NULL THEN
            DELETE FROM SCHEMA.log l WHERE l.version <= cut;
            UPDATE SCHEMA.meta o SET log_floor = cut WHERE o.one;
        END IF;
        commits_before := least(commits_before, log_before);
    END IF;
    cut := NULL;
    FOR version, made IN
        SELECT c.version, c.at FROM SCHEMA.commits c
        WHERE c.version > m.forgotten AND c.version < g.state ORDER BY c.version LIMIT most
    LOOP
        EXIT WHEN made > commits_before;
        cut := version;
    END LOOP;
    IF cut IS NOT NULL THEN
        DELETE FROM SCHEMA.commits c WHERE c.version > m.forgotten AND c.version <= cut;
        GET DIAGNOSTICS removed = ROW_COUNT;
        UPDATE SCHEMA.meta o SET forgotten = cut WHERE o.one;
    END IF;
    RETURN removed;
END
$$;

-- What waits to be removed: the earliest deadline, how long changes are kept, up to which version they are gone, and
-- when the oldest that is left was made.
CREATE OR REPLACE FUNCTION SCHEMA.due_1()
RETURNS TABLE (deadline int8, log_ms int8, log_floor int8, oldest int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    SELECT t.expires_at INTO deadline FROM SCHEMA.kv t
    WHERE t.expires_at IS NOT NULL ORDER BY t.expires_at LIMIT 1;
    SELECT m.log_ms, m.log_floor INTO STRICT log_ms, log_floor FROM SCHEMA.meta m WHERE m.one;
    IF log_ms IS NOT NULL THEN
        SELECT c.at INTO oldest FROM SCHEMA.commits c
        WHERE c.version = (SELECT l.version FROM SCHEMA.log l ORDER BY l.version LIMIT 1);
    END IF;
    RETURN NEXT;
END
$$;

-- The changes of a range after a version, in commit order; whole commits, at least "most" changes if there are so many.
-- The first row (part -1) is the state: its version, time, the end of the log's past, and in "e" 0: there is no log,
-- 1: the version is not one of this history, 2: the log reaches back to it.
CREATE OR REPLACE FUNCTION SCHEMA.changes_1(
    start bytea, stop bytea, most int8, since int8, given int8, mark int8
)
RETURNS TABLE (part int4, k bytea, changed int8, v bytea, e int4, s int8, d int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    present int8;
    last int8;
    gone int8;
    cut int8;
BEGIN
    SELECT o.state, o.present INTO STRICT last, present FROM SCHEMA.state_1(given, mark) o;
    SELECT m.log_floor INTO STRICT gone FROM SCHEMA.meta m WHERE m.one;
    -- OFFSET 0, so that the log is always walked by versions: by keys, a call would read all that is kept of the range.
    cut := (
        SELECT o.version FROM (
            SELECT l.version, l.key FROM SCHEMA.log l WHERE l.version > since ORDER BY l.version, l.key OFFSET 0
        ) o
        WHERE o.key >= start AND o.key < stop ORDER BY o.version, o.key OFFSET most - 1 LIMIT 1
    );
    part := -1; s := last; d := present; changed := coalesce(cut, last); k := NULL;
    e := CASE
        WHEN gone IS NULL THEN 0
        WHEN since < gone OR NOT EXISTS (SELECT FROM SCHEMA.commits c WHERE c.version = since) THEN 1
        ELSE 2
    END;
    v := int8send(coalesce(gone, 0));
    RETURN NEXT;
    IF e < 2 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 0, o.key, o.version, r.value, r.encoding, r.version, r.expires_at
    FROM (
        SELECT l.version, l.key FROM SCHEMA.log l
        WHERE l.version > since AND l.version <= coalesce(cut, last) ORDER BY l.version, l.key OFFSET 0
    ) o
    LEFT JOIN LATERAL (
        SELECT * FROM SCHEMA.kv t WHERE t.key = o.key AND (t.expires_at IS NULL OR t.expires_at > present) LIMIT 1
    ) r ON true
    WHERE o.key >= start AND o.key < stop
    ORDER BY o.version, o.key;
END
$$;

-- Begins to keep changes for so many milliseconds, or changes how long, or ends it (0).
CREATE OR REPLACE FUNCTION SCHEMA.keep_changes_1(
    kept int8, given int8, mark int8, since int8, wait_ms int8
)
RETURNS int8
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    g record;
BEGIN
    g := SCHEMA.enter_1(given, mark, since, wait_ms, true);
    IF kept = 0 THEN
        DELETE FROM SCHEMA.log;
        UPDATE SCHEMA.meta m SET log_ms = NULL, log_floor = NULL WHERE m.one;
    ELSIF g.logging THEN
        UPDATE SCHEMA.meta m SET log_ms = kept WHERE m.one;
    ELSE
        UPDATE SCHEMA.meta m SET log_ms = kept, log_floor = g.state WHERE m.one;
    END IF;
    RETURN g.state;
END
$$;
