-- How much later than planned a run is to start: spread and jitter. The identity stays the planned instant.
ALTER TABLE live_runs ADD COLUMN moved_us INTEGER NOT NULL DEFAULT 0 CHECK (moved_us >= 0);
ALTER TABLE ended_runs ADD COLUMN moved_us INTEGER NOT NULL DEFAULT 0 CHECK (moved_us >= 0);
