-- Who may deliver what, until when. Bindings go by position, in the order in which a name first appears in a query.
-- :rows are those of `rows.encode_rows`: see fires.sql.

-- name: next_ready_at
-- Walks live_claimable: one seek to each priority that is there.
WITH RECURSIVE present (priority) AS (
    SELECT (
        SELECT max(priority) FROM live_runs INDEXED BY live_claimable
        WHERE queue IS :queue AND state = 'pending' AND lane IS NOT NULL AND held = 0
    )
    UNION ALL
    SELECT (
        SELECT max(l.priority) FROM live_runs AS l INDEXED BY live_claimable
        WHERE
            l.queue IS :queue AND l.state = 'pending' AND l.lane IS NOT NULL AND l.held = 0
            AND l.priority < present.priority
    )
    FROM present
    WHERE present.priority IS NOT NULL
)
SELECT min((
    SELECT min(l.ready_at) FROM live_runs AS l INDEXED BY live_claimable
    WHERE
        l.queue IS :queue AND l.state = 'pending' AND l.lane IS NOT NULL AND l.held = 0
        AND l.priority = present.priority
))
FROM present;

-- name: next_priority
-- Walks live_claimable: one seek.
SELECT max(priority) FROM live_runs INDEXED BY live_claimable
WHERE queue IS :queue AND state = 'pending' AND lane IS NOT NULL AND held = 0 AND priority < :below;

-- name: line_of_priority
-- Of one priority, when its first runs became ready, as one row. Walks live_claimable.
SELECT CAST(json_group_array(r.ready_at) AS BLOB)
FROM (
    SELECT ready_at
    FROM live_runs INDEXED BY live_claimable
    WHERE
        queue IS :queue AND priority = :priority AND state = 'pending' AND lane IS NOT NULL AND held = 0
        AND ready_at <= :now
    ORDER BY ready_at
    LIMIT :limit
) AS r;

-- name: claimable_runs
-- Of one priority, as one row for `rows.decode_rows`. Walks live_claimable: runs that wait for a lane, lie in the future
-- or belong to a paused job are not in its way.
SELECT CAST(json_group_array(json_array(
    r.slot, r.job_id, r.scheduled_at, r.attempt, r.trigger, r.job_version, r.payload, r.queue, r.late_after,
    r.run_until, r.namespace, r.name, r.key, r.definition, r.ready_at
)) AS BLOB)
FROM (
    SELECT
        l.slot, l.job_id, l.scheduled_at, l.attempt, l.trigger, l.job_version, l.payload, l.queue, l.late_after,
        coalesce(l.deadline_at, :now + l.max_run_us) AS run_until, j.namespace, j.name, j.key,
        CASE WHEN l.job_version = j.version THEN j.definition ELSE coalesce((
            SELECT v.definition FROM job_versions AS v
            WHERE v.slot = l.slot AND v.job_id = l.job_id AND v.version >= l.job_version
            ORDER BY v.version LIMIT 1
        ), j.definition) END AS definition, l.ready_at
    FROM live_runs AS l INDEXED BY live_claimable CROSS JOIN jobs AS j ON j.job_id = l.job_id
    WHERE
        l.queue IS :queue AND l.priority = :priority AND l.state = 'pending' AND l.lane IS NOT NULL AND l.held = 0
        AND l.ready_at <= :now
    ORDER BY l.ready_at
    LIMIT :limit
) AS r;

-- name: lease_runs
-- A lease never outlives the run's deadline, so live_leased serves both kinds of expiry. Walks the primary key of
-- live_runs.
UPDATE OR FAIL live_runs SET
    state = 'running', attempt = attempt + 1, lease_token = r.token, worker = r.worker, lease_until = r.until,
    granted_at = :now, attempt_started_at = :now,
    first_started_at = coalesce(first_started_at, :now), deadline_at = r.run_until
FROM (
    SELECT
        unhex(value ->> 0) AS token, value ->> 1 AS worker, value ->> 2 AS until, value ->> 3 AS run_until,
        value ->> 4 AS slot, value ->> 5 AS job_id, value ->> 6 AS scheduled_at
    FROM jsonb_each(:rows)
) AS r
WHERE
    live_runs.slot = r.slot AND live_runs.job_id = r.job_id AND live_runs.scheduled_at = r.scheduled_at
    AND live_runs.state = 'pending';

-- name: held_leases
-- Of these tokens, which are their runs', with live leases? Walks the primary key of live_runs.
SELECT r.number, l.cancel_requested, l.held
FROM (
    SELECT
        key AS number, value ->> 0 AS slot, value ->> 1 AS job_id, value ->> 2 AS scheduled_at,
        unhex(value ->> 3) AS token
    FROM jsonb_each(:rows)
) AS r
CROSS JOIN live_runs AS l ON l.slot = r.slot AND l.job_id = r.job_id AND l.scheduled_at = r.scheduled_at
WHERE l.state = 'running' AND l.lease_token = r.token AND l.lease_until >= :now AND l.accepted_at IS NULL;

