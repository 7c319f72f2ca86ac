SELECT entry.key, record.value, record.encoding, coalesce(record.version, -1), record.expires_at,
    state.packed
FROM (
    SELECT guarded.present, guarded.guarding,
        pg_catalog.int8send(guarded.version) OPERATOR(pg_catalog.||) pg_catalog.int8send(guarded.present)
        OPERATOR(pg_catalog.||) pg_catalog.int8send(guarded.guarding) AS packed
    FROM (
        SELECT latest.version, latest.present, coalesce((
            SELECT t.version FROM SCHEMA.kv t
            WHERE t.key OPERATOR(pg_catalog.=) %b
            AND (t.expires_at IS NULL OR t.expires_at OPERATOR(pg_catalog.>) latest.present)
        ), -1) AS guarding
        FROM (
            SELECT c.version, greatest(
                CASE WHEN %b OPERATOR(pg_catalog.=) -9223372036854775808 THEN (
                    SELECT m.clock_offset OPERATOR(pg_catalog.+) (
                        pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000
                    )::pg_catalog.int8
                    FROM SCHEMA.meta m WHERE m.one
                ) ELSE %b END,
                c.at, %b
            ) AS present
            FROM SCHEMA.commits c ORDER BY c.version DESC LIMIT 1
        ) latest
        OFFSET 0
    ) guarded
    OFFSET 0
) state
LEFT JOIN LATERAL (
    SELECT t.key FROM SCHEMA.kv t
    WHERE (%b OPERATOR(pg_catalog.=) -9223372036854775808 OR state.guarding OPERATOR(pg_catalog.=) %b)
    AND t.key OPERATOR(pg_catalog.>=) %b AND t.key OPERATOR(pg_catalog.<) %b
    AND (t.expires_at IS NULL OR t.expires_at OPERATOR(pg_catalog.>) state.present)
    ORDER BY t.key DIRECTION LIMIT %b
) entry ON true
LEFT JOIN LATERAL (
    SELECT t.value, t.encoding, t.version, t.expires_at FROM SCHEMA.kv t
    WHERE t.key OPERATOR(pg_catalog.=) (%b OPERATOR(pg_catalog.||) pg_catalog.substr(entry.key, %b::pg_catalog.int4))
    AND (t.expires_at IS NULL OR t.expires_at OPERATOR(pg_catalog.>) state.present)
    LIMIT 1
) record ON true
