-- Fires become runs. One statement for a batch of jobs: rows come as arrays, one per column.

-- name: lock_due
-- Walks clocks_due from the floor (ClockFloor). A clock that another node holds is that node's to fire.
SELECT slot, job_id, next_fire_at
FROM clocks
WHERE next_fire_at BETWEEN :floor AND :now AND (:slots::integer[] IS NULL OR slot = ANY(:slots))
ORDER BY next_fire_at, slot, job_id
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: lock_latest_due
-- Walks clocks_due backwards: what came due last.
SELECT slot, job_id, next_fire_at
FROM clocks
WHERE next_fire_at BETWEEN :floor AND :now AND (:slots::integer[] IS NULL OR slot = ANY(:slots))
ORDER BY next_fire_at DESC, slot DESC, job_id DESC
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: lock_due_job
-- Walks the primary key of clocks: one job, past all that are due before it.
SELECT slot, job_id, next_fire_at
FROM clocks
WHERE slot = :slot AND job_id = :job_id AND next_fire_at <= :now
FOR UPDATE SKIP LOCKED;

-- name: jobs_of_clocks
-- Walks the primary keys of jobs and live_runs. A statement of its own: what the clocks' locks waited for is seen.
-- `newest_live` saves looking at lanes for the many jobs that have no live run, and tells which instants may be those of
-- live ones. With LIMIT: a max() or an EXISTS in this place the planner may answer by reading all of live_runs once.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by,
    (
        SELECT l.scheduled_at FROM live_runs AS l
        WHERE l.slot = c.slot AND l.job_id = c.job_id
        ORDER BY l.scheduled_at DESC LIMIT 1
    ) AS newest_live
FROM unnest(:slots::integer[], :job_ids::bigint[], :next_fire_ats::bigint[]) AS c (slot, job_id, next_fire_at)
JOIN jobs AS j ON j.slot = c.slot AND j.job_id = c.job_id;

-- name: next_due_at
-- Walks clocks_due from the floor.
SELECT next_fire_at
FROM clocks
WHERE next_fire_at >= :floor AND (:slots::integer[] IS NULL OR slot = ANY(:slots))
ORDER BY next_fire_at
LIMIT 1;

-- name: recovery_places
-- Reads live_runs, once at a start.
SELECT ready_at / 1000000 AS second, count(*)
FROM live_runs
WHERE state = 'pending' AND (trigger = 'catch_up' OR revived_at IS NOT NULL)
GROUP BY second;

-- name: end_pending_runs
-- Walks the primary key of live_runs. Runs that no worker has, of those that are named; some of them only if they have
-- not begun. What a last attempt came to stays.
WITH gone AS (
    DELETE FROM live_runs AS l
    USING unnest(
        :slots::integer[], :job_ids::bigint[], :scheduled_ats::bigint[], :states::text[], :reasons::text[],
        :blocked_bys::bigint[], :are_unstarted::boolean[]
    ) AS asked (slot, job_id, scheduled_at, state, reason, blocked_by, is_unstarted)
    WHERE
        l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
        AND l.state = 'pending' AND (l.attempt = 0 OR NOT asked.is_unstarted)
    RETURNING
        l.slot, l.job_id, l.scheduled_at, asked.state, l.first_started_at, l.late_after, l.trigger, l.job_version,
        l.attempt, l.created_at, l.attempt_started_at, l.duration_us, l.max_run_us, l.status, l.outcome, l.worker,
        l.last_token, l.queue, l.payload, l.error, asked.reason, asked.blocked_by, l.moved_us
),
ended AS (
    INSERT INTO ended_runs (
        slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, started_at,
        attempt_started_at, finished_at, duration_us, max_run_us, status, outcome, worker, last_token, queue, payload,
        error, reason, blocked_by, moved_us
    )
    SELECT
        slot, job_id, scheduled_at, state, coalesce(first_started_at > late_after, false), trigger, job_version,
        attempt, created_at, first_started_at, attempt_started_at, :now::bigint, duration_us, max_run_us, status,
        outcome, worker, last_token, queue, payload, error, reason, blocked_by, moved_us
    FROM gone
)
SELECT job_id FROM gone;

-- name: stop_runs
-- Walks the primary key of live_runs. A run that its handler holds has no worker that would report its end: the reaper
-- ends it at once, as a lease that has just ended (an older one would lie below its floor).
UPDATE live_runs AS l SET
    cancel_requested = true,
    lease_until = CASE WHEN l.accepted_at IS NULL THEN l.lease_until ELSE least(l.lease_until, :now::bigint - 1) END
FROM unnest(:slots::integer[], :job_ids::bigint[], :scheduled_ats::bigint[]) AS asked (slot, job_id, scheduled_at)
WHERE
    l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
    AND l.state = 'running'
RETURNING l.job_id, l.scheduled_at;