-- name: accept_run
-- From a worker's hands into the handler's. The worker's token stays known, so that its report can be repeated.
UPDATE live_runs SET
    lease_token = :callback_token, last_token = :token, lease_until = min(coalesce(:until, deadline_at), deadline_at),
    accepted_at = :now, outcome = 'accepted', status = :status, error = NULL, duration_us = :duration_us
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: report_progress
-- The lease of a run that was not accepted yet is its worker's to extend.
UPDATE live_runs SET
    lease_until = CASE
        WHEN accepted_at IS NULL THEN lease_until ELSE min(coalesce(:until, deadline_at), deadline_at)
    END,
    progress_percent = coalesce(:percent, progress_percent), progress_message = coalesce(:message, progress_message),
    progress_at = CASE WHEN :percent IS NULL AND :message IS NULL THEN progress_at ELSE :now END
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: extend_leases
-- Walks the primary key of live_runs.
UPDATE OR FAIL live_runs SET lease_until = min(:until, deadline_at)
WHERE (slot, job_id, scheduled_at) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(:rows));

-- name: grant_again
-- Walks the primary key of live_runs.
UPDATE OR FAIL live_runs SET granted_at = :now
WHERE (slot, job_id, scheduled_at) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(:rows));

-- name: release_lease
-- The attempt does not count, so its number is given back. No row where the token is not the run's, or where nobody
-- may start the run again: it was asked to stop, its job is deleted, or its handler has it.
UPDATE live_runs SET
    state = 'pending', ready_at = :now, attempt = attempt - 1, lease_token = NULL, lease_until = NULL
WHERE
    slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at
    AND state = 'running' AND lease_token = :token AND cancel_requested = 0 AND accepted_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.job_id = live_runs.job_id AND j.state = 'deleted');

-- name: end_succeeded
-- The hot end of runs: no row where the token is not a worker's who holds the run, or the run was asked to stop. Walks
-- the primary key of live_runs.
-- OR FAIL: a statement needs no journal of its own; the transaction or its savepoint undoes it.
INSERT OR FAIL INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, started_at, attempt_started_at,
    finished_at, duration_us, max_run_us, status, outcome, worker, last_token, queue, payload, response, moved_us
)
SELECT
    l.slot, l.job_id, l.scheduled_at, 'succeeded', l.first_started_at > l.late_after, l.trigger, l.job_version,
    l.attempt, l.created_at, l.first_started_at, r.value ->> 3, :now, r.value ->> 4, l.max_run_us, r.value ->> 5,
    'succeeded', l.worker, l.lease_token, l.queue, l.payload, CAST(r.value ->> 6 AS BLOB), l.moved_us
FROM jsonb_each(:rows) AS r
CROSS JOIN live_runs AS l
    ON l.slot = r.value ->> 0 AND l.job_id = r.value ->> 1 AND l.scheduled_at = r.value ->> 2
WHERE l.state = 'running' AND l.lease_token = unhex(r.value ->> 7) AND l.cancel_requested = 0 AND l.accepted_at IS NULL;

-- name: delete_live
-- Walks the primary key of live_runs.
DELETE FROM live_runs
WHERE (slot, job_id, scheduled_at) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(:rows));

-- name: any_waiting
-- Walks live_waiting: where no run waits for a lane, ending a run has nothing to pass on.
SELECT 1 FROM live_runs INDEXED BY live_waiting WHERE state = 'pending' AND lane IS NULL LIMIT 1;

-- name: get_live
-- Walks the primary key of live_runs.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, created_at,
    first_started_at, attempt_started_at, deadline_at, lease_until, worker, cancel_requested, queue, payload,
    lease_token, last_token, outcome, status, error, duration_us, free_attempts, revived_at, accepted_at
FROM live_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: lost_leases
-- Walks live_leased.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, created_at,
    first_started_at, attempt_started_at, deadline_at, lease_until, worker, cancel_requested, queue, payload,
    lease_token, last_token, outcome, status, error, duration_us, free_attempts, revived_at, accepted_at
FROM live_runs INDEXED BY live_leased
WHERE state = 'running' AND lease_until <= :now AND (lease_until < :now OR deadline_at <= :now)
ORDER BY lease_until
LIMIT :limit;

-- name: count_overdue
-- Walks live_leased: a lease never outlives the run's deadline.
SELECT count(*)
FROM live_runs INDEXED BY live_leased
WHERE state = 'running' AND lease_until < :now AND deadline_at < :now;

-- name: overdue_retries
-- Walks live_retries.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, created_at,
    first_started_at, attempt_started_at, deadline_at, lease_until, worker, cancel_requested, queue, payload,
    lease_token, last_token, outcome, status, error, duration_us, free_attempts, revived_at, accepted_at
