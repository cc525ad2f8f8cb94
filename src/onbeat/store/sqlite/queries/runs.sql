-- What became of fires. Bindings go by position, in the order in which a name first appears in a query.

-- name: get_live_view
-- Walks the primary key of live_runs.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL, 1, NULL, NULL, ready_at,
    first_started_at, attempt_started_at, NULL, duration_us, coalesce(first_started_at > late_after, 0), status,
    outcome, error, worker, queue, lane, cancel_requested, lease_until, deadline_at, moved_us,
    accepted_at, progress_percent, progress_message, progress_at
FROM live_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: get_ended_view
-- Walks ended_key.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: get_range_view
-- Walks ended_ranges backwards: ranges never overlap, so only the newest that began before can hold the instant.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs INDEXED BY ended_ranges
WHERE slot = :slot AND job_id = :job_id AND scheduled_at < :scheduled_at AND count > 1
ORDER BY scheduled_at DESC
LIMIT 1;

-- name: ended_token
-- Walks ended_key.
SELECT state, last_token FROM ended_runs WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: find_live
-- Reads all of live_runs, which is small: an index by time would be written twice for every fire.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL, 1, NULL, NULL, ready_at,
    first_started_at, attempt_started_at, NULL, duration_us, coalesce(first_started_at > late_after, 0), status,
    outcome, error, worker, queue, lane, cancel_requested, lease_until, deadline_at, moved_us,
    accepted_at, progress_percent, progress_message, progress_at
FROM live_runs
WHERE
    (scheduled_at, job_id) < (:before_scheduled_at, :before_job_id) AND scheduled_at >= :scheduled_from
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:late IS NULL OR coalesce(first_started_at > late_after, 0) = :late)
ORDER BY scheduled_at DESC, job_id DESC
LIMIT :limit;

-- name: find_live_of_job
-- Walks the primary key of live_runs backwards.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL, 1, NULL, NULL, ready_at,
    first_started_at, attempt_started_at, NULL, duration_us, coalesce(first_started_at > late_after, 0), status,
    outcome, error, worker, queue, lane, cancel_requested, lease_until, deadline_at, moved_us,
    accepted_at, progress_percent, progress_message, progress_at
FROM live_runs
WHERE
    slot = :slot AND job_id = :job_id
    AND scheduled_at < :before_scheduled_at AND scheduled_at >= :scheduled_from
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:late IS NULL OR coalesce(first_started_at > late_after, 0) = :late)
ORDER BY scheduled_at DESC
LIMIT :limit;

-- name: find_ended
-- Walks ended_by_time backwards from the cursor.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs INDEXED BY ended_by_time
WHERE
    (scheduled_at, job_id) < (:before_scheduled_at, :before_job_id) AND scheduled_at >= :scheduled_from
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:late IS NULL OR late = :late)
ORDER BY scheduled_at DESC, job_id DESC
LIMIT :limit;

-- name: find_ended_of_job
-- Walks ended_key backwards from the cursor.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs INDEXED BY ended_key
WHERE
    slot = :slot AND job_id = :job_id
    AND scheduled_at < :before_scheduled_at AND scheduled_at >= :scheduled_from
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:late IS NULL OR late = :late)
ORDER BY scheduled_at DESC
LIMIT :limit;

-- name: find_notable
-- Walks ended_notable backwards: for filters that leave plain successes out, however many there are.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs INDEXED BY ended_notable
WHERE
    (scheduled_at, job_id) < (:before_scheduled_at, :before_job_id) AND scheduled_at >= :scheduled_from
    AND (state <> 'succeeded' OR late = 1)
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:late IS NULL OR late = :late)
ORDER BY scheduled_at DESC, job_id DESC
LIMIT :limit;

-- name: find_notable_of_job
-- Walks ended_notable_by_job backwards.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs INDEXED BY ended_notable_by_job
WHERE
    slot = :slot AND job_id = :job_id
    AND scheduled_at < :before_scheduled_at AND scheduled_at >= :scheduled_from
    AND (state <> 'succeeded' OR late = 1)
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:late IS NULL OR late = :late)
ORDER BY scheduled_at DESC
LIMIT :limit;

