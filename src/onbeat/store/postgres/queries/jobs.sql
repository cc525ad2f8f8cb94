-- Definitions and their clocks. Parameters are numbered in the order in which a name first appears in a query.

-- name: taken_ids
-- Walks the primary key of jobs.
SELECT j.job_id
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS n (slot, job_id)
JOIN jobs AS j ON j.slot = n.slot AND j.job_id = n.job_id;

-- name: taken_keys
-- Walks the primary key of job_keys.
SELECT k.namespace, k.key
FROM unnest(:namespaces::text[], :keys::text[]) AS n (namespace, key)
JOIN job_keys AS k ON k.namespace = n.namespace AND k.key = n.key;

-- name: take_keys
-- Fewer rows than keys: another transaction has taken one meanwhile.
INSERT INTO job_keys (namespace, key, job_id)
SELECT * FROM unnest(:namespaces::text[], :keys::text[], :job_ids::bigint[])
ON CONFLICT (namespace, key) DO NOTHING;

-- name: free_key
DELETE FROM job_keys WHERE namespace = :namespace AND key = :key AND job_id = :job_id;

-- name: insert_jobs
-- Jobs, their clocks, those that fire after a finish, and how many there are. Fewer rows than jobs: another transaction has taken an id meanwhile.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(
        :slots::integer[], :job_ids::bigint[], :namespaces::text[], :keys::text[], :names::text[], :tags::text[],
        :states::text[], :reasons::text[], :definitions::text[], :max_runnings::bigint[], :paused_ats::bigint[],
        :paused_bys::text[], :folded_names::text[], :folded_keys::text[], :next_fire_ats::bigint[],
        :every_uss::bigint[], :untils::bigint[]
    ) AS a (
        slot, job_id, namespace, key, name, tags, state, reason, definition, max_running, paused_at, paused_by,
        folded_name, folded_key, next_fire_at, every_us, until
    )
),
written AS (
    INSERT INTO jobs (
        slot, job_id, namespace, key, name, tags, version, state, reason, definition, max_running, created_at,
        updated_at, paused_at, paused_by, folded_name, folded_key
    )
    SELECT
        slot, job_id, namespace, key, name, tags, 1, state, reason, definition, max_running, :now::bigint,
        :now::bigint, paused_at, paused_by, folded_name, folded_key
    FROM asked
    ON CONFLICT (slot, job_id) DO NOTHING
    RETURNING slot, state
),
clocks_written AS (
    INSERT INTO clocks (slot, job_id, next_fire_at)
    SELECT slot, job_id, next_fire_at FROM asked WHERE next_fire_at IS NOT NULL
    ON CONFLICT (slot, job_id) DO NOTHING
),
rules_written AS (
    INSERT INTO after_finish (slot, job_id, every_us, until)
    SELECT slot, job_id, every_us, until FROM asked WHERE every_us IS NOT NULL
    ON CONFLICT (slot, job_id) DO NOTHING
),
counted AS (
    INSERT INTO job_counts (slot, state, count) SELECT slot, state, count(*) FROM written GROUP BY slot, state
)
SELECT count(*) FROM written;

-- name: put_clock
INSERT INTO clocks (slot, job_id, next_fire_at) VALUES (:slot, :job_id, :next_fire_at)
ON CONFLICT (slot, job_id) DO UPDATE SET next_fire_at = excluded.next_fire_at;

-- name: drop_clock
DELETE FROM clocks WHERE slot = :slot AND job_id = :job_id;

-- name: get_job
-- Walks the primary keys of jobs and clocks.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM jobs AS j LEFT JOIN clocks AS c ON c.slot = :slot AND c.job_id = :job_id
WHERE j.slot = :slot AND j.job_id = :job_id;

-- name: recorded_until
-- Walks the ends of the primary keys of live_runs, ended_runs and ended_ranges.
SELECT greatest(
    (
        SELECT scheduled_at FROM live_runs
        WHERE slot = :slot AND job_id = :job_id
        ORDER BY scheduled_at DESC LIMIT 1
    ),
    (
        SELECT scheduled_at FROM ended_runs
        WHERE slot = :slot AND job_id = :job_id
        ORDER BY scheduled_at DESC LIMIT 1
    ),
    (
        SELECT until FROM ended_ranges
        WHERE slot = :slot AND job_id = :job_id
        ORDER BY scheduled_at DESC LIMIT 1
    ),
    0
);

