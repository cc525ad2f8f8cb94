-- Who may deliver what, until when. Parameters are numbered in the order in which a name first appears in a query.

-- name: what_ends_leave
-- The first run that waits for a lane: made by the schedule first, then oldest; and whether the end of the job's last
-- run sets its clock. Walks live_waiting and the primary key of after_finish once per job.
SELECT asked.job_id, head.scheduled_at, a.job_id IS NOT NULL
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
LEFT JOIN LATERAL (
    SELECT l.scheduled_at FROM live_runs AS l
    WHERE l.slot = asked.slot AND l.job_id = asked.job_id AND l.state = 'pending' AND l.lane IS NULL
        AND l.rank >= 0
    ORDER BY l.rank, l.scheduled_at
    LIMIT 1
) AS head ON true
LEFT JOIN after_finish AS a ON a.slot = asked.slot AND a.job_id = asked.job_id
WHERE head.scheduled_at IS NOT NULL OR a.job_id IS NOT NULL;

-- name: lock_waiting
-- Fewer rows than asked for: such a run has left the line meanwhile. Walks the primary key of live_runs.
SELECT l.job_id
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[]) AS asked (slot, job_id, scheduled_at)
JOIN live_runs AS l
    ON l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
WHERE l.state = 'pending' AND l.lane IS NULL
ORDER BY asked.slot, asked.job_id, l.scheduled_at
FOR UPDATE OF l;

-- name: lanes_of_jobs
-- Walks the primary key of jobs, and live_lanes once per job.
SELECT
    asked.job_id, j.max_running,
    ARRAY(
        SELECT l.lane FROM live_runs AS l
        WHERE l.slot = asked.slot AND l.job_id = asked.job_id AND l.lane IS NOT NULL
    )
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN jobs AS j ON j.slot = asked.slot AND j.job_id = asked.job_id;

-- name: give_lanes
-- Walks the primary key of live_runs.
UPDATE live_runs AS l SET lane = given.lane, ready_at = greatest(l.ready_at, :now)
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[], :lanes::bigint[])
    AS given (slot, job_id, scheduled_at, lane)
WHERE l.slot = ANY (ARRAY[given.slot]) AND l.job_id = given.job_id AND l.scheduled_at = given.scheduled_at;

-- name: lock_live
-- Walks the primary key of live_runs.
SELECT
    l.job_id, l.scheduled_at, l.state, l.trigger, l.job_version, l.attempt, l.lane, l.ready_at, l.late_after,
    l.created_at, l.first_started_at, l.attempt_started_at, l.deadline_at, l.lease_until, l.worker, l.cancel_requested,
    nullif(l.queue, ''), l.payload, l.lease_token, l.last_token, l.outcome, l.status, l.error, l.duration_us,
    l.free_attempts, l.revived_at, l.accepted_at
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[]) AS asked (slot, job_id, scheduled_at)
JOIN live_runs AS l
    ON l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
ORDER BY asked.slot, asked.job_id, l.scheduled_at
FOR UPDATE OF l;

-- name: jobs_of_runs
-- What is to be known of a run's job to decide about it. Walks the primary keys of jobs, job_versions and clocks.
SELECT
    j.job_id, asked.version, j.state,
    coalesce((
        SELECT v.definition FROM job_versions AS v
        WHERE v.slot = asked.slot AND v.job_id = asked.job_id AND v.version >= asked.version
        ORDER BY v.version LIMIT 1
    ), j.definition),
    (SELECT c.next_fire_at FROM clocks AS c WHERE c.slot = asked.slot AND c.job_id = asked.job_id)
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
    WHERE l.slot = ANY (ARRAY[e.slot]) AND l.job_id = e.job_id AND l.scheduled_at = e.scheduled_at
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
WHERE l.slot = ANY (ARRAY[r.slot]) AND l.job_id = r.job_id AND l.scheduled_at = r.scheduled_at;

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
WHERE l.slot = ANY (ARRAY[a.slot]) AND l.job_id = a.job_id AND l.scheduled_at = a.scheduled_at;

-- name: first_ready
-- The head of each line from its floor on. Walks live_claimable: one seek to each priority there is.
SELECT asked.priority, head.ready_at
FROM unnest(:priorities::bigint[], :floors::bigint[]) AS asked (priority, floor)
CROSS JOIN LATERAL (
    SELECT l.ready_at FROM live_runs AS l
    WHERE
        l.queue = :queue AND l.priority = asked.priority AND l.state = 'pending' AND l.lane IS NOT NULL AND NOT l.held
        -- one slot: AND l.slot = :slot
        AND l.ready_at >= asked.floor
    ORDER BY l.ready_at
    LIMIT 1
) AS head;

