-- Runs that are ready go by priority and age: the index keeps priorities apart, so that of each the first is one seek
-- away and runs that lie in the future are in nobody's way.

ALTER TABLE live_runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 5;

DROP INDEX live_claimable;
CREATE INDEX live_claimable ON live_runs (queue, priority, ready_at)
WHERE state = 'pending' AND lane IS NOT NULL AND held = 0;