-- name: displace_runs
-- Walks the primary key of live_runs. Runs that have not begun give their lanes to others of their job and wait again.
UPDATE live_runs AS l SET lane = NULL
FROM unnest(:slots::integer[], :job_ids::bigint[], :scheduled_ats::bigint[]) AS asked (slot, job_id, scheduled_at)
WHERE
    l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
    AND l.state = 'pending' AND (l.attempt = 0 OR (l.revived_at IS NOT NULL AND l.first_started_at IS NULL));

-- name: hold_identities
-- Walks the primary key of live_runs. For insert_runs, which sees history as it stood when it began and live runs as they
-- stand when it meets them: a run that ends in between would be in neither. Whoever ends one of these is waited for, or
-- waits; attempts begin and go on under this lock.
SELECT count(*) FROM (
    SELECT 1
    FROM unnest(:slots::integer[], :job_ids::bigint[], :scheduled_ats::bigint[]) AS asked (slot, job_id, scheduled_at)
    JOIN live_runs AS l
        ON l.slot = ANY (ARRAY[asked.slot]) AND l.job_id = asked.job_id AND l.scheduled_at = asked.scheduled_at
    ORDER BY asked.slot, asked.job_id, l.scheduled_at
    FOR KEY SHARE OF l
) AS held;

-- name: insert_runs
-- With a token they are born running. A fire's identity must be new among live runs, ended runs and collapsed ranges.
-- Walks the primary keys of live_runs, of the one partition of ended_runs, and of ended_ranges. :first_at and :last_at
-- enclose all instants: they tell, once for the statement, that the other partitions are in none of its rows' way.
-- No NOT EXISTS: planned while a partition is new, that reads all that ended of these instants for each row.
INSERT INTO live_runs (
    slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, held, queue, payload, ready_at,
    late_after, max_run_us, created_at, first_started_at, attempt_started_at, granted_at, deadline_at,
    lease_token, lease_until, worker, moved_us, priority
)
SELECT
    r.slot, r.job_id, r.scheduled_at, CASE WHEN r.token IS NULL THEN 'pending' ELSE 'running' END, r.trigger,
    r.job_version, CASE WHEN r.token IS NULL THEN 0 ELSE 1 END, r.lane, :held::boolean, coalesce(r.queue, ''),
    r.payload, r.ready_at, r.late_after, r.max_run_us, :now::bigint, r.started_at, r.started_at, r.started_at,
    r.started_at + r.max_run_us, r.token, least(r.lease_until, r.started_at + r.max_run_us), r.worker, r.moved_us,
    r.priority
FROM (
    SELECT *, CASE WHEN token IS NULL THEN NULL ELSE :now::bigint END AS started_at
    FROM unnest(
        :slots::integer[], :job_ids::bigint[], :scheduled_ats::bigint[], :triggers::text[], :job_versions::bigint[],
        :lanes::bigint[], :queues::text[], :payloads::text[], :ready_ats::bigint[], :late_afters::bigint[],
        :max_run_us::bigint[], :tokens::bytea[], :lease_untils::bigint[], :workers::text[], :moved_us::bigint[],
        :priorities::bigint[]
    ) AS asked (
        slot, job_id, scheduled_at, trigger, job_version, lane, queue, payload, ready_at, late_after, max_run_us,
        token, lease_until, worker, moved_us, priority
    )
) AS r
WHERE
    (
        SELECT e.scheduled_at FROM ended_runs AS e
        WHERE
            e.slot = r.slot AND e.job_id = r.job_id AND e.scheduled_at = r.scheduled_at
            AND e.scheduled_at BETWEEN :first_at AND :last_at
        LIMIT 1
    ) IS NULL
    AND coalesce((
        SELECT g.until FROM ended_ranges AS g
        WHERE g.slot = r.slot AND g.job_id = r.job_id AND g.scheduled_at < r.scheduled_at
        ORDER BY g.scheduled_at DESC LIMIT 1
    ), -1) < r.scheduled_at
ON CONFLICT (slot, job_id, scheduled_at) DO NOTHING
RETURNING job_id, scheduled_at;

