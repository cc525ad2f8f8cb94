-- What can be said of a database from outside. The checks read whole tables, and count what must not be there.

-- name: describe_server
SELECT
    current_setting('server_version'), current_setting('server_version_num')::integer,
    pg_database_size(current_database()), pg_is_in_recovery();

-- name: unsafe_settings
-- With any of these an answer that was given may be lost with the server's power.
SELECT name FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
ORDER BY name;

-- name: invalid_indexes
SELECT count(*)
FROM pg_index AS i
INNER JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE c.relnamespace = current_schema()::regnamespace AND NOT i.indisvalid;

-- name: ranges_without_row
SELECT count(*) FROM ended_ranges AS r
WHERE NOT EXISTS (
    SELECT FROM ended_runs AS e
    WHERE
        e.slot = r.slot AND e.job_id = r.job_id AND e.scheduled_at = r.scheduled_at
        AND e.count > 1 AND e.until = r.until
);

-- name: rows_without_range
SELECT count(*) FROM ended_runs AS e
WHERE
    e.state IN ('missed', 'skipped') AND (e.state <> 'succeeded' OR e.late) AND e.count > 1
    AND NOT EXISTS (
        SELECT FROM ended_ranges AS r
        WHERE r.slot = e.slot AND r.job_id = e.job_id AND r.scheduled_at = e.scheduled_at
    );

-- name: runs_live_and_ended
SELECT count(*) FROM live_runs AS l
WHERE EXISTS (
    SELECT FROM ended_runs AS e WHERE e.slot = l.slot AND e.job_id = l.job_id AND e.scheduled_at = l.scheduled_at
);

-- name: runs_without_job
SELECT count(*) FROM live_runs AS l
WHERE NOT EXISTS (SELECT FROM jobs AS j WHERE j.slot = l.slot AND j.job_id = l.job_id);

-- name: miscounted_states
SELECT count(*)
FROM (
    SELECT state, sum(count) AS count
    FROM (
        SELECT state, count FROM job_counts
        UNION ALL
        SELECT state, -1 FROM jobs
    ) AS both_ways
    GROUP BY state
    HAVING sum(count) <> 0
) AS miscounted;
