-- Attempts that take nothing from max_attempts, and runs that a person brought back.

ALTER TABLE live_runs ADD COLUMN free_attempts INTEGER NOT NULL DEFAULT 0 CHECK (free_attempts >= 0);
ALTER TABLE live_runs ADD COLUMN revived_at INTEGER;
