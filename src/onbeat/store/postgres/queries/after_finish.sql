-- Clocks that the end of a run sets. Parameters are numbered in the order in which a name first appears in a query.

-- name: put_after_finish
INSERT INTO after_finish (slot, job_id, every_us, until) VALUES (:slot, :job_id, :every_us, :until)
ON CONFLICT (slot, job_id) DO UPDATE SET every_us = excluded.every_us, until = excluded.until;

-- name: drop_after_finish
DELETE FROM after_finish WHERE slot = :slot AND job_id = :job_id;

-- name: lock_after_finish
-- Walks the primary key of after_finish once per job.
SELECT a.slot, a.job_id
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN after_finish AS a ON a.slot = asked.slot AND a.job_id = asked.job_id
ORDER BY a.slot, a.job_id
FOR UPDATE OF a;

-- name: idle_after_finish
-- Active, nothing live and no clock: its clock is to be set. Walks the primary keys, and the ends of those of the
-- records. After a clock that was set back, an instant must not be planned that has a record.
SELECT
    a.job_id, a.every_us, a.until,
    greatest(
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
    ) AS recorded_until
FROM unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
JOIN after_finish AS a ON a.slot = asked.slot AND a.job_id = asked.job_id
JOIN jobs AS j ON j.slot = a.slot AND j.job_id = a.job_id
WHERE
    j.state = 'active'
    AND NOT EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = ANY (ARRAY[a.slot]) AND l.job_id = a.job_id)
    AND NOT EXISTS (SELECT 1 FROM clocks AS c WHERE c.slot = a.slot AND c.job_id = a.job_id);

-- name: start_clocks
INSERT INTO clocks (slot, job_id, next_fire_at)
SELECT * FROM unnest(:slots::integer[], :job_ids::bigint[], :next_fire_ats::bigint[]) AS asked
ON CONFLICT (slot, job_id) DO NOTHING;

-- name: withhold_clocks
-- While a run is live its end sets the clock. One that is due already stays: the dispatcher accounts for it.
DELETE FROM clocks AS c
USING unnest(:slots::integer[], :job_ids::bigint[]) AS asked (slot, job_id)
WHERE
    c.slot = asked.slot AND c.job_id = asked.job_id AND c.next_fire_at > :now
    AND EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = ANY (ARRAY[c.slot]) AND l.job_id = c.job_id);
