-- Runs that a handler has accepted and will report on.

ALTER TABLE live_runs ADD COLUMN accepted_at INTEGER;
ALTER TABLE live_runs ADD COLUMN progress_percent REAL CHECK (progress_percent BETWEEN 0 AND 100);
ALTER TABLE live_runs ADD COLUMN progress_message TEXT;
ALTER TABLE live_runs ADD COLUMN progress_at INTEGER;
