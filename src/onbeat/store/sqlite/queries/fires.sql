-- Fires become runs. Bindings go by position, in the order in which a name first appears in a query.
-- OR FAIL: a statement needs no journal of its own; the transaction or its savepoint undoes it.
-- :rows are those of `rows.encode_rows`, and what is due is read by `rows.decode_rows`, all in one call: each call gives
-- the interpreter's lock away and waits for it.

-- name: due_jobs
-- Walks clocks_due over all slots, since one node owns the file and asks for all of them (slots NULL); LEFT JOIN keeps
-- that order without statistics.
-- `busy` saves two look-ups for the many jobs that have no live run.
SELECT CAST(json_group_array(json_array(
    d.job_id, d.namespace, d.key, d.name, d.tags, d.version, d.state, d.reason, d.definition, d.next_fire_at,
    d.created_at, d.updated_at, d.paused_at, d.paused_until, d.paused_by, d.clock_of, d.busy
)) AS BLOB)
FROM (
    SELECT
        j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
        j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by, c.job_id AS clock_of,
        EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = c.slot AND l.job_id = c.job_id) AS busy
    FROM clocks AS c INDEXED BY clocks_due LEFT JOIN jobs AS j ON j.job_id = c.job_id
    WHERE c.next_fire_at BETWEEN :since AND :now AND (:slots IS NULL OR c.slot IN (SELECT value FROM json_each(:slots)))
    ORDER BY c.next_fire_at, c.slot, c.job_id
    LIMIT :limit
) AS d;

-- name: latest_due_jobs
-- Walks clocks_due backwards: what came due last.
SELECT CAST(json_group_array(json_array(
    d.job_id, d.namespace, d.key, d.name, d.tags, d.version, d.state, d.reason, d.definition, d.next_fire_at,
    d.created_at, d.updated_at, d.paused_at, d.paused_until, d.paused_by, d.clock_of, d.busy
)) AS BLOB)
FROM (
    SELECT
        j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
        j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by, c.job_id AS clock_of,
        EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = c.slot AND l.job_id = c.job_id) AS busy
    FROM clocks AS c INDEXED BY clocks_due LEFT JOIN jobs AS j ON j.job_id = c.job_id
    WHERE c.next_fire_at <= :now AND (:slots IS NULL OR c.slot IN (SELECT value FROM json_each(:slots)))
    ORDER BY c.next_fire_at DESC, c.slot DESC, c.job_id DESC
    LIMIT :limit
) AS d;

-- name: due_job
-- Walks the primary keys of clocks and jobs: one job, past all that are due before it.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by, c.job_id AS clock_of,
    EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = c.slot AND l.job_id = c.job_id) AS busy
FROM clocks AS c LEFT JOIN jobs AS j ON j.job_id = c.job_id
WHERE c.slot = :slot AND c.job_id = :job_id AND c.next_fire_at <= :now;

-- name: lane_holds
-- Walks live_lanes.
SELECT
    lane, scheduled_at, state, trigger, attempt, ready_at, revived_at IS NOT NULL AND first_started_at IS NULL
FROM live_runs INDEXED BY live_lanes
WHERE slot = :slot AND job_id = :job_id AND lane IS NOT NULL
ORDER BY lane;

-- name: newest_waiting
-- Walks live_waiting. Rank 0: made by the schedule, and not brought back.
SELECT scheduled_at
FROM live_runs INDEXED BY live_waiting
WHERE slot = :slot AND job_id = :job_id AND rank = 0 AND state = 'pending' AND lane IS NULL
ORDER BY scheduled_at DESC
LIMIT 1;

-- name: recovery_places
-- Reads live_runs, once at a start.
SELECT ready_at / 1000000 AS second, count(*)
FROM live_runs
WHERE state = 'pending' AND (trigger = 'catch_up' OR revived_at IS NOT NULL)
GROUP BY second;

-- name: displace_run
-- A run that has not begun gives its lane to another of its job and waits for one again.
UPDATE live_runs SET lane = NULL
WHERE
    slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state = 'pending'
    AND (attempt = 0 OR (revived_at IS NOT NULL AND first_started_at IS NULL));

-- name: next_due_at
-- Walks clocks_due.
SELECT min(next_fire_at) FROM clocks INDEXED BY clocks_due
WHERE :slots IS NULL OR slot IN (SELECT value FROM json_each(:slots));

-- name: move_clocks
-- Walks the primary key of clocks.
UPDATE OR FAIL clocks SET next_fire_at = r.next_fire_at
FROM (SELECT value ->> 0 AS next_fire_at, value ->> 1 AS slot, value ->> 2 AS job_id FROM jsonb_each(:rows)) AS r
WHERE clocks.slot = r.slot AND clocks.job_id = r.job_id;

