-- Locks on jobs and pauses, see "Locks" in onbeat.store.postgres. What they answer is from before they waited.

-- name: lock_jobs
-- Walks the primary keys of clocks and jobs. The clocks first: the jobs are looked at only after the clocks are counted.
WITH clocks_held AS MATERIALIZED (
    SELECT c.slot, c.job_id
    FROM unnest(:slots::integer[], :job_ids::bigint[]) AS n (slot, job_id)
    JOIN clocks AS c ON c.slot = n.slot AND c.job_id = n.job_id
    ORDER BY c.slot, c.job_id
    FOR UPDATE OF c
),
jobs_held AS MATERIALIZED (
    SELECT j.slot, j.job_id
    FROM unnest(:slots::integer[], :job_ids::bigint[]) AS n (slot, job_id)
    JOIN jobs AS j ON j.slot = n.slot AND j.job_id = n.job_id
    WHERE (SELECT count(*) FROM clocks_held) >= 0
    ORDER BY j.slot, j.job_id
    FOR NO KEY UPDATE OF j
)
SELECT j.slot, j.job_id, EXISTS (SELECT 1 FROM clocks_held AS c WHERE c.slot = j.slot AND c.job_id = j.job_id)
FROM jobs_held AS j;

-- name: lock_jobs_nowait
-- Walks the primary keys of clocks and jobs.
WITH clocks_held AS MATERIALIZED (
    SELECT c.slot, c.job_id
    FROM unnest(:slots::integer[], :job_ids::bigint[]) AS n (slot, job_id)
    JOIN clocks AS c ON c.slot = n.slot AND c.job_id = n.job_id
    ORDER BY c.slot, c.job_id
    FOR UPDATE OF c NOWAIT
),
jobs_held AS MATERIALIZED (
    SELECT j.slot, j.job_id
    FROM unnest(:slots::integer[], :job_ids::bigint[]) AS n (slot, job_id)
    JOIN jobs AS j ON j.slot = n.slot AND j.job_id = n.job_id
    WHERE (SELECT count(*) FROM clocks_held) >= 0
    ORDER BY j.slot, j.job_id
    FOR NO KEY UPDATE OF j NOWAIT
)
SELECT j.slot, j.job_id, EXISTS (SELECT 1 FROM clocks_held AS c WHERE c.slot = j.slot AND c.job_id = j.job_id)
FROM jobs_held AS j;

-- name: lock_clocks_nowait
-- Walks the primary key of clocks.
SELECT c.job_id
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS n (slot, job_id)
JOIN clocks AS c ON c.slot = n.slot AND c.job_id = n.job_id
ORDER BY c.slot, c.job_id
FOR UPDATE OF c NOWAIT;

-- name: lock_pauses_shared
-- Two namespaces of one hash wait for each other without need.
SELECT pg_advisory_xact_lock_shared(7308332, hashtext(namespace)) FROM unnest(:namespaces::text[]) AS namespace;

-- name: lock_pauses_alone
SELECT pg_advisory_xact_lock(7308332, hashtext(:namespace::text));
