-- Locks on a job and its lanes, in the order that the package's docstring gives.

-- name: lock_clock
-- Walks the primary key of clocks.
SELECT next_fire_at FROM clocks WHERE slot = :slot AND job_id = :job_id FOR UPDATE;

-- name: lock_job
-- Walks the primary key of jobs. A row that was waited for is read as it stands then.
SELECT
    job_id, namespace, key, name, tags, version, state, reason, definition, :next_fire_at::bigint,
    created_at, updated_at, paused_at, paused_until, paused_by
FROM jobs
WHERE slot = :slot AND job_id = :job_id
FOR NO KEY UPDATE;

-- name: clock_of
-- Walks the primary key of clocks.
SELECT next_fire_at FROM clocks WHERE slot = :slot AND job_id = :job_id;

-- name: lock_clocks
-- Walks the primary key of clocks.
SELECT c.job_id, c.next_fire_at
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN clocks AS c ON c.slot = asked.slot AND c.job_id = asked.job_id
ORDER BY c.slot, c.job_id
FOR UPDATE OF c;

-- name: lock_jobs
-- Walks the primary key of jobs.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, NULL::bigint,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN jobs AS j ON j.slot = asked.slot AND j.job_id = asked.job_id
ORDER BY j.slot, j.job_id
FOR NO KEY UPDATE OF j;

-- name: clocks_of
-- Walks the primary key of clocks.
SELECT c.job_id
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN clocks AS c ON c.slot = asked.slot AND c.job_id = asked.job_id
LIMIT 1;

-- name: lock_lanes
-- Walks live_lanes once per job, job by job as they are given: `lane >= 0` rather than IS NOT NULL, and an order that no
-- index has, keep the planner from the key, under which thousands may wait.
SELECT l.slot, l.job_id, l.scheduled_at
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
CROSS JOIN LATERAL (
    SELECT r.slot, r.job_id, r.scheduled_at
    FROM live_runs AS r
    WHERE r.slot = asked.slot AND r.job_id = asked.job_id AND r.lane >= 0
    ORDER BY r.scheduled_at + 0
    FOR UPDATE
) AS l;

-- name: lock_free_lanes
-- The same, without those that another transaction has.
SELECT l.slot, l.job_id, l.scheduled_at
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
CROSS JOIN LATERAL (
    SELECT r.slot, r.job_id, r.scheduled_at
    FROM live_runs AS r
    WHERE r.slot = asked.slot AND r.job_id = asked.job_id AND r.lane >= 0
    ORDER BY r.scheduled_at + 0
    FOR UPDATE SKIP LOCKED
) AS l;

-- name: lane_holds
-- Walks live_lanes once per job. OFFSET 0 keeps the planner from joining the other way round on an empty table; an order
-- would have it read all of the index.
SELECT l.lane, l.scheduled_at, l.state, l.trigger, l.attempt, l.ready_at, l.is_brought_back, asked.job_id
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
CROSS JOIN LATERAL (
    SELECT
        lane, scheduled_at, state, trigger, attempt, ready_at,
        revived_at IS NOT NULL AND first_started_at IS NULL AS is_brought_back
    FROM live_runs
    WHERE slot = asked.slot AND job_id = asked.job_id AND lane >= 0
    OFFSET 0
) AS l;

-- name: newest_waiting
-- Walks live_waiting backwards, once per job. Rank 0: made by the schedule, and not brought back.
SELECT asked.job_id, newest.scheduled_at
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
CROSS JOIN LATERAL (
    SELECT l.scheduled_at FROM live_runs AS l
    WHERE l.slot = asked.slot AND l.job_id = asked.job_id AND l.rank = 0 AND l.state = 'pending' AND l.lane IS NULL
    ORDER BY l.scheduled_at DESC
    LIMIT 1
) AS newest;
