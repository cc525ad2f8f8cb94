-- Runs of the past that people asked for. The row says how far a backfill came: `left_from <= t < left_to` is still to
-- be looked at. It moves in the transaction that writes the runs.
CREATE TABLE backfills (
    job_id INTEGER NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 1),
    from_at INTEGER NOT NULL CHECK (from_at >= 0),
    to_at INTEGER NOT NULL CHECK (to_at > from_at),
    sequence TEXT NOT NULL CHECK (sequence IN ('oldest', 'newest')),
    rate_per_s INTEGER NOT NULL CHECK (rate_per_s >= 1),
    most INTEGER NOT NULL CHECK (most >= 1),
    instants INTEGER NOT NULL CHECK (instants >= 0),
    looked_at INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL DEFAULT 0 CHECK (created <= most),
    left_from INTEGER NOT NULL,
    left_to INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'cancelled')),
    reason TEXT,
    next_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (job_id, number),
    CHECK ((state = 'running') = (ended_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX backfills_due ON backfills (next_at) WHERE state = 'running';
