-- Pauses of many jobs at once: of a tag, or of everything in a namespace (`tag` is empty). A row is there from the
-- acknowledgement until the last job has been resumed, so that a restart goes on with what is left to do.

CREATE TABLE pauses (
    namespace TEXT NOT NULL,
    tag TEXT NOT NULL,
    note TEXT,
    paused_at INTEGER NOT NULL,
    until INTEGER,
    cancels INTEGER NOT NULL CHECK (cancels IN (0, 1)),
    is_spread INTEGER NOT NULL DEFAULT 0 CHECK (is_spread IN (0, 1)),
    ended_at INTEGER,
    PRIMARY KEY (namespace, tag)
) STRICT, WITHOUT ROWID;

-- Which pause holds a paused job: NULL is its own, else the tag of a row in pauses.
ALTER TABLE jobs ADD COLUMN paused_by TEXT;

CREATE INDEX jobs_paused_until ON jobs (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX jobs_paused_by ON jobs (namespace, paused_by) WHERE paused_by IS NOT NULL;