-- name: find_revivable
-- Walks ended_notable from the cursor on.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs INDEXED BY ended_notable
WHERE
    (scheduled_at, job_id) > (:after_scheduled_at, :after_job_id)
    AND scheduled_at >= :scheduled_from AND scheduled_at < :scheduled_to
    AND (state <> 'succeeded' OR late = 1)
    AND state IN (SELECT value FROM json_each(:states))
    AND (:late IS NULL OR late = :late)
ORDER BY scheduled_at, job_id
LIMIT :limit;

-- name: find_revivable_of_job
-- Walks ended_notable_by_job from the cursor on.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until, blocked_by, NULL,
    started_at, attempt_started_at, finished_at, duration_us, late, status,
    outcome, error, worker, queue, NULL, 0, NULL, NULL, moved_us,
    NULL, NULL, NULL, NULL
FROM ended_runs INDEXED BY ended_notable_by_job
WHERE
    slot = :slot AND job_id = :job_id
    AND scheduled_at > :after_scheduled_at
    AND scheduled_at >= :scheduled_from AND scheduled_at < :scheduled_to
    AND (state <> 'succeeded' OR late = 1)
    AND state IN (SELECT value FROM json_each(:states))
    AND (:late IS NULL OR late = :late)
ORDER BY scheduled_at
LIMIT :limit;

-- name: last_response
-- The attempt that succeeded stands in the ended run itself, after those that did not. Walks ended_key, and the primary
-- key of attempts backwards.
SELECT CASE
    WHEN EXISTS (
        SELECT 1 FROM ended_runs
        WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND outcome = 'succeeded'
    )
    THEN (SELECT response FROM ended_runs WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at)
    ELSE (
        SELECT response FROM attempts
        WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at
        ORDER BY attempt DESC LIMIT 1
    )
END;

-- name: failed_attempts
-- Walks the primary key of attempts.
SELECT attempt, kind, started_at, duration_us, worker, status, error, response
FROM attempts
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at
ORDER BY attempt;

-- name: succeeded_attempt
-- The attempt that succeeded stands in the ended run itself. Walks ended_key.
SELECT attempt, outcome, attempt_started_at, duration_us, worker, status, error, response
FROM ended_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND outcome = 'succeeded';

-- name: oldest_ended
-- Walks ended_runs in the order in which runs ended. Looks at :limit rows, however few of them are old enough.
SELECT ended_id, slot, job_id, scheduled_at
FROM (SELECT ended_id, slot, job_id, scheduled_at, finished_at FROM ended_runs ORDER BY ended_id LIMIT :limit)
WHERE finished_at < :ended_before;

-- name: prune_ended
DELETE FROM ended_runs WHERE ended_id IN (SELECT value FROM jsonb_each(:ids));

-- name: prune_attempts
-- Walks the primary key of attempts.
DELETE FROM attempts
WHERE (slot, job_id, scheduled_at) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(:rows));

-- name: prune_versions
-- Reads job_versions, which holds former definitions only until nobody needs them.
DELETE FROM job_versions
WHERE rowid IN (
    SELECT v.rowid FROM job_versions AS v
    WHERE NOT EXISTS (
        SELECT 1 FROM live_runs AS l
        WHERE l.slot = v.slot AND l.job_id = v.job_id AND l.job_version <= v.version
    )
    LIMIT :limit
);

-- name: prune_jobs
-- Walks jobs_deleted.
DELETE FROM jobs
WHERE job_id IN (
    SELECT j.job_id FROM jobs AS j INDEXED BY jobs_deleted
    WHERE
        j.state = 'deleted' AND j.updated_at < :ended_before
        AND NOT EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = j.slot AND l.job_id = j.job_id)
        AND NOT EXISTS (SELECT 1 FROM ended_runs AS e WHERE e.slot = j.slot AND e.job_id = j.job_id)
    ORDER BY j.updated_at
    LIMIT :limit
);
