-- Clocks that the end of a run sets. Bindings go by position, in the order in which a name first appears in a query.

-- name: put_after_finish
INSERT INTO after_finish (slot, job_id, every_us, until) VALUES (:slot, :job_id, :every_us, :until)
ON CONFLICT (slot, job_id) DO UPDATE SET every_us = excluded.every_us, until = excluded.until;

-- name: drop_after_finish
DELETE FROM after_finish WHERE slot = :slot AND job_id = :job_id;

-- name: any_after_finish
-- Stops at the first row: where no job is one of these, the end of a run costs nothing more.
SELECT 1 FROM after_finish LIMIT 1;

-- name: idle_after_finish
-- Walks the primary keys. Active, nothing live and no clock: its clock is to be set.
SELECT a.every_us, a.until
FROM after_finish AS a CROSS JOIN jobs AS j ON j.job_id = a.job_id
WHERE
    a.slot = :slot AND a.job_id = :job_id AND j.state = 'active'
    AND NOT EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = a.slot AND l.job_id = a.job_id)
    AND NOT EXISTS (SELECT 1 FROM clocks AS c WHERE c.slot = a.slot AND c.job_id = a.job_id);

-- name: withhold_clock
-- While a run is live its end sets the clock. One that is due already stays: the dispatcher accounts for it.
DELETE FROM clocks
WHERE
    slot = :slot AND job_id = :job_id AND next_fire_at > :now
    AND EXISTS (SELECT 1 FROM after_finish AS a WHERE a.slot = :slot AND a.job_id = :job_id)
    AND EXISTS (SELECT 1 FROM live_runs AS l WHERE l.slot = :slot AND l.job_id = :job_id);
