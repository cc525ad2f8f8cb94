-- Definitions and their clocks. Bindings go by position, in the order in which a name first appears in a query.

-- name: insert_job
-- A taken key or job_id writes nothing.
INSERT INTO jobs (
    job_id, slot, namespace, key, name, tags, version, state, reason, definition, max_running, created_at, updated_at,
    paused_at, paused_by
)
VALUES (
    :job_id, :slot, :namespace, :key, :name, :tags, 1, :state, :reason, :definition, :max_running, :now, :now,
    :paused_at, :paused_by
)
ON CONFLICT DO NOTHING;

-- name: put_clock
INSERT INTO clocks (slot, job_id, next_fire_at) VALUES (:slot, :job_id, :next_fire_at)
ON CONFLICT (slot, job_id) DO UPDATE SET next_fire_at = excluded.next_fire_at;

-- name: clock_of
SELECT next_fire_at FROM clocks WHERE slot = :slot AND job_id = :job_id;

-- name: drop_clock
DELETE FROM clocks WHERE slot = :slot AND job_id = :job_id;

-- name: get_job
-- Walks the primary keys of jobs and clocks.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM jobs AS j LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE j.job_id = :job_id;

-- name: recorded_until
-- Walks the ends of live_runs' primary key, ended_key and ended_ranges.
SELECT max(
    coalesce((SELECT max(scheduled_at) FROM live_runs WHERE slot = :slot AND job_id = :job_id), 0),
    coalesce((
        SELECT max(scheduled_at) FROM ended_runs INDEXED BY ended_key WHERE slot = :slot AND job_id = :job_id
    ), 0),
    coalesce((
        SELECT until FROM ended_runs INDEXED BY ended_ranges
        WHERE slot = :slot AND job_id = :job_id AND count > 1
        ORDER BY scheduled_at DESC LIMIT 1
    ), 0)
);

-- name: get_job_by_key
-- Walks jobs_key.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM jobs AS j LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE j.namespace = :namespace AND j.key = :key;

-- name: find_jobs
-- Walks jobs_by_age backwards from the cursor.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM jobs AS j INDEXED BY jobs_by_age LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE
    j.state <> 'deleted'
    AND (j.created_at, j.job_id) < (:before_created_at, :before_job_id)
    AND (:state IS NULL OR j.state = :state)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) AS t WHERE t.value = :tag))
    AND (:text IS NULL OR instr(casefold(j.name), :text) > 0 OR instr(casefold(j.key), :text) > 0)
ORDER BY j.created_at DESC, j.job_id DESC
LIMIT :limit;

-- name: find_jobs_in_namespace
-- Walks jobs_by_namespace backwards from the cursor.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM jobs AS j INDEXED BY jobs_by_namespace LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE
    j.namespace = :namespace AND j.state <> 'deleted'
    AND (j.created_at, j.job_id) < (:before_created_at, :before_job_id)
    AND (:state IS NULL OR j.state = :state)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) AS t WHERE t.value = :tag))
    AND (:text IS NULL OR instr(casefold(j.name), :text) > 0 OR instr(casefold(j.key), :text) > 0)
ORDER BY j.created_at DESC, j.job_id DESC
LIMIT :limit;

-- name: update_job
UPDATE jobs SET
    key = :key, name = :name, tags = :tags, version = :version, state = :state, reason = :reason,
    definition = :definition, max_running = coalesce(:max_running, max_running), updated_at = max(updated_at, :now),
    paused_at = :paused_at, paused_until = :paused_until, paused_by = :paused_by
WHERE job_id = :job_id;

-- name: set_job_state
-- What a fire or an answer does to its job: completed, error, or paused by 410 Gone.
UPDATE jobs SET
    state = :state, reason = :reason, version = version + :raise_by, updated_at = max(updated_at, :now),
    paused_at = :paused_at, paused_until = NULL, paused_by = :paused_by
WHERE job_id = :job_id;

-- name: keep_version
INSERT INTO job_versions (slot, job_id, version, definition) VALUES (:slot, :job_id, :version, :definition);

-- name: hold_runs
-- Walks the primary key of live_runs for one job.
UPDATE live_runs SET held = :held WHERE slot = :slot AND job_id = :job_id AND held <> :held;

-- name: end_pending_of_job
-- Walks the primary key of live_runs for one job.
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, started_at, attempt_started_at,
    finished_at, duration_us, max_run_us, status, outcome, worker, last_token, queue, payload, error, moved_us
)
SELECT
    slot, job_id, scheduled_at, 'cancelled', coalesce(first_started_at > late_after, 0), trigger, job_version, attempt,
    created_at, first_started_at, attempt_started_at, :now, duration_us, max_run_us, status, outcome, worker,
    last_token, queue, payload, error, moved_us
FROM live_runs
WHERE slot = :slot AND job_id = :job_id AND state = 'pending';

-- name: delete_pending_of_job
DELETE FROM live_runs WHERE slot = :slot AND job_id = :job_id AND state = 'pending';

-- name: stop_running_of_job
-- As stop_run does.
UPDATE live_runs SET
    cancel_requested = 1, lease_until = CASE WHEN accepted_at IS NULL THEN lease_until ELSE 0 END
WHERE slot = :slot AND job_id = :job_id AND state = 'running';
