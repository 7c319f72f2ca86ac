-- The functions of one store. SCHEMA stands for its quoted name.
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
    sealed int8;
    wall int8;
    jump boolean := false;
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
    SELECT c.version, c.at, CASE WHEN c.base IS NULL THEN c.version
        ELSE greatest(c.base, (SELECT x.version FROM SCHEMA.seals x ORDER BY x.version DESC LIMIT 1)) END
    INTO STRICT state, last_at, sealed FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1;
    IF sealed < state THEN
        -- No other session would seal a relaxed commit on a state that is not durable, and a refusal rests on that state.
        done := set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true);
        INSERT INTO SCHEMA.seals VALUES (state) ON CONFLICT DO NOTHING;
    END IF;
    SELECT m.forgotten, m.log_ms IS NOT NULL, m.clock_offset, m.timeline || m.system_id
    INTO STRICT forgotten, logging, ahead, known FROM SCHEMA.meta m WHERE m.one;
    IF given = -9223372036854775808 THEN
        epoch := date_part('epoch', clock_timestamp());
        present := (epoch * 1000)::int8 + ahead;
        IF greatest(last_at, mark) - present > 1000 THEN
            -- Time goes on from the mark at its full rate, instead of standing still until the clock has caught up.
            jump := true;
            UPDATE SCHEMA.meta o SET clock_offset = o.clock_offset + greatest(last_at, mark) - present WHERE o.one;
        END IF;
        floor := (epoch * 1000000)::int8;
    ELSE
        present := given;
        floor := given * 1000 + 1;
    END IF;
    present := greatest(present, last_at, mark);
    wall := floor;
    floor := greatest(floor, state + 1, since + 1);
    -- Once for each session: it ends with the server, and takes the lock only after a promotion, not before.
    server := current_setting('kvmodels.server', true);
    IF coalesce(server, '') = '' THEN
        server := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || (pg_control_system()).system_identifier;
        done := set_config('kvmodels.server', server, false);
    END IF;
    IF server <> known OR (since > state AND since >= wall) OR jump THEN
        -- A failover, a restore, or a clock that went back: versions of lost commits are never given again. A lost
        -- version below the clock needs no more, because the next one is at least the clock.
        floor := floor + 3600000000;
        UPDATE SCHEMA.meta o SET timeline = left(server, 8), system_id = substr(server, 9)::int8 WHERE o.one;
    END IF;
END
$$;

