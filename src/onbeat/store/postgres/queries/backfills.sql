-- Backfills: runs of the past that people asked for.

-- name: begin_backfill
-- Walks the primary key of backfills. Writes nothing while another one of the job is going on; of two that begin at
-- once the second takes the same number and writes nothing either.
INSERT INTO backfills (
    slot, job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, left_from, left_to, state, next_at,
    created_at
)
SELECT
    :slot::integer, :job_id::bigint,
    coalesce((SELECT max(b.number) FROM backfills AS b WHERE b.slot = :slot AND b.job_id = :job_id), 0) + 1,
    :from_at::bigint, :to_at::bigint, :sequence::text, :rate_per_s::bigint, :most::bigint, :instants::bigint,
    :from_at, :to_at, 'running', :now::bigint, :now
WHERE NOT EXISTS (
    SELECT 1 FROM backfills AS b WHERE b.slot = :slot AND b.job_id = :job_id AND b.state = 'running'
)
ON CONFLICT (slot, job_id, number) DO NOTHING
RETURNING
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, looked_at, created, left_from, left_to,
    state, reason, next_at, created_at, ended_at;

-- name: newest_backfills
-- Walks the primary key of backfills.
SELECT
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, looked_at, created, left_from, left_to,
    state, reason, next_at, created_at, ended_at
FROM backfills
WHERE slot = :slot AND job_id = :job_id
ORDER BY number DESC
LIMIT :limit;

-- name: get_backfill
-- Walks the primary key of backfills.
SELECT
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, looked_at, created, left_from, left_to,
    state, reason, next_at, created_at, ended_at
FROM backfills
WHERE slot = :slot AND job_id = :job_id AND number = :number;

-- name: lock_due_backfill
-- Walks backfills_due. One that another node advances is left to it.
SELECT
    job_id, number, from_at, to_at, sequence, rate_per_s, most, instants, looked_at, created, left_from, left_to,
    state, reason, next_at, created_at, ended_at
FROM backfills
WHERE state = 'running' AND next_at <= :now
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: next_batch_at
-- Walks backfills_due.
SELECT next_at FROM backfills WHERE state = 'running' ORDER BY next_at LIMIT 1;

-- name: cancel_backfill
UPDATE backfills SET state = 'cancelled', ended_at = :now, reason = :reason
WHERE slot = :slot AND job_id = :job_id AND number = :number AND state = 'running';

-- name: advance_backfill
UPDATE backfills SET
    left_from = :left_from, left_to = :left_to, next_at = :next_at, looked_at = looked_at + :looked_at,
    created = created + :created, state = :state, reason = :reason, ended_at = :ended_at
WHERE slot = :slot AND job_id = :job_id AND number = :number;

-- name: records_of_instants
-- Walks the primary keys of live_runs, ended_ranges and, of the one partition, of ended_runs. Ranges never overlap, so
-- only the newest that began before an instant can hold it.
SELECT
    i.instant, l.scheduled_at IS NOT NULL, e.scheduled_at, coalesce(e.until, e.scheduled_at), e.count, e.state,
    e.reason, e.blocked_by, e.job_version
FROM unnest(:instants::bigint[]) AS i (instant)
LEFT JOIN LATERAL (
    SELECT r.scheduled_at FROM live_runs AS r
    WHERE r.slot = :slot AND r.job_id = :job_id AND r.scheduled_at = i.instant
    LIMIT 1
) AS l ON true
LEFT JOIN LATERAL (
    SELECT newest.scheduled_at
    FROM (
        SELECT g.scheduled_at, g.until FROM ended_ranges AS g
        WHERE g.slot = :slot AND g.job_id = :job_id AND g.scheduled_at <= i.instant
        ORDER BY g.scheduled_at DESC LIMIT 1
    ) AS newest
    WHERE newest.until >= i.instant
) AS held ON true
LEFT JOIN LATERAL (
    SELECT r.*
    FROM ended_runs AS r
    WHERE r.slot = :slot AND r.job_id = :job_id AND r.scheduled_at = coalesce(held.scheduled_at, i.instant)
    LIMIT 1
) AS e ON true;

-- name: definitions_of_versions
-- Walks the primary keys of jobs and job_versions.
SELECT
    asked.version,
    coalesce((
        SELECT v.definition FROM job_versions AS v
        WHERE v.slot = :slot AND v.job_id = :job_id AND v.version >= asked.version
        ORDER BY v.version LIMIT 1
    ), j.definition)
FROM unnest(:versions::bigint[]) AS asked (version)
JOIN jobs AS j ON j.slot = :slot AND j.job_id = :job_id;

-- name: drop_range
-- Walks the primary key of ended_ranges.
DELETE FROM ended_ranges WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at;

-- name: drop_mark
-- Walks the primary key of the one partition.
DELETE FROM ended_runs
WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state IN ('missed', 'skipped');

-- name: copy_mark
-- A further piece of the mark that begins at `scheduled_at`. Walks the primary key of the one partition.
WITH copied AS (
    INSERT INTO ended_runs (
        slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, finished_at,
        reason, count, until, blocked_by
    )
    SELECT
        slot, job_id, :piece_at::bigint, state, late, trigger, job_version, attempt, created_at, finished_at,
        reason, :count::bigint, :until::bigint, blocked_by
    FROM ended_runs
    WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state IN ('missed', 'skipped')
    RETURNING slot, job_id, scheduled_at, until
)
INSERT INTO ended_ranges (slot, job_id, scheduled_at, until)
SELECT slot, job_id, scheduled_at, until FROM copied WHERE until IS NOT NULL;

-- name: shrink_mark
-- Walks the primary key of the one partition; the row moves to another where its piece begins in that.
WITH shrunk AS (
    UPDATE ended_runs SET scheduled_at = :piece_at, count = :count, until = :until
    WHERE slot = :slot AND job_id = :job_id AND scheduled_at = :scheduled_at AND state IN ('missed', 'skipped')
    RETURNING slot, job_id, scheduled_at, until
)
INSERT INTO ended_ranges (slot, job_id, scheduled_at, until)
SELECT slot, job_id, scheduled_at, until FROM shrunk WHERE until IS NOT NULL;