FROM live_runs INDEXED BY live_retries
WHERE state = 'pending' AND deadline_at IS NOT NULL AND deadline_at <= :now
ORDER BY deadline_at
LIMIT :limit;

-- name: clock_of_job
-- Walks the primary key of clocks.
SELECT next_fire_at FROM clocks WHERE slot = :slot AND job_id = :job_id;

-- name: definition_of_version
-- Walks the primary keys of job_versions and jobs.
SELECT
    coalesce((
        SELECT v.definition FROM job_versions AS v
        WHERE v.slot = j.slot AND v.job_id = j.job_id AND v.version >= :job_version
        ORDER BY v.version LIMIT 1
    ), j.definition)
FROM jobs AS j
WHERE j.job_id = :job_id;

-- name: end_run
-- Every end but a plain success. Walks the primary key of live_runs.
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, started_at, attempt_started_at,
    finished_at, duration_us, max_run_us, status, outcome, worker, last_token, queue, payload, error, response,
    reason, blocked_by, moved_us
)
SELECT
    slot, job_id, scheduled_at, :state, coalesce(first_started_at > late_after, 0), trigger, job_version, attempt,
    created_at, first_started_at, :attempt_started_at, :now, :duration_us, max_run_us, :status, :outcome, worker,
    :last_token, queue, payload, :error, :response, :reason, :blocked_by, moved_us
FROM live_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: make_pending
-- From running, under the same key and lane. `back` is 1 where the attempt does not count: given back before anything
-- was sent, so a run whose first attempt that was has not started, and its max_run_time has not begun.
UPDATE live_runs SET
    state = 'pending', ready_at = :ready_at, attempt = attempt - :back, free_attempts = free_attempts + :free,
    first_started_at = CASE WHEN attempt = :back THEN NULL ELSE first_started_at END,
    deadline_at = CASE WHEN attempt = :back THEN NULL ELSE deadline_at END,
    lease_token = NULL, lease_until = NULL, cancel_requested = 0, accepted_at = NULL, progress_percent = NULL,
    progress_message = NULL, progress_at = NULL, last_token = :last_token, outcome = :outcome, status = :status, error = :error,
    duration_us = :duration_us
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: insert_attempt
INSERT INTO attempts (
    slot, job_id, scheduled_at, attempt, kind, started_at, duration_us, worker, status, error, token, response
)
VALUES (
    :slot, :job_id, :scheduled_at, :attempt, :kind, :started_at, :duration_us, :worker, :status, :error, :token,
    :response
)
ON CONFLICT (slot, job_id, scheduled_at, attempt) DO NOTHING;

-- name: finished_by_token
-- Walks the primary key of attempts.
SELECT 1 FROM attempts
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND token IN (:token, :callback_token);

-- name: max_running
SELECT max_running FROM jobs WHERE job_id = :job_id;

-- name: held_lanes
-- Walks live_lanes.
SELECT lane FROM live_runs INDEXED BY live_lanes WHERE slot = :slot AND job_id = :job_id AND lane IS NOT NULL;

-- name: next_waiting
-- Walks live_waiting: made by the schedule and not brought back first, then oldest.
SELECT scheduled_at
FROM live_runs INDEXED BY live_waiting
WHERE slot = :slot AND job_id = :job_id AND state = 'pending' AND lane IS NULL
ORDER BY rank, scheduled_at
LIMIT 1;

-- name: give_lane
UPDATE live_runs SET lane = :lane, ready_at = max(ready_at, :now)
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: revive_run
-- A new life of an ended run: its attempts are kept, its clock of max_run_us starts again.
INSERT INTO live_runs (
    slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, held, queue, payload, ready_at,
    late_after, max_run_us, created_at, last_token, outcome, status, error, duration_us, worker, moved_us,
    priority, free_attempts, revived_at
)
SELECT
    e.slot, e.job_id, e.scheduled_at, 'pending', e.trigger,
    CASE WHEN EXISTS (
        SELECT 1 FROM job_versions AS v
        WHERE v.slot = e.slot AND v.job_id = e.job_id AND v.version >= e.job_version
    ) THEN e.job_version ELSE j.version END,
    e.attempt, :lane, j.state = 'paused', e.queue, e.payload, :ready_at,
    :late_after, e.max_run_us, e.created_at, e.last_token, e.outcome, e.status, e.error, e.duration_us, e.worker,
    e.moved_us, :priority, e.attempt, :now
FROM ended_runs AS e CROSS JOIN jobs AS j ON j.job_id = e.job_id
WHERE e.slot = :slot AND e.job_id = :job_id AND e.scheduled_at = :scheduled_at;

-- name: delete_ended
DELETE FROM ended_runs WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: job_state
SELECT state FROM jobs WHERE job_id = :job_id;
