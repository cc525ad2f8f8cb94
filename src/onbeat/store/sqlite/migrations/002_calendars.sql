-- Named calendars, and which jobs stand behind them.

-- `replan_after`: the jobs that use it with a greater job_id have clocks from before its last change; NULL: none has.
CREATE TABLE calendars (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    rules TEXT NOT NULL,
    replan_after INTEGER CHECK (replan_after >= -1),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at >= created_at),
    PRIMARY KEY (namespace, name)
) STRICT;

CREATE INDEX calendars_to_replan ON calendars (namespace, name) WHERE replan_after IS NOT NULL;

-- One row per job and calendar that its definition names; deleted jobs use none.
CREATE TABLE calendar_uses (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (namespace, name, job_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX calendar_uses_by_job ON calendar_uses (job_id);
