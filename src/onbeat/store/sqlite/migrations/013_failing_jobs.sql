-- Streaks of failed runs, of jobs that pause by themselves. A table of its own: where no job is failing, a success looks
-- at nothing but its emptiness.
CREATE TABLE failing_jobs (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    failures INTEGER NOT NULL CHECK (failures > 0),
    failing_since INTEGER NOT NULL,
    PRIMARY KEY (slot, job_id)
) STRICT, WITHOUT ROWID;