-- name: insert_runs
-- With a token they are born running. A fire's identity must be new among live runs, ended runs and collapsed ranges.
WITH r (
    slot, job_id, scheduled_at, trigger, job_version, lane, held, queue, payload, ready_at, late_after,
    max_run_us, lease_token, lease_until, worker, moved_us, priority, started_at
) AS MATERIALIZED (
    SELECT
        value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
        value ->> 8, value ->> 9, value ->> 10, value ->> 11, unhex(value ->> 12), value ->> 13, value ->> 14,
        value ->> 15, value ->> 16, CASE WHEN value ->> 12 IS NOT NULL THEN :now END
    FROM jsonb_each(:rows)
)
INSERT OR FAIL INTO live_runs (
    slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, held, queue, payload, ready_at,
    late_after, max_run_us, created_at, first_started_at, attempt_started_at, granted_at, deadline_at,
    lease_token, lease_until, worker, moved_us, priority
)
SELECT
    r.slot, r.job_id, r.scheduled_at, CASE WHEN r.lease_token IS NULL THEN 'pending' ELSE 'running' END, r.trigger,
    r.job_version, r.lease_token IS NOT NULL, r.lane, r.held, r.queue, r.payload, r.ready_at, r.late_after,
    r.max_run_us, :now, r.started_at, r.started_at, r.started_at, r.started_at + r.max_run_us,
    r.lease_token, min(r.lease_until, r.started_at + r.max_run_us), r.worker, r.moved_us, r.priority
FROM r
WHERE
    NOT EXISTS (
        SELECT 1 FROM ended_runs AS e
        WHERE e.slot = r.slot AND e.job_id = r.job_id AND e.scheduled_at = r.scheduled_at
    )
    AND coalesce((
        SELECT e.until FROM ended_runs AS e INDEXED BY ended_ranges
        WHERE e.slot = r.slot AND e.job_id = r.job_id AND e.scheduled_at < r.scheduled_at AND e.count > 1
        ORDER BY e.scheduled_at DESC LIMIT 1
    ), -1) < r.scheduled_at
ON CONFLICT (slot, job_id, scheduled_at) DO NOTHING;

-- name: insert_marks
-- A mark is born ended. All of its instants must be new among live runs, ended runs and collapsed ranges; runs by hand
-- are of no planned instant. Those of one statement are disjoint. Walks the primary key of live_runs, ended_key and
-- ended_ranges.
WITH r (
    slot, job_id, scheduled_at, state, job_version, reason, count, until, blocked_by
) AS MATERIALIZED (
    SELECT
        value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
        value ->> 8
    FROM jsonb_each(:rows)
)
INSERT OR FAIL INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, finished_at,
    reason, count, until, blocked_by
)
SELECT
    r.slot, r.job_id, r.scheduled_at, r.state, 0, 'schedule', r.job_version, 0, :now, :now,
    r.reason, r.count, r.until, r.blocked_by
FROM r
WHERE
    NOT EXISTS (
        SELECT 1 FROM live_runs AS l
        WHERE
            l.slot = r.slot AND l.job_id = r.job_id
            AND l.scheduled_at BETWEEN r.scheduled_at AND coalesce(r.until, r.scheduled_at)
            AND l.trigger NOT IN ('manual', 'test')
    )
    AND (
        r.until IS NULL
        OR NOT EXISTS (
            SELECT 1 FROM ended_runs AS e INDEXED BY ended_key
            WHERE
                e.slot = r.slot AND e.job_id = r.job_id AND e.scheduled_at BETWEEN r.scheduled_at AND r.until
                AND e.trigger NOT IN ('manual', 'test')
        )
    )
    AND coalesce((
        SELECT e.until FROM ended_runs AS e INDEXED BY ended_ranges
        WHERE e.slot = r.slot AND e.job_id = r.job_id AND e.scheduled_at <= r.scheduled_at AND e.count > 1
        ORDER BY e.scheduled_at DESC LIMIT 1
    ), -1) < r.scheduled_at
ON CONFLICT (slot, job_id, scheduled_at) DO NOTHING;

-- name: recorded_spans
-- Walks the same keys as insert_mark: what is recorded of the instants from :first_at to :last_at of one job.
SELECT scheduled_at, scheduled_at FROM live_runs
WHERE
    slot = :slot AND job_id = :job_id AND scheduled_at BETWEEN :first_at AND :last_at
    AND trigger NOT IN ('manual', 'test')
UNION ALL
SELECT scheduled_at, coalesce(until, scheduled_at) FROM ended_runs INDEXED BY ended_key
WHERE
    slot = :slot AND job_id = :job_id AND scheduled_at BETWEEN :first_at AND :last_at
    AND trigger NOT IN ('manual', 'test')
UNION ALL
SELECT scheduled_at, until FROM (
    SELECT scheduled_at, until FROM ended_runs INDEXED BY ended_ranges
    WHERE slot = :slot AND job_id = :job_id AND scheduled_at < :first_at AND count > 1
    ORDER BY scheduled_at DESC LIMIT 1
);

-- name: grow_blackout
-- Walks ended_key backwards to the job's newest record, and the primary key of live_runs to what came after it.
UPDATE ended_runs SET until = :until, count = count + :count, finished_at = :now
WHERE
    ended_id = (
        SELECT ended_id FROM ended_runs INDEXED BY ended_key
        WHERE slot = :slot AND job_id = :job_id
        ORDER BY scheduled_at DESC LIMIT 1
    )
    AND reason = 'blackout' AND job_version = :job_version AND coalesce(until, scheduled_at) < :scheduled_at
    AND NOT EXISTS (
        SELECT 1 FROM live_runs AS l
        WHERE l.slot = :slot AND l.job_id = :job_id AND l.scheduled_at > ended_runs.scheduled_at
    );

-- name: stop_run
-- A run that its handler holds has no worker that would report its end: the reaper ends it at once.
UPDATE live_runs SET
    cancel_requested = 1, lease_until = CASE WHEN accepted_at IS NULL THEN lease_until ELSE 0 END
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state = 'running';
