-- The function that applies operations: commit_1, and apply_2 of the procedure commit_2. schema.py makes both of this
-- text, because one function inside of another would cost each commit 15 to 20 microseconds.
--
-- Applies operations, each whole or not at all, in one transaction. "numbers" begins with the time (-2^63: the
-- server's), the mark, "since", the milliseconds to wait for the lock, and how the commit ends: 0 relaxed, 1 strict, 2 early if it
-- may (apply_2 alone). Then, of
-- each operation: how many checks, sets, sets whose key ends with the versionstamp, deletes and sums it has; version
-- and kind of each check; encoding and deadline of each set; the kind of each sum; the deadlines of the sums whose kind
-- has 8. "blobs" has, of each operation: the keys of its checks, sets, deletes and sums, then the values of the sets and
-- the operands of the sums. Few arrays, because each parameter takes the client and the server a microsecond or two.
-- A key appears once among the sets, deletes and sums of an operation; sets with a versionstamp are the last. Kinds of
-- checks: 0 a live row, 1 a stored row, 2 no live row below a prefix; version -1: absent. Kinds of sums: 0 sum, 1 min,
-- 2 max, of unsigned 64-bit integers in little endian with the encoding 2; 3 sum of signed integers with the encoding 4
-- (added_1 has the form of its operand); plus 4 if a live row keeps its deadline, or stays without one; plus 8 with a
-- deadline for every other row. Programs of earlier releases send neither 3 nor 4 nor 8.
-- The first row (part -1) is the state before; part i is operation i. outcome 0: applied, with its version; 1: the
-- positions of the checks that failed; 2: the positions of the sums that met another value. apply_2 returns the same in
-- two arrays, because rows would cost the procedure more: "answer" has the time, how the commit ends, the version before,
-- and the outcome and version of each operation; "failures", of each one that failed, its part, and how many positions
-- follow. How it ends: 1 if early, plus 2 if the state before is not known to be durable.
-- A series in the list of a subquery numbers the rows; "unnest" of slices of the arrays took longer. A row is looked up
-- by a subquery for a value: EXISTS would become a join, for which the planner once read the whole table.
CREATE OR REPLACE FUNCTION SCHEMA.APPLY(ids uuid[], blobs bytea[], numbers int8[]OUTPUT)
RETURNS RESULT
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
    operand bytea;
    deadline int8;
    present int8;
    last int8;
    next int8;
    stamp bytea;VARIABLES
BEGIN
    g := ENTER;
    IF numbers[3] < g.forgotten THEN
        RAISE EXCEPTION 'the operation is older than the memory of the store' USING ERRCODE = 'KV003';
    END IF;
    present := g.present;
    last := g.state;
    FIRST
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
                    SELECT CASE WHEN numbers[at + 2 * sets + o.n] & 3 = 3
                        THEN t.encoding <> 4 OR SCHEMA.added_1(t.value, blobs[blob + changes + sets + o.n]) IS NULL
                        ELSE t.encoding <> 2 OR length(t.value) <> 8 END
                    FROM SCHEMA.kv t
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
                operand := blobs[blob + changes + sets + n];
                INSERT INTO SCHEMA.kv AS t (key, value, encoding, version, expires_at)
                VALUES (
                    blobs[blob + changes - sums + n],
                    CASE WHEN rule & 3 = 3 THEN substr(operand, 26) ELSE operand END,
                    CASE WHEN rule & 3 = 3 THEN 4 ELSE 2 END, next, deadline)
                ON CONFLICT (key) DO UPDATE SET
                    value = CASE
                        WHEN t.expires_at <= present THEN excluded.value
                        WHEN rule & 3 = 3 THEN SCHEMA.added_1(t.value, operand)
                        ELSE SCHEMA.combined_1(rule & 3, t.value, excluded.value)
                    END,
                    encoding = excluded.encoding, version = excluded.version,
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
            INSERT INTO SCHEMA.commits (version, prev, at, id, void, base) VALUES (next, last, present, ids[i], false, BASE);
            last := next;
            s := next;
        END IF;
        blob := blob + changes + sets + sums; at := at + 2 * sets + sums;
        IF sums > 0 THEN
            at := at + (SELECT count(*) FROM generate_series(at - sums + 1, at) n WHERE numbers[n] & 8 <> 0);
        END IF;
        EMIT
    END LOOP;
NOTICEEND
$$;
