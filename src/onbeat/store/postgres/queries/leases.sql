-- Who may deliver what, until when. Parameters are numbered in the order in which a name first appears in a query.

-- name: what_ends_leave
-- The first run that waits for a lane: made by the schedule first, then oldest; and whether the end of the job's last
-- run sets its clock. Walks live_waiting and the primary key of after_finish once per job.
SELECT asked.job_id, head.scheduled_at, a.job_id IS NOT NULL
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
LEFT JOIN LATERAL (
    SELECT l.scheduled_at FROM live_runs AS l
    WHERE l.slot = asked.slot AND l.job_id = asked.job_id AND l.state = 'pending' AND l.lane IS NULL
    ORDER BY l.rank, l.scheduled_at
    LIMIT 1
) AS head ON true
LEFT JOIN after_finish AS a ON a.slot = asked.slot AND a.job_id = asked.job_id
WHERE head.scheduled_at IS NOT NULL OR a.job_id IS NOT NULL;

-- name: lock_waiting
-- Fewer rows than asked for: such a run has left the line meanwhile. Walks the primary key of live_runs.
SELECT l.job_id
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[]) AS asked (slot, job_id, scheduled_at)
JOIN live_runs AS l ON l.slot = asked.slot AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
WHERE l.state = 'pending' AND l.lane IS NULL
ORDER BY l.slot, l.job_id, l.scheduled_at
FOR UPDATE OF l;

-- name: lanes_of_jobs
-- Walks the primary key of jobs, and live_lanes once per job.
SELECT
    asked.job_id, j.max_running,
    ARRAY(SELECT l.lane FROM live_runs AS l WHERE l.slot = j.slot AND l.job_id = j.job_id AND l.lane IS NOT NULL)
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN jobs AS j ON j.slot = asked.slot AND j.job_id = asked.job_id;

-- name: give_lanes
-- Walks the primary key of live_runs.
UPDATE live_runs AS l SET lane = given.lane, ready_at = greatest(l.ready_at, :now)
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[], :lanes::bigint[])
    AS given (slot, job_id, scheduled_at, lane)
WHERE l.slot = given.slot AND l.job_id = given.job_id AND l.scheduled_at = given.scheduled_at;

-- name: lock_live
-- Walks the primary key of live_runs.
SELECT
    l.job_id, l.scheduled_at, l.state, l.trigger, l.job_version, l.attempt, l.lane, l.ready_at, l.late_after,
    l.created_at, l.first_started_at, l.attempt_started_at, l.deadline_at, l.lease_until, l.worker, l.cancel_requested,
    nullif(l.queue, ''), l.payload, l.lease_token, l.last_token, l.outcome, l.status, l.error, l.duration_us,
    l.free_attempts, l.revived_at, l.accepted_at
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[]) AS asked (slot, job_id, scheduled_at)
JOIN live_runs AS l ON l.slot = asked.slot AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
ORDER BY l.slot, l.job_id, l.scheduled_at
FOR UPDATE OF l;

-- name: jobs_of_runs
-- What is to be known of a run's job to decide about it. Walks the primary keys of jobs, job_versions and clocks.
SELECT
    j.job_id, asked.version, j.state,
    coalesce((
        SELECT v.definition FROM job_versions AS v
        WHERE v.slot = j.slot AND v.job_id = j.job_id AND v.version >= asked.version
        ORDER BY v.version LIMIT 1
    ), j.definition),
    (SELECT c.next_fire_at FROM clocks AS c WHERE c.slot = j.slot AND c.job_id = j.job_id)
FROM unnest(:slots::integer[], :job_ids::bigint[], :versions::bigint[]) AS asked (slot, job_id, version)
JOIN jobs AS j ON j.slot = asked.slot AND j.job_id = asked.job_id;

