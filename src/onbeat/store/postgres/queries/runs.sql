-- What became of fires. A filter that is not asked for is bound as the array of all that there is.

-- name: get_live_view
-- Walks the primary key of live_runs.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL::text, 1::bigint, NULL::bigint,
    NULL::bigint, ready_at, first_started_at, attempt_started_at, NULL::bigint, duration_us,
    coalesce(first_started_at > late_after, false), status, outcome, error, worker, nullif(queue, ''), lane,
    cancel_requested, lease_until, deadline_at, moved_us, accepted_at, progress_percent, progress_message, progress_at
FROM live_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: get_ended_view
-- Walks the primary key of the one partition.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count,
    until, blocked_by, NULL::bigint, started_at, attempt_started_at, finished_at, duration_us,
    late, status, outcome, error, worker, nullif(queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
FROM ended_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: get_range_view
-- Walks ended_ranges backwards: ranges never overlap, so only the newest that began before can hold the instant.
SELECT
    e.job_id, e.scheduled_at, e.state, e.trigger, e.job_version, e.attempt, e.created_at, e.reason, e.count,
    e.until, e.blocked_by, NULL::bigint, e.started_at, e.attempt_started_at, e.finished_at, e.duration_us,
    e.late, e.status, e.outcome, e.error, e.worker, nullif(e.queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, e.moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
FROM (
    SELECT r.slot, r.job_id, r.scheduled_at
    FROM ended_ranges AS r
    WHERE r.slot = :slot AND r.job_id = :job_id AND r.scheduled_at < :scheduled_at
    ORDER BY r.scheduled_at DESC
    LIMIT 1
) AS newest
CROSS JOIN LATERAL (
    SELECT r.*
    FROM ended_runs AS r
    WHERE r.slot = :slot AND r.job_id = newest.job_id AND r.scheduled_at = newest.scheduled_at
    LIMIT 1
) AS e;

-- name: find_live
-- Reads all of live_runs, which is small: an index by time would be written twice for every fire.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL::text, 1::bigint, NULL::bigint,
    NULL::bigint, ready_at, first_started_at, attempt_started_at, NULL::bigint, duration_us,
    coalesce(first_started_at > late_after, false), status, outcome, error, worker, nullif(queue, ''), lane,
    cancel_requested, lease_until, deadline_at, moved_us, accepted_at, progress_percent, progress_message, progress_at
FROM live_runs
WHERE
    state = ANY(:states::text[]) AND coalesce(first_started_at > late_after, false) = ANY(:lates::boolean[])
    AND (scheduled_at, job_id) < (:before_scheduled_at::bigint, :before_job_id::bigint) AND scheduled_at >= :scheduled_from
ORDER BY scheduled_at DESC, job_id DESC
LIMIT :limit;

-- name: find_live_of_job
-- Walks the primary key of live_runs backwards.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL::text, 1::bigint, NULL::bigint,
    NULL::bigint, ready_at, first_started_at, attempt_started_at, NULL::bigint, duration_us,
    coalesce(first_started_at > late_after, false), status, outcome, error, worker, nullif(queue, ''), lane,
    cancel_requested, lease_until, deadline_at, moved_us, accepted_at, progress_percent, progress_message, progress_at
FROM live_runs
WHERE
    state = ANY(:states::text[]) AND coalesce(first_started_at > late_after, false) = ANY(:lates::boolean[])
    AND slot = :slot AND job_id = :job_id
    AND scheduled_at < :before_scheduled_at AND scheduled_at >= :scheduled_from
ORDER BY scheduled_at DESC
LIMIT :limit;

-- name: find_ended
-- Walks ended_by_time backwards from the cursor, in all partitions at once, and stops at a page.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count,
    until, blocked_by, NULL::bigint, started_at, attempt_started_at, finished_at, duration_us,
    late, status, outcome, error, worker, nullif(queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
FROM ended_runs
WHERE
    state = ANY(:states::text[]) AND late = ANY(:lates::boolean[])
    AND (scheduled_at, job_id) < (:before_scheduled_at::bigint, :before_job_id::bigint) AND scheduled_at >= :scheduled_from
ORDER BY scheduled_at DESC, job_id DESC
LIMIT :limit;

-- name: find_ended_of_job
-- Walks the primary keys of the partitions backwards from the cursor.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count,
    until, blocked_by, NULL::bigint, started_at, attempt_started_at, finished_at, duration_us,
    late, status, outcome, error, worker, nullif(queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
FROM ended_runs
WHERE
    state = ANY(:states::text[]) AND late = ANY(:lates::boolean[])
    AND slot = :slot AND job_id = :job_id
    AND scheduled_at < :before_scheduled_at AND scheduled_at >= :scheduled_from
ORDER BY scheduled_at DESC
LIMIT :limit;

-- name: find_notable
-- For filters that leave plain successes out: walks ended_notable backwards once for each state and lateness that is
-- asked for, so that it never passes a row that is not in the answer.
SELECT found.*
FROM
    unnest(:states::text[]) AS asked (state)
CROSS JOIN unnest(:lates::boolean[]) AS wanted (late)
CROSS JOIN LATERAL (
    SELECT
    e.job_id, e.scheduled_at, e.state, e.trigger, e.job_version, e.attempt, e.created_at, e.reason, e.count,
    e.until, e.blocked_by, NULL::bigint, e.started_at, e.attempt_started_at, e.finished_at, e.duration_us,
    e.late, e.status, e.outcome, e.error, e.worker, nullif(e.queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, e.moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
    FROM ended_runs AS e
    WHERE
        e.state = asked.state AND e.late = wanted.late AND (e.state <> 'succeeded' OR e.late)
        AND (e.scheduled_at, e.job_id) < (:before_scheduled_at::bigint, :before_job_id::bigint)
        AND e.scheduled_at >= :scheduled_from
    ORDER BY e.scheduled_at DESC, e.job_id DESC
    LIMIT :limit
) AS found
ORDER BY found.scheduled_at DESC, found.job_id DESC
LIMIT :limit;

-- name: find_notable_of_job
-- Walks ended_notable_by_job backwards.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count,
    until, blocked_by, NULL::bigint, started_at, attempt_started_at, finished_at, duration_us,
    late, status, outcome, error, worker, nullif(queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
FROM ended_runs
WHERE
    state = ANY(:states::text[]) AND late = ANY(:lates::boolean[])
    AND slot = :slot AND job_id = :job_id
    AND scheduled_at < :before_scheduled_at AND scheduled_at >= :scheduled_from
    AND (state <> 'succeeded' OR late)
ORDER BY scheduled_at DESC
LIMIT :limit;

-- name: find_revivable
-- Walks ended_notable from the cursor on, as find_notable does backwards.
SELECT found.*
FROM
    unnest(:states::text[]) AS asked (state)
CROSS JOIN unnest(:lates::boolean[]) AS wanted (late)
CROSS JOIN LATERAL (
    SELECT
    e.job_id, e.scheduled_at, e.state, e.trigger, e.job_version, e.attempt, e.created_at, e.reason, e.count,
    e.until, e.blocked_by, NULL::bigint, e.started_at, e.attempt_started_at, e.finished_at, e.duration_us,
    e.late, e.status, e.outcome, e.error, e.worker, nullif(e.queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, e.moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
    FROM ended_runs AS e
    WHERE
        e.state = asked.state AND e.late = wanted.late AND (e.state <> 'succeeded' OR e.late)
        AND (e.scheduled_at, e.job_id) > (:after_scheduled_at::bigint, :after_job_id::bigint)
        AND e.scheduled_at >= :scheduled_from AND e.scheduled_at < :scheduled_to
    ORDER BY e.scheduled_at, e.job_id
    LIMIT :limit
) AS found
ORDER BY found.scheduled_at, found.job_id
LIMIT :limit;

-- name: find_revivable_of_job
-- Walks ended_notable_by_job from the cursor on.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count,
    until, blocked_by, NULL::bigint, started_at, attempt_started_at, finished_at, duration_us,
    late, status, outcome, error, worker, nullif(queue, ''), NULL::bigint,
    false, NULL::bigint, NULL::bigint, moved_us, NULL::bigint, NULL::double precision, NULL::text, NULL::bigint
FROM ended_runs
WHERE
    state = ANY(:states::text[]) AND late = ANY(:lates::boolean[])
    AND slot = :slot AND job_id = :job_id
    AND scheduled_at > :after_scheduled_at
    AND scheduled_at >= :scheduled_from AND scheduled_at < :scheduled_to
    AND (state <> 'succeeded' OR late)
ORDER BY scheduled_at
LIMIT :limit;

-- name: last_responses
-- The attempt that succeeded stands in the ended run itself, after those that did not. Walks the primary key of
-- ended_runs, and that of attempts backwards.
SELECT
    asked.job_id, asked.scheduled_at,
    CASE WHEN e.outcome = 'succeeded' THEN e.response ELSE (
        SELECT a.response FROM attempts AS a
        WHERE a.slot = asked.slot AND a.job_id = asked.job_id AND a.scheduled_at = asked.scheduled_at
        ORDER BY a.attempt DESC LIMIT 1
    ) END
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[]) AS asked (slot, job_id, scheduled_at)
LEFT JOIN ended_runs AS e
    ON e.slot = asked.slot AND e.job_id = asked.job_id AND e.scheduled_at = asked.scheduled_at;

-- name: failed_attempts
-- Walks the primary key of the one partition of attempts.
SELECT attempt, kind, started_at, duration_us, worker, status, error, response
FROM attempts
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at
ORDER BY attempt;

-- name: succeeded_attempt
-- The attempt that succeeded stands in the ended run itself. Walks the primary key of the one partition.
SELECT attempt, outcome, attempt_started_at, duration_us, worker, status, error, response
FROM ended_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND outcome = 'succeeded';


-- name: prune_default
-- Walks ended_default_by_end from the oldest, then the primary keys of attempts and ended_ranges.
WITH oldest AS MATERIALIZED (
    SELECT slot, job_id, scheduled_at
    FROM ended_runs_default
    WHERE finished_at < :ended_before
    ORDER BY finished_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM ended_runs_default AS e
    USING oldest AS o
    WHERE e.slot = o.slot AND e.job_id = o.job_id AND e.scheduled_at = o.scheduled_at
    RETURNING e.slot, e.job_id, e.scheduled_at, e.count
),
their_attempts AS (
    DELETE FROM attempts AS a
    USING gone AS g
    WHERE a.slot = g.slot AND a.job_id = g.job_id AND a.scheduled_at = g.scheduled_at
),
their_ranges AS (
    DELETE FROM ended_ranges AS r
    USING gone AS g
    WHERE g.count > 1 AND r.slot = g.slot AND r.job_id = g.job_id AND r.scheduled_at = g.scheduled_at
)
SELECT count(*) FROM gone;

-- name: prune_versions
-- Reads job_versions, which holds former definitions only until nobody needs them.
WITH unused AS MATERIALIZED (
    SELECT v.slot, v.job_id, v.version
    FROM job_versions AS v
    WHERE (
        SELECT l.scheduled_at FROM live_runs AS l
        WHERE l.slot = v.slot AND l.job_id = v.job_id AND l.job_version <= v.version
        LIMIT 1
    ) IS NULL
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
DELETE FROM job_versions AS v
USING unused AS u
WHERE v.slot = u.slot AND v.job_id = u.job_id AND v.version = u.version;

-- name: prune_jobs
-- Walks jobs_deleted; then the keys of all that a job may have left.
WITH oldest AS MATERIALIZED (
    SELECT j.slot, j.job_id
    FROM jobs AS j
    WHERE
        j.state = 'deleted' AND j.updated_at < :ended_before
        AND NOT EXISTS (SELECT FROM live_runs AS l WHERE l.slot = ANY (ARRAY[j.slot]) AND l.job_id = j.job_id)
        AND NOT EXISTS (SELECT FROM ended_runs AS e WHERE e.slot = j.slot AND e.job_id = j.job_id)
    ORDER BY j.updated_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM jobs AS j
    USING oldest AS o
    WHERE j.slot = o.slot AND j.job_id = o.job_id
    RETURNING j.slot, j.job_id, j.state
),
their_backfills AS (
    DELETE FROM backfills AS b
    USING gone AS g
    WHERE b.slot = g.slot AND b.job_id = g.job_id
),
their_versions AS (
    DELETE FROM job_versions AS v
    USING gone AS g
    WHERE v.slot = g.slot AND v.job_id = g.job_id
)
INSERT INTO job_counts (slot, state, count)
SELECT slot, state, -count(*) FROM gone GROUP BY slot, state;

-- name: compact_job_counts
-- Reads job_counts. Rows that another transaction compacts at this moment are left to it.
WITH split AS MATERIALIZED (
    SELECT slot, state FROM job_counts GROUP BY slot, state HAVING count(*) > 1
),
taken AS MATERIALIZED (
    SELECT c.ctid AS place, c.slot, c.state, c.count
    FROM job_counts AS c
    WHERE (c.slot, c.state) IN (SELECT s.slot, s.state FROM split AS s)
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM job_counts WHERE ctid = ANY(ARRAY(SELECT place FROM taken))
)
INSERT INTO job_counts (slot, state, count)
SELECT slot, state, sum(count) FROM taken GROUP BY slot, state HAVING sum(count) <> 0;