-- name: recorded_until_of_jobs
-- Walks the same ends, once per job.
SELECT
    asked.job_id,
    greatest(
        (
            SELECT l.scheduled_at FROM live_runs AS l
            WHERE l.slot = asked.slot AND l.job_id = asked.job_id
            ORDER BY l.scheduled_at DESC LIMIT 1
        ),
        (
            SELECT e.scheduled_at FROM ended_runs AS e
            WHERE e.slot = asked.slot AND e.job_id = asked.job_id
            ORDER BY e.scheduled_at DESC LIMIT 1
        ),
        (
            SELECT g.until FROM ended_ranges AS g
            WHERE g.slot = asked.slot AND g.job_id = asked.job_id
            ORDER BY g.scheduled_at DESC LIMIT 1
        ),
        0
    )
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id);

-- name: get_job_by_key
-- Walks the primary keys of job_keys, jobs and clocks.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM job_keys AS k
JOIN jobs AS j ON j.slot = (k.job_id % :slots::bigint)::integer AND j.job_id = k.job_id
LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE k.namespace = :namespace AND k.key = :key;

-- name: find_jobs
-- Walks jobs_by_age backwards from the cursor. Filters stand in CASE, which the planner believes to keep half of all:
-- of what it believes to keep few, it reads everything and sorts it, rather than stop at a page.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM jobs AS j LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE
    j.state <> 'deleted' AND j.created_at >= 0
    AND (j.created_at, j.job_id) < (:before_created_at, :before_job_id)
    AND CASE WHEN :state::text IS NULL THEN true ELSE j.state = :state END
    AND CASE WHEN :tag::text IS NULL THEN true ELSE j.tags::jsonb ? :tag END
    AND CASE WHEN :text::text IS NULL THEN true ELSE strpos(j.folded_name, :text) > 0 OR strpos(j.folded_key, :text) > 0 END
ORDER BY j.created_at DESC, j.job_id DESC
LIMIT :limit;

-- name: find_jobs_in_namespace
-- Walks jobs_by_namespace backwards from the cursor.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM jobs AS j LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE
    j.namespace = :namespace AND j.state <> 'deleted' AND j.namespace <> ''
    AND (j.created_at, j.job_id) < (:before_created_at, :before_job_id)
    AND CASE WHEN :state::text IS NULL THEN true ELSE j.state = :state END
    AND CASE WHEN :tag::text IS NULL THEN true ELSE j.tags::jsonb ? :tag END
    AND CASE WHEN :text::text IS NULL THEN true ELSE strpos(j.folded_name, :text) > 0 OR strpos(j.folded_key, :text) > 0 END
ORDER BY j.created_at DESC, j.job_id DESC
LIMIT :limit;

-- name: update_job
UPDATE jobs SET
    key = :key, name = :name, tags = :tags, version = :version, state = :state, reason = :reason,
    definition = :definition, max_running = coalesce(:max_running, max_running),
    updated_at = greatest(updated_at, :now), paused_at = :paused_at, paused_until = :paused_until,
    paused_by = :paused_by, folded_name = :folded_name, folded_key = :folded_key
WHERE slot = :slot AND job_id = :job_id;

-- name: keep_version
INSERT INTO job_versions (slot, job_id, version, definition) VALUES (:slot, :job_id, :version, :definition);

-- name: lock_runs_of_job
-- Walks the primary key of live_runs for one job. Whoever finishes one of them is waited for, so that the statements
-- after this one meet each run in the state that it came into.
SELECT 1 FROM live_runs WHERE slot = :slot AND job_id = :job_id ORDER BY scheduled_at FOR UPDATE;

-- name: hold_runs
-- Walks the primary key of live_runs for one job. Answer: when runs are ready that may be claimed from now on.
WITH changed AS (
    UPDATE live_runs SET held = :held WHERE slot = :slot AND job_id = :job_id AND held <> :held
    RETURNING state, lane, held, ready_at
)
SELECT min(ready_at) FROM changed WHERE state = 'pending' AND lane IS NOT NULL AND NOT held;

-- name: end_pending_of_job
-- Walks the primary key of live_runs for one job.
WITH ended AS (
    DELETE FROM live_runs WHERE slot = :slot AND job_id = :job_id AND state = 'pending' RETURNING *
)
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, started_at, attempt_started_at,
    finished_at, duration_us, max_run_us, status, outcome, worker, last_token, queue, payload, error, moved_us
)
SELECT
    slot, job_id, scheduled_at, 'cancelled', coalesce(first_started_at > late_after, false), trigger, job_version,
    attempt, created_at, first_started_at, attempt_started_at, :now, duration_us, max_run_us, status, outcome, worker,
    last_token, queue, payload, error, moved_us
FROM ended;

-- name: stop_running_of_job
-- As stop_runs does. Walks the primary key of live_runs for one job.
UPDATE live_runs SET
    cancel_requested = true,
    lease_until = CASE WHEN accepted_at IS NULL THEN lease_until ELSE least(lease_until, :now::bigint - 1) END
WHERE slot = :slot AND job_id = :job_id AND state = 'running'
RETURNING scheduled_at;