-- name: lease_runs
-- Looks up how many of the first runs of all lines stand in which priority's line, without locking any, then takes so
-- many of each line past those that others hold, and gives them the leases in their order. A row without a run says
-- only how many were looked for. A lease never outlives the run's deadline, so live_leased serves both kinds of expiry.
-- Walks live_claimable (one seek to each priority that is asked for, at its floor, then the beginnings of their lines:
-- runs that wait for a lane, lie in the future or belong to a paused job are in nobody's way), then the primary keys of
-- live_runs, jobs and job_versions.
WITH lines AS MATERIALIZED (
    SELECT front.priority, front.floor, count(*) AS count
    FROM (
        SELECT asked.priority, asked.floor
        FROM unnest(:priorities::bigint[], :floors::bigint[]) AS asked (priority, floor)
        CROSS JOIN LATERAL (
            SELECT l.ready_at FROM live_runs AS l
            WHERE
                l.queue = :queue AND l.priority = asked.priority AND l.state = 'pending' AND l.lane IS NOT NULL
                -- one slot: AND l.slot = :slot
                AND NOT l.held AND l.ready_at BETWEEN asked.floor AND :now
            ORDER BY l.ready_at
            LIMIT :limit
        ) AS line
        ORDER BY line.ready_at - asked.priority * :ageing_us::bigint
        LIMIT :limit
    ) AS front
    GROUP BY front.priority, front.floor
),
taken AS MATERIALIZED (
    SELECT
        array_agg(line.slot ORDER BY line.place) AS slots, array_agg(line.job_id ORDER BY line.place) AS job_ids,
        array_agg(line.scheduled_at ORDER BY line.place) AS instants
    FROM (
        SELECT run.slot, run.job_id, run.scheduled_at, run.ready_at - lines.priority * :ageing_us::bigint AS place
        FROM lines CROSS JOIN LATERAL (
            SELECT l.slot, l.job_id, l.scheduled_at, l.ready_at FROM live_runs AS l
            WHERE
                l.queue = :queue AND l.priority = lines.priority AND l.state = 'pending' AND l.lane IS NOT NULL
                -- one slot: AND l.slot = :slot
                AND NOT l.held AND l.ready_at BETWEEN lines.floor AND :now
            ORDER BY l.ready_at
            LIMIT lines.count
            FOR UPDATE OF l SKIP LOCKED
        ) AS run
    ) AS line
),
leased AS (
    UPDATE live_runs AS l SET
        state = 'running', attempt = l.attempt + 1, lease_token = given.token, worker = given.worker,
        lease_until = least(given.until, coalesce(l.deadline_at, :now + l.max_run_us)),
        granted_at = :now, attempt_started_at = :now, first_started_at = coalesce(l.first_started_at, :now),
        deadline_at = coalesce(l.deadline_at, :now + l.max_run_us)
    FROM taken CROSS JOIN LATERAL unnest(
        taken.slots, taken.job_ids, taken.instants, :tokens::bytea[], :workers::text[], :untils::bigint[]
    ) WITH ORDINALITY AS given (slot, job_id, scheduled_at, token, worker, until, number)
    WHERE l.slot = ANY (ARRAY[given.slot]) AND l.job_id = given.job_id AND l.scheduled_at = given.scheduled_at
        -- one slot: AND l.slot = :slot
    RETURNING given.number, l.*
)
SELECT
    lines.priority, lines.count, run.number, run.job_id, run.scheduled_at, run.lease_token, run.attempt, run.trigger,
    run.job_version, run.namespace, run.name, run.key, run.definition, run.payload, run.queue, run.lease_until,
    run.deadline_at, run.late_after
FROM lines LEFT JOIN (
    SELECT
        l.number, l.priority, l.job_id, l.scheduled_at, l.lease_token, l.attempt, l.trigger, l.job_version, j.namespace,
        j.name, j.key,
        CASE WHEN l.job_version = j.version THEN j.definition ELSE coalesce((
            SELECT v.definition FROM job_versions AS v
            WHERE v.slot = l.slot AND v.job_id = l.job_id AND v.version >= l.job_version
                -- one slot: AND v.slot = :slot
            ORDER BY v.version LIMIT 1
        ), j.definition) END AS definition,
        l.payload, nullif(l.queue, '') AS queue, l.lease_until, l.deadline_at, l.late_after
    FROM leased AS l JOIN jobs AS j ON j.slot = l.slot AND j.job_id = l.job_id
        -- one slot: AND j.slot = :slot
) AS run ON run.priority = lines.priority;

-- name: extend_leases
-- Of live leases under exactly these tokens. Walks the primary key of live_runs.
UPDATE live_runs AS l SET lease_until = least(:until, l.deadline_at)
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[], :tokens::bytea[])
    AS asked (slot, job_id, scheduled_at, token)
