-- Runs that a person brought back wait for a lane behind those of the schedule, whatever made them first.

DROP INDEX live_waiting;
ALTER TABLE live_runs DROP COLUMN rank;
ALTER TABLE live_runs ADD COLUMN rank INTEGER NOT NULL
GENERATED ALWAYS AS (trigger <> 'schedule' OR revived_at IS NOT NULL) VIRTUAL;
CREATE INDEX live_waiting ON live_runs (slot, job_id, rank, scheduled_at) WHERE state = 'pending' AND lane IS NULL;
