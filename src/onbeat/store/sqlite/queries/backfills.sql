-- Backfills. Bindings go by position, in the order in which a name first appears in a query.

-- name: begin_backfill
-- Walks the primary key of backfills. Writes nothing while another one of the job is going on.
INSERT INTO backfills (
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, left_from, left_to, state, next_at, created_at
)
SELECT
    :job_id, coalesce((SELECT max(number) FROM backfills WHERE job_id = :job_id), 0) + 1, :from_at, :to_at, :sequence,
    :rate_per_s, :most, :instants, :from_at, :to_at, 'running', :now, :now
WHERE NOT EXISTS (SELECT 1 FROM backfills WHERE job_id = :job_id AND state = 'running');

-- name: newest_backfills
-- Walks the primary key of backfills.
SELECT
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, looked_at, created, left_from, left_to,
    state, reason, next_at, created_at, ended_at
FROM backfills
WHERE job_id = :job_id
ORDER BY number DESC
LIMIT :limit;

-- name: get_backfill
-- Walks the primary key of backfills.
SELECT
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, looked_at, created, left_from, left_to,
    state, reason, next_at, created_at, ended_at
FROM backfills
WHERE job_id = :job_id AND number = :number;

-- name: due_backfill
-- Walks backfills_due.
SELECT
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, looked_at, created, left_from, left_to,
    state, reason, next_at, created_at, ended_at
FROM backfills INDEXED BY backfills_due
WHERE state = 'running' AND next_at <= :now
ORDER BY next_at
LIMIT 1;

-- name: next_batch_at
-- Walks backfills_due.
SELECT min(next_at) FROM backfills INDEXED BY backfills_due WHERE state = 'running';

-- name: cancel_backfill
UPDATE backfills SET state = 'cancelled', ended_at = :now, reason = :reason
WHERE job_id = :job_id AND number = :number AND state = 'running';

-- name: advance_backfill
UPDATE backfills SET
    left_from = :left_from, left_to = :left_to, next_at = :next_at, looked_at = looked_at + :looked_at,
    created = created + :created, state = :state, reason = :reason, ended_at = :ended_at
WHERE job_id = :job_id AND number = :number;

-- name: drop_backfills_of_gone_jobs
-- Walks the primary keys of backfills and jobs.
DELETE FROM backfills
WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.job_id = backfills.job_id);

-- name: is_live
-- Walks the primary key of live_runs.
SELECT 1 FROM live_runs WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: ended_at_instant
-- Walks ended_key.
SELECT scheduled_at, coalesce(until, scheduled_at), count, state, reason, blocked_by, job_version
FROM ended_runs INDEXED BY ended_key
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: range_before_instant
-- Walks ended_ranges backwards: ranges never overlap, so only the newest that began before can hold the instant.
SELECT scheduled_at, coalesce(until, scheduled_at), count, state, reason, blocked_by, job_version
FROM ended_runs INDEXED BY ended_ranges
WHERE slot = :slot AND job_id = :job_id AND scheduled_at < :scheduled_at AND count > 1
ORDER BY scheduled_at DESC
LIMIT 1;

-- name: drop_mark
-- Walks ended_key.
DELETE FROM ended_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state IN ('missed', 'skipped');

-- name: copy_mark
-- Walks ended_key. A further piece of the mark that begins at `scheduled_at`.
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, finished_at,
    reason, count, until, blocked_by
)
SELECT
    slot, job_id, :piece_at, state, late, trigger, job_version, attempt, created_at, finished_at,
    reason, :count, :until, blocked_by
FROM ended_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state IN ('missed', 'skipped');

-- name: shrink_mark
-- Walks ended_key.
UPDATE ended_runs SET scheduled_at = :piece_at, count = :count, until = :until
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state IN ('missed', 'skipped');