-- name: end_runs
-- Every end but a plain success. Walks the primary key of live_runs.
WITH ended AS (
    DELETE FROM live_runs AS l
    USING unnest(
        :slots::integer[], :job_ids::bigint[], :instants::bigint[], :states::text[], :attempt_started_ats::bigint[],
        :durations::bigint[], :statuses::bigint[], :outcomes::text[], :last_tokens::bytea[], :errors::text[],
        :responses::bytea[], :reasons::text[], :blocked_bys::bigint[]
    ) AS e (
        slot, job_id, scheduled_at, end_state, end_attempt_started_at, end_duration_us, end_status, end_outcome,
        end_token, end_error, end_response, end_reason, end_blocked_by
    )
    WHERE l.slot = e.slot AND l.job_id = e.job_id AND l.scheduled_at = e.scheduled_at
    RETURNING
        l.slot, l.job_id, l.scheduled_at, l.trigger, l.job_version, l.attempt, l.created_at, l.first_started_at,
        l.late_after, l.max_run_us, l.worker, l.queue, l.payload, l.moved_us, e.end_state, e.end_attempt_started_at,
        e.end_duration_us, e.end_status, e.end_outcome, e.end_token, e.end_error, e.end_response, e.end_reason,
        e.end_blocked_by
)
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, started_at, attempt_started_at,
    finished_at, duration_us, max_run_us, status, outcome, worker, last_token, queue, payload, error, response,
    reason, blocked_by, moved_us
)
SELECT
    slot, job_id, scheduled_at, end_state, coalesce(first_started_at > late_after, false), trigger, job_version,
    attempt, created_at, first_started_at, end_attempt_started_at, :now::bigint, end_duration_us, max_run_us,
    end_status, end_outcome, worker, end_token, queue, payload, end_error, end_response, end_reason, end_blocked_by,
    moved_us
FROM ended;

-- name: insert_attempts
INSERT INTO attempts (
    slot, job_id, scheduled_at, attempt, kind, started_at, duration_us, worker, status, error, token, response
)
SELECT *
FROM unnest(
    :slots::integer[], :job_ids::bigint[], :instants::bigint[], :attempts::bigint[], :kinds::text[],
    :started_ats::bigint[], :durations::bigint[], :workers::text[], :statuses::bigint[], :errors::text[],
    :tokens::bytea[], :responses::bytea[]
)
ON CONFLICT (slot, job_id, scheduled_at, attempt) DO NOTHING;

-- name: make_pending
-- From running, under the same key and lane. `back` is 1 where the attempt does not count: given back before anything
-- was sent, so a run whose first attempt that was has not started, and its max_run_time has not begun.
-- Walks the primary key of live_runs.
UPDATE live_runs AS l SET
    state = 'pending', ready_at = r.ready_at, attempt = l.attempt - r.back, free_attempts = l.free_attempts + r.free,
    first_started_at = CASE WHEN l.attempt = r.back THEN NULL ELSE l.first_started_at END,
    deadline_at = CASE WHEN l.attempt = r.back THEN NULL ELSE l.deadline_at END,
    lease_token = NULL, lease_until = NULL, cancel_requested = false, accepted_at = NULL, progress_percent = NULL,
    progress_message = NULL, progress_at = NULL, last_token = r.last_token, outcome = r.outcome, status = r.status,
    error = r.error, duration_us = r.duration_us
FROM unnest(
    :slots::integer[], :job_ids::bigint[], :instants::bigint[], :ready_ats::bigint[], :backs::bigint[],
    :frees::bigint[], :last_tokens::bytea[], :outcomes::text[], :statuses::bigint[], :errors::text[],
    :durations::bigint[]
) AS r (slot, job_id, scheduled_at, ready_at, back, free, last_token, outcome, status, error, duration_us)
WHERE l.slot = r.slot AND l.job_id = r.job_id AND l.scheduled_at = r.scheduled_at;

-- name: accept_runs
-- From a worker's hands into the handler's. The worker's token stays known, so that its report can be repeated.
-- Walks the primary key of live_runs.
UPDATE live_runs AS l SET
    lease_token = a.callback_token, last_token = a.token,
    lease_until = least(coalesce(a.until, l.deadline_at), l.deadline_at),
    accepted_at = :now, outcome = 'accepted', status = a.status, error = NULL, duration_us = a.duration_us
FROM unnest(
    :slots::integer[], :job_ids::bigint[], :instants::bigint[], :callback_tokens::bytea[], :tokens::bytea[],
    :untils::bigint[], :statuses::bigint[], :durations::bigint[]
) AS a (slot, job_id, scheduled_at, callback_token, token, until, status, duration_us)
WHERE l.slot = a.slot AND l.job_id = a.job_id AND l.scheduled_at = a.scheduled_at;