WHERE
    l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
    AND l.state = 'running' AND l.lease_token = asked.token AND l.lease_until >= :now AND l.accepted_at IS NULL
RETURNING l.job_id, l.scheduled_at, l.lease_token, l.cancel_requested;

-- name: grant_again
-- Of live leases under exactly these tokens. The row is written also where the answer is no: so a pause that waits for
-- it has either marked it before, or finds the grant made before the pause is acknowledged.
-- Walks the primary key of live_runs.
UPDATE live_runs AS l SET granted_at = CASE WHEN l.cancel_requested OR l.held THEN l.granted_at ELSE :now END
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[], :tokens::bytea[])
    AS asked (slot, job_id, scheduled_at, token)
WHERE
    l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
    AND l.state = 'running' AND l.lease_token = asked.token AND l.lease_until >= :now AND l.accepted_at IS NULL
RETURNING l.job_id, l.scheduled_at, l.lease_token, l.cancel_requested, l.held;

-- name: release_leases
-- The attempt does not count, so its number is given back. Walks the primary key of live_runs.
UPDATE live_runs AS l SET
    state = 'pending', ready_at = :now, attempt = l.attempt - 1, lease_token = NULL, lease_until = NULL
FROM unnest(:slots::integer[], :job_ids::bigint[], :instants::bigint[]) AS asked (slot, job_id, scheduled_at)
WHERE l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at;

-- name: end_succeeded
-- The hot end of runs: no row where the token is not a worker's who holds the run, or the run was asked to stop.
-- Walks the primary key of live_runs.
WITH ended AS (
    DELETE FROM live_runs AS l
    USING unnest(
        :slots::integer[], :job_ids::bigint[], :instants::bigint[], :tokens::bytea[], :started_ats::bigint[],
        :durations::bigint[], :statuses::bigint[], :responses::bytea[]
    ) AS f (slot, job_id, scheduled_at, token, started_at, end_duration_us, end_status, response)
    WHERE
        l.slot = ANY (ARRAY[f.slot]) AND l.job_id = f.job_id AND l.scheduled_at = f.scheduled_at
        AND l.state = 'running' AND l.lease_token = f.token AND NOT l.cancel_requested AND l.accepted_at IS NULL
    RETURNING
        l.slot, l.job_id, l.scheduled_at, l.first_started_at, l.late_after, l.trigger, l.job_version, l.attempt,
        l.created_at, l.max_run_us, l.worker, l.lease_token, l.queue, l.payload, l.moved_us, f.started_at,
        f.end_duration_us, f.end_status, f.response
)
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, started_at, attempt_started_at,
    finished_at, duration_us, max_run_us, status, outcome, worker, last_token, queue, payload, response, moved_us
)
SELECT
    slot, job_id, scheduled_at, 'succeeded', first_started_at > late_after, trigger, job_version, attempt, created_at,
    first_started_at, started_at, :now::bigint, end_duration_us, max_run_us, end_status, 'succeeded', worker,
    lease_token, queue, payload, response, moved_us
FROM ended
RETURNING job_id, scheduled_at;

-- name: what_became_of
-- Runs as they stand at one moment, wherever, and whether an attempt that did not succeed was finished by one of two
-- tokens. Walks the primary keys of live_runs, ended_runs and attempts.
SELECT
    asked.job_id, asked.scheduled_at, coalesce(l.state, e.state),
    CASE WHEN l.job_id IS NULL THEN e.last_token ELSE l.last_token END, l.ready_at,
    EXISTS (
        SELECT 1 FROM attempts AS a
        WHERE
            a.slot = asked.slot AND a.job_id = asked.job_id AND a.scheduled_at = asked.scheduled_at
            AND a.token IN (asked.token, asked.other_token)
    )
