-- Jobs that keep failing. Bindings go by position, in the order in which a name first appears in a query.

-- name: get_streak
-- Walks the primary key.
SELECT failures, failing_since FROM failing_jobs WHERE slot = :slot AND job_id = :job_id;

-- name: put_streak
INSERT INTO failing_jobs (slot, job_id, failures, failing_since)
SELECT :slot, :job_id, :failures, :failing_since
FROM jobs WHERE job_id = :job_id AND state <> 'deleted'
ON CONFLICT (slot, job_id) DO UPDATE SET failures = excluded.failures, failing_since = excluded.failing_since;

-- name: any_streak
-- Stops at the first row: where no job is failing, a success costs nothing more.
SELECT 1 FROM failing_jobs LIMIT 1;

-- name: drop_streaks
-- Walks the primary key of failing_jobs.
DELETE FROM failing_jobs WHERE (slot, job_id) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(:rows));