-- name: insert_marks
-- A mark is born ended. All of its instants must be new among live runs, ended runs and collapsed ranges; runs by hand
-- are of no planned instant. Walks the primary keys of live_runs, of the partitions of ended_runs between :first_at and
-- :last_at, which enclose all marks, and of ended_ranges.
WITH inserted AS (
    INSERT INTO ended_runs (
        slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, finished_at,
        reason, count, until, blocked_by
    )
    SELECT
        m.slot, m.job_id, m.scheduled_at, m.state, false, 'schedule', m.job_version, 0, :now::bigint, :now::bigint,
        m.reason, m.count, CASE WHEN m.count > 1 THEN m.until END, m.blocked_by
    FROM unnest(
        :slots::integer[], :job_ids::bigint[], :scheduled_ats::bigint[], :states::text[], :job_versions::bigint[],
        :reasons::text[], :counts::bigint[], :untils::bigint[], :blocked_bys::bigint[]
    ) AS m (slot, job_id, scheduled_at, state, job_version, reason, count, until, blocked_by)
    WHERE
        (
            SELECT l.scheduled_at FROM live_runs AS l
            WHERE
                l.slot = m.slot AND l.job_id = m.job_id AND l.scheduled_at BETWEEN m.scheduled_at AND m.until
                AND l.trigger NOT IN ('manual', 'test')
            LIMIT 1
        ) IS NULL
        AND (
            m.count = 1
            OR (
                SELECT e.scheduled_at FROM ended_runs AS e
                WHERE
                    e.slot = m.slot AND e.job_id = m.job_id AND e.scheduled_at BETWEEN m.scheduled_at AND m.until
                    AND e.scheduled_at BETWEEN :first_at AND :last_at AND e.trigger NOT IN ('manual', 'test')
                LIMIT 1
            ) IS NULL
        )
        AND coalesce((
            SELECT g.until FROM ended_ranges AS g
            WHERE g.slot = m.slot AND g.job_id = m.job_id AND g.scheduled_at <= m.scheduled_at
            ORDER BY g.scheduled_at DESC LIMIT 1
        ), -1) < m.scheduled_at
    ON CONFLICT (slot, job_id, scheduled_at) DO NOTHING
    RETURNING slot, job_id, scheduled_at, until
),
ranges AS (
    INSERT INTO ended_ranges (slot, job_id, scheduled_at, until)
    SELECT slot, job_id, scheduled_at, until FROM inserted WHERE until IS NOT NULL
)
SELECT job_id, scheduled_at FROM inserted;

-- name: recorded_spans
-- Walks the same keys as insert_marks: what is recorded of the instants from :first_at to :last_at of one job.
SELECT l.scheduled_at, l.scheduled_at
FROM live_runs AS l
WHERE
    l.slot = :slot::integer AND l.job_id = :job_id::bigint
    AND l.scheduled_at BETWEEN :first_at::bigint AND :last_at::bigint AND l.trigger NOT IN ('manual', 'test')
UNION ALL
SELECT e.scheduled_at, coalesce(e.until, e.scheduled_at)
FROM ended_runs AS e
WHERE
    e.slot = :slot::integer AND e.job_id = :job_id::bigint
    AND e.scheduled_at BETWEEN :first_at::bigint AND :last_at::bigint AND e.trigger NOT IN ('manual', 'test')
UNION ALL
(
    SELECT g.scheduled_at, g.until
    FROM ended_ranges AS g
    WHERE g.slot = :slot::integer AND g.job_id = :job_id::bigint AND g.scheduled_at < :first_at::bigint
    ORDER BY g.scheduled_at DESC LIMIT 1
);

-- name: grow_blackouts
-- Walks the primary keys backwards: of ended_runs to each job's newest record, of live_runs to what came after it.
-- The newest are looked up first: asked for in a condition, PostgreSQL before 18 reads all of ended_runs for them.
WITH newest AS MATERIALIZED (
    SELECT m.*, n.scheduled_at AS newest_at
    FROM unnest(
        :slots::integer[], :job_ids::bigint[], :scheduled_ats::bigint[], :job_versions::bigint[],
        :counts::bigint[], :untils::bigint[]
    ) AS m (slot, job_id, scheduled_at, job_version, count, until)
    CROSS JOIN LATERAL (
        SELECT r.scheduled_at FROM ended_runs AS r
        WHERE r.slot = m.slot AND r.job_id = m.job_id
        ORDER BY r.scheduled_at DESC LIMIT 1
    ) AS n
),
grown AS (
    UPDATE ended_runs AS e SET until = m.until, count = e.count + m.count, finished_at = :now::bigint
    FROM newest AS m
    WHERE
        e.slot = m.slot AND e.job_id = m.job_id AND e.scheduled_at = m.newest_at
        -- one slot: AND e.slot = :slot
        AND e.reason = 'blackout' AND e.job_version = m.job_version
        AND coalesce(e.until, e.scheduled_at) < m.scheduled_at
        AND NOT EXISTS (
            SELECT 1 FROM live_runs AS l
            WHERE l.slot = e.slot AND l.job_id = e.job_id AND l.scheduled_at > e.scheduled_at
        )
    RETURNING e.slot, e.job_id, e.scheduled_at, e.until
),
ranges AS (
    INSERT INTO ended_ranges (slot, job_id, scheduled_at, until)
    SELECT slot, job_id, scheduled_at, until FROM grown
    ON CONFLICT (slot, job_id, scheduled_at) DO UPDATE SET until = excluded.until
)
SELECT job_id FROM grown;

-- name: move_clocks
-- Walks the primary key of clocks.
UPDATE clocks AS c SET next_fire_at = moved.next_fire_at
FROM unnest(:slots::integer[], :job_ids::bigint[], :next_fire_ats::bigint[]) AS moved (slot, job_id, next_fire_at)
WHERE c.slot = moved.slot AND c.job_id = moved.job_id;