FROM unnest(
    :slots::integer[], :job_ids::bigint[], :instants::bigint[], :tokens::bytea[], :other_tokens::bytea[]
) AS asked (slot, job_id, scheduled_at, token, other_token)
LEFT JOIN live_runs AS l
    ON l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
LEFT JOIN ended_runs AS e
    ON e.slot = asked.slot AND e.job_id = asked.job_id AND e.scheduled_at = asked.scheduled_at;

-- name: lost_leases
-- Walks live_leased from the floor. What another transaction holds is passed over: it is being finished, or expired by another node.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, created_at,
    first_started_at, attempt_started_at, deadline_at, lease_until, worker, cancel_requested, nullif(queue, ''),
    payload, lease_token, last_token, outcome, status, error, duration_us, free_attempts, revived_at, accepted_at, slot
FROM live_runs
WHERE
    state = 'running' AND deadline_at > 0 AND lease_until BETWEEN :floor AND :now
    AND (lease_until < :now OR deadline_at <= :now)
    -- one slot: AND slot = :slot
ORDER BY lease_until
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: overdue_retries
-- Walks live_retries from the floor; else as `lost_leases`.
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, created_at,
    first_started_at, attempt_started_at, deadline_at, lease_until, worker, cancel_requested, nullif(queue, ''),
    payload, lease_token, last_token, outcome, status, error, duration_us, free_attempts, revived_at, accepted_at, slot
FROM live_runs
WHERE state = 'pending' AND deadline_at IS NOT NULL AND deadline_at BETWEEN :floor AND :now
    -- one slot: AND slot = :slot
ORDER BY deadline_at
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: first_overdue
-- The first lease and the first retry that are over, whoever holds them. Walks live_leased and live_retries from the
-- floors.
SELECT
    (
        SELECT l.lease_until FROM live_runs AS l
        WHERE l.state = 'running' AND l.deadline_at > 0 AND l.lease_until BETWEEN :leases_from AND :now
        ORDER BY l.lease_until LIMIT 1
    ),
    (
        SELECT l.deadline_at FROM live_runs AS l
        WHERE l.state = 'pending' AND l.deadline_at IS NOT NULL AND l.deadline_at BETWEEN :retries_from AND :now
        ORDER BY l.deadline_at LIMIT 1
    );

-- name: count_overdue
-- Walks live_leased from the floor: a lease never outlives the run's deadline.
SELECT count(*) FROM live_runs
WHERE state = 'running' AND deadline_at > 0 AND lease_until >= :floor AND lease_until < :now AND deadline_at < :now;

-- name: report_progress
-- The lease of a run that was not accepted yet is its worker's to extend. Walks the primary key of live_runs.
UPDATE live_runs SET
    lease_until = CASE
        WHEN accepted_at IS NULL THEN lease_until ELSE least(coalesce(:until::bigint, deadline_at), deadline_at)
    END,
    progress_percent = coalesce(:percent::double precision, progress_percent),
    progress_message = coalesce(:message::text, progress_message),
    progress_at = CASE WHEN :percent IS NULL AND :message IS NULL THEN progress_at ELSE :now::bigint END
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: revive_run
-- A new life of an ended run: its attempts are kept, its clock of max_run_us starts again. The caller holds the job's
-- row. Walks the primary keys.
WITH e AS (
    DELETE FROM ended_runs
    WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at
    RETURNING *
)
INSERT INTO live_runs (
    slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, held, queue, payload, ready_at,
    late_after, max_run_us, created_at, last_token, outcome, status, error, duration_us, worker, moved_us,
    priority, free_attempts, revived_at
)
SELECT
    e.slot, e.job_id, e.scheduled_at, 'pending', e.trigger,
    CASE WHEN EXISTS (
        SELECT 1 FROM job_versions AS v
        WHERE v.slot = :slot AND v.job_id = :job_id AND v.version >= e.job_version
    ) THEN e.job_version ELSE j.version END,
    e.attempt, :lane::bigint, j.state = 'paused', e.queue, e.payload, :ready_at::bigint,
    :late_after::bigint, e.max_run_us, e.created_at, e.last_token, e.outcome, e.status, e.error, e.duration_us,
    e.worker, e.moved_us, :priority::bigint, e.attempt, :now::bigint
FROM e JOIN jobs AS j ON j.slot = :slot AND j.job_id = :job_id;