-- As enter_1, for a commit that may end early: the lock is then free before the disk has it. "sealed" is the greatest
-- version that is known to be durable.
CREATE OR REPLACE FUNCTION SCHEMA.enter_2(
    given int8, mark int8, since int8, wait_ms int8, mode int8,
    OUT state int8, OUT present int8, OUT floor int8, OUT forgotten int8, OUT logging boolean, OUT sealed int8, OUT early boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    last_at int8;
    ahead int8;
    known text;
    server text;
    epoch float8;
    durable_reads boolean;
    wall int8;
    jump boolean := false;
    done text;
BEGIN
    -- Under repeatable read two commits that conflict would both be applied.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation level is not read committed' USING ERRCODE = 'KV002';
    END IF;
    done := set_config('lock_timeout', wait_ms::text, true);
    LOCK TABLE SCHEMA.gate IN EXCLUSIVE MODE;
    SELECT c.version, c.at, CASE WHEN c.base IS NULL THEN c.version
        ELSE greatest(c.base, (SELECT x.version FROM SCHEMA.seals x ORDER BY x.version DESC LIMIT 1)) END
    INTO STRICT state, last_at, sealed FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1;
    SELECT m.forgotten, m.log_ms IS NOT NULL, m.clock_offset, m.timeline || m.system_id, m.durable_reads
    INTO STRICT forgotten, logging, ahead, known, durable_reads FROM SCHEMA.meta m WHERE m.one;
    IF given = -9223372036854775808 THEN
        epoch := date_part('epoch', clock_timestamp());
        present := (epoch * 1000)::int8 + ahead;
        IF greatest(last_at, mark) - present > 1000 THEN
            -- Time goes on from the mark at its full rate, instead of standing still until the clock has caught up.
            jump := true;
            UPDATE SCHEMA.meta o SET clock_offset = o.clock_offset + greatest(last_at, mark) - present WHERE o.one;
        END IF;
        floor := (epoch * 1000000)::int8;
    ELSE
        present := given;
        floor := given * 1000 + 1;
    END IF;
    present := greatest(present, last_at, mark);
    wall := floor;
    -- While the counter is ahead of the clock, a version that is lost could be given again.
    early := mode = 2 AND NOT durable_reads AND state < wall;
    IF early AND sealed < state THEN
        -- Nothing has been sealed for a second: wait under the lock, so that no more piles up.
        early := present - (SELECT c.at FROM SCHEMA.commits c WHERE c.version > sealed ORDER BY c.version LIMIT 1) <= 1000;
    END IF;
    floor := greatest(floor, state + 1, since + 1);
    -- Once for each session: it ends with the server, and takes the lock only after a promotion, not before.
    server := current_setting('kvmodels.server', true);
    IF coalesce(server, '') = '' THEN
        server := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || (pg_control_system()).system_identifier;
        done := set_config('kvmodels.server', server, false);
    END IF;
    IF server <> known OR (since > state AND since >= wall) OR jump THEN
        early := false; -- if it were lost, so would be what it raises
        -- A failover, a restore, or a clock that went back: versions of lost commits are never given again. A lost
        -- version below the clock needs no more, because the next one is at least the clock.
        floor := floor + 3600000000;
        UPDATE SCHEMA.meta o SET timeline = left(server, 8), system_id = substr(server, 9)::int8 WHERE o.one;
    END IF;
    IF early OR (mode = 0 AND sealed = state) THEN
        done := set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        done := set_config('synchronous_commit', 'on', true);
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

-- The signed integer of 64 bits at a position of bytes, which counts from 1, in big endian.
CREATE OR REPLACE FUNCTION SCHEMA.integer_1(bytes bytea, place int4)
RETURNS int8
LANGUAGE sql IMMUTABLE
AS $$
SELECT ('x' || encode(substr(bytes, place, 8), 'hex'))::bit(64)::int8
$$;

-- A stored integer plus an operand, in the shortest form of msgpack; null if the stored value is no integer of 62 bits, or
-- if the result is outside of its bounds. The operand is three integers of 64 bits in big endian (what is added, the
-- smallest and the largest result), a byte that is not 0 if the nearer bound takes the place of a result outside, and the
-- form in which the operand is stored if there is nothing to add it to.
CREATE OR REPLACE FUNCTION SCHEMA.added_1(stored bytea, operand bytea)
RETURNS bytea
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    size int4 := length(stored) - 1;
    first int4;
    number int8;
    low int8 := SCHEMA.integer_1(operand, 9);
    high int8 := SCHEMA.integer_1(operand, 17);
BEGIN
    IF size < 0 THEN
        RETURN NULL;
    END IF;
    first := get_byte(stored, 0);
    IF size = 0 AND first < 128 THEN
        number := first;
    ELSIF size = 0 AND first >= 224 THEN
        number := first - 256;
    ELSIF first BETWEEN 204 AND 211 AND size = 1 << (first & 3) THEN
        number := ('x' || lpad(
            encode(substr(stored, 2), 'hex'), 16, CASE WHEN first >= 208 AND get_byte(stored, 1) >= 128 THEN 'f' ELSE '0' END
        ))::bit(64)::int8;
        IF first = 207 AND number < 0 THEN
            RETURN NULL;
        END IF;
    END IF;
    IF number IS NULL OR number NOT BETWEEN -4611686018427387903 AND 4611686018427387903 THEN
        RETURN NULL;
    END IF;
    number := number + SCHEMA.integer_1(operand, 1);
    IF number NOT BETWEEN low AND high THEN
        IF get_byte(operand, 24) = 0 THEN
            RETURN NULL;
        END IF;
        number := CASE WHEN number < low THEN low ELSE high END;
    END IF;
    RETURN CASE
        WHEN number BETWEEN -32 AND 127 THEN substr(int8send(number), 8)
        WHEN number BETWEEN 128 AND 255 THEN '\xcc'::bytea || substr(int8send(number), 8)
        WHEN number BETWEEN 256 AND 65535 THEN '\xcd'::bytea || substr(int8send(number), 7)
        WHEN number BETWEEN 65536 AND 4294967295 THEN '\xce'::bytea || substr(int8send(number), 5)
        WHEN number > 4294967295 THEN '\xcf'::bytea || int8send(number)
        WHEN number >= -128 THEN '\xd0'::bytea || substr(int8send(number), 8)
        WHEN number >= -32768 THEN '\xd1'::bytea || substr(int8send(number), 7)
        WHEN number >= -2147483648 THEN '\xd2'::bytea || substr(int8send(number), 5)
        ELSE '\xd3'::bytea || int8send(number)
    END;
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
    DELETE FROM SCHEMA.seals x WHERE x.version < (SELECT y.version FROM SCHEMA.seals y ORDER BY y.version DESC LIMIT 1);
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

-- The version up to which everything is durable.
CREATE OR REPLACE FUNCTION SCHEMA.sealed_2()
RETURNS int8
LANGUAGE sql STABLE
AS $$
SELECT CASE WHEN c.base IS NULL THEN c.version
    ELSE greatest(c.base, (SELECT x.version FROM SCHEMA.seals x ORDER BY x.version DESC LIMIT 1)) END
FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1
$$;

-- Makes everything up to a version durable, when its transaction ends. A seal of the same version that is under way is
-- waited for.
CREATE OR REPLACE FUNCTION SCHEMA.seal_2(v int8)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO SCHEMA.seals VALUES (v) ON CONFLICT DO NOTHING;
END
$$;

-- Commits operations as commit_1, but lets the next writer begin before the disk has them: the transaction of the
-- operations ends without waiting, and a second one, the seal, waits for the disk outside of the lock. "answer" and
-- "failures" are those of apply_2. "flush" has the microseconds that the seal has taken, null without one: a flush takes no
-- longer, because the seal waits for one that begins after its own record.
-- A procedure that commits has no settings, so every name is qualified here.
CREATE OR REPLACE PROCEDURE SCHEMA.commit_2(
    ids pg_catalog.uuid[], blobs pg_catalog.bytea[], numbers pg_catalog.int8[],
    INOUT answer pg_catalog.int8[], INOUT failures pg_catalog.int4[], INOUT flush pg_catalog.int8
)
LANGUAGE plpgsql
AS $$
DECLARE
    last pg_catalog.int8;
    heard boolean := false;
    began pg_catalog.timestamptz;
BEGIN
    SELECT a.answer, a.failures INTO answer, failures FROM SCHEMA.apply_2(ids, blobs, numbers) a;
    last := answer[pg_catalog.cardinality(answer)];
    IF last OPERATOR(pg_catalog.<>) answer[3] THEN
        heard := NOT pg_catalog.pg_try_advisory_xact_lock(1802923364, 'SCHEMA.gate'::pg_catalog.regclass::pg_catalog.oid::pg_catalog.int4);
    END IF;
    IF (CASE WHEN last OPERATOR(pg_catalog.<>) answer[3] THEN answer[2] OPERATOR(pg_catalog.&) 1 OPERATOR(pg_catalog.<>) 0
        ELSE answer[2] OPERATOR(pg_catalog.>=) 2 AND numbers[5] OPERATOR(pg_catalog.<>) 0 END)
    THEN
        COMMIT;
        began := pg_catalog.clock_timestamp();
        IF pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'on'
            AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'remote_apply'
        THEN
            PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
        END IF;
        INSERT INTO SCHEMA.seals VALUES (last) ON CONFLICT DO NOTHING;
        COMMIT;
        flush := pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) began)
            OPERATOR(pg_catalog.*) 1000000;
    END IF;
    IF heard THEN
        -- In a transaction that writes nothing and waits for no disk, because one that notifies holds up all others.
        COMMIT;
        PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
        PERFORM pg_catalog.pg_notify('kvmodels_' OPERATOR(pg_catalog.||) ('SCHEMA.gate'::pg_catalog.regclass::pg_catalog.oid)::pg_catalog.text, last::pg_catalog.text);
    END IF;
END
$$;

-- Has reads show only what is on the disk (true), or also what is about to be (false).
CREATE OR REPLACE FUNCTION SCHEMA.keep_durable_reads_2(wanted boolean, given int8, mark int8, since int8, wait_ms int8)
RETURNS int8
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    g record;
BEGIN
    g := SCHEMA.enter_1(given, mark, since, wait_ms, true);
    UPDATE SCHEMA.meta m SET durable_reads = wanted WHERE m.one;
    RETURN g.state;
END
$$;
