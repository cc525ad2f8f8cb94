-- Jobs that keep failing.

-- name: lock_streaks
-- Walks the primary key.
SELECT f.job_id, f.failures, f.failing_since
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN failing_jobs AS f ON f.slot = asked.slot AND f.job_id = asked.job_id
ORDER BY f.slot, f.job_id
FOR UPDATE OF f;

-- name: put_streak
-- Walks the primary keys of jobs and failing_jobs.
INSERT INTO failing_jobs (slot, job_id, failures, failing_since)
SELECT j.slot, j.job_id, :failures::bigint, :failing_since::bigint
FROM jobs AS j
WHERE j.slot = :slot AND j.job_id = :job_id AND j.state <> 'deleted'
ON CONFLICT (slot, job_id) DO UPDATE SET failures = excluded.failures, failing_since = excluded.failing_since;

-- name: any_streak
-- Stops at the first row of the primary key: where no job is failing, a success costs nothing more.
SELECT slot FROM failing_jobs
    -- one slot: WHERE slot = :slot
ORDER BY slot, job_id LIMIT 1;

-- name: drop_streaks
-- Walks the primary key.
DELETE FROM failing_jobs AS f
USING unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
WHERE f.slot = asked.slot AND f.job_id = asked.job_id;
