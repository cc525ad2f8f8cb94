-- Jobs whose clock is set by the end of their run. A table of its own: where no job is one of them, the end of a run
-- looks at nothing but its emptiness.
CREATE TABLE after_finish (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    every_us INTEGER NOT NULL CHECK (every_us > 0),
    until INTEGER,
    PRIMARY KEY (slot, job_id)
) STRICT, WITHOUT ROWID;
