-- States of jobs, and how many jobs are in each.

-- name: set_job_states
-- What fires and answers do to their jobs. Walks the primary key of jobs; locks the rows in its order first.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(
        :slots::integer[], :job_ids::bigint[], :states::text[], :reasons::text[], :paused_bys::text[]
    ) AS a (slot, job_id, state, reason, paused_by)
),
former AS MATERIALIZED (
    SELECT j.slot, j.job_id, j.state AS former_state, asked.state, asked.reason, asked.paused_by
    FROM asked JOIN jobs AS j ON j.slot = asked.slot AND j.job_id = asked.job_id
        -- one slot: AND j.slot = :slot
    ORDER BY j.slot, j.job_id
    FOR NO KEY UPDATE OF j
),
changed AS (
    UPDATE jobs AS j SET
        state = former.state, reason = former.reason, version = version + :raise_by::integer,
        updated_at = greatest(updated_at, :now::bigint), paused_at = :paused_at::bigint, paused_until = NULL,
        paused_by = former.paused_by
    FROM former
    WHERE j.slot = former.slot AND j.job_id = former.job_id
        -- one slot: AND j.slot = :slot
    RETURNING j.slot, former.former_state, former.state
)
INSERT INTO job_counts (slot, state, count)
SELECT slot, former_state, -1 FROM changed WHERE former_state <> state
UNION ALL
SELECT slot, state, 1 FROM changed WHERE former_state <> state;

-- name: count_jobs
-- Changes of how many jobs are in a state.
INSERT INTO job_counts (slot, state, count)
SELECT * FROM unnest(:slots::integer[], :states::text[], :counts::bigint[]) AS asked;

-- name: drop_clocks
-- Walks the primary key of clocks.
DELETE FROM clocks AS c
USING unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
WHERE c.slot = asked.slot AND c.job_id = asked.job_id;
