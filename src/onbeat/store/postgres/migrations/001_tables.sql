-- The first schema. `slot` is job_id modulo meta.slots: the first column of every key of the hot path, so that the
-- tables can be distributed by it. Moments are integer µs UTC. Where SQLite has NULL for "no queue" this has '',
-- since NULL cannot be looked up in an index.

CREATE TABLE meta (
    only_row integer PRIMARY KEY CHECK (only_row = 1),
    schema_version integer NOT NULL CHECK (schema_version >= 0),
    serves_from integer NOT NULL CHECK (serves_from BETWEEN 1 AND schema_version),
    installation_id text NOT NULL,
    almanac_revision bigint NOT NULL DEFAULT 0, -- grows with each change of a calendar or a blackout
    slots integer NOT NULL CHECK (slots BETWEEN 1 AND 65536),
    created_at bigint NOT NULL,
    is_distributed boolean NOT NULL DEFAULT false, -- by slot, over the servers of a Citus cluster
    unfinished_copy text -- the token of the process that fills it with another database's content; nobody serves it then
);

CREATE TABLE jobs (
    slot integer NOT NULL CHECK (slot >= 0),
    job_id bigint NOT NULL CHECK (job_id >= 0),
    namespace text NOT NULL,
    key text,
    name text NOT NULL,
    tags text NOT NULL,
    version bigint NOT NULL CHECK (version >= 1),
    state text NOT NULL CHECK (state IN ('active', 'paused', 'completed', 'error', 'deleted')),
    reason text,
    definition text NOT NULL,
    max_running bigint NOT NULL CHECK (max_running >= 1),
    created_at bigint NOT NULL CHECK (created_at >= 0),
    updated_at bigint NOT NULL CHECK (updated_at >= created_at),
    paused_at bigint,
    paused_until bigint,
    paused_by text,
    -- What a search looks in: name and key, casefolded by Python. The database's own lower() leaves letters apart that
    -- are the same to a reader, and does so differently in each locale.
    folded_name text NOT NULL,
    folded_key text,
    PRIMARY KEY (slot, job_id),
    CHECK (state <> 'deleted' OR key IS NULL),
    CHECK ((key IS NULL) = (folded_key IS NULL))
);

-- Each has a condition that only its own query states: before a table is analysed the planner takes one for the other.
CREATE INDEX jobs_by_age ON jobs (created_at, job_id) WHERE state <> 'deleted' AND created_at >= 0;
CREATE INDEX jobs_by_namespace ON jobs (namespace, created_at, job_id) WHERE state <> 'deleted' AND namespace <> '';
CREATE INDEX jobs_deleted ON jobs (updated_at) WHERE state = 'deleted';
CREATE INDEX jobs_paused_by ON jobs (namespace, paused_by) WHERE paused_by IS NOT NULL;
CREATE INDEX jobs_paused_until ON jobs (paused_until) WHERE paused_until IS NOT NULL;

-- A key is unique in its namespace over all slots, and a distributed table can promise that only within one.
CREATE TABLE job_keys (
    namespace text NOT NULL,
    key text NOT NULL,
    job_id bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);

-- Jobs per state, as changes to be summed up: the first page must not count a million rows, and one counting row per
-- state would let only one writer go on at a time. `runs.prune` adds the changes up.
CREATE TABLE job_counts (
    slot integer NOT NULL,
    state text NOT NULL,
    count bigint NOT NULL
);

-- A definition that was replaced, under the last version at which it held. A run of version n uses the smallest kept
-- version >= n, else the job's own definition.
CREATE TABLE job_versions (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    version bigint NOT NULL CHECK (version >= 1),
    definition text NOT NULL,
    PRIMARY KEY (slot, job_id, version)
);

-- The only row of a job that changes with each fire.
CREATE TABLE clocks (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    next_fire_at bigint NOT NULL CHECK (next_fire_at >= 0),
    PRIMARY KEY (slot, job_id)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX clocks_due ON clocks (next_fire_at, slot, job_id);

CREATE TABLE after_finish (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    every_us bigint NOT NULL CHECK (every_us > 0),
    until bigint,
    PRIMARY KEY (slot, job_id)
);

-- Streaks of failed runs, of jobs that pause by themselves. A table of its own: where no job is failing, a success looks
-- at nothing but its emptiness.
CREATE TABLE failing_jobs (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    failures bigint NOT NULL CHECK (failures > 0),
    failing_since bigint NOT NULL,
    PRIMARY KEY (slot, job_id)
);

-- Pending and running runs. `held`: the job is paused or deleted, no attempt may start; kept in the row so that a
-- claim never walks over the backlog of paused jobs.
CREATE TABLE live_runs (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    scheduled_at bigint NOT NULL CHECK (scheduled_at >= 0),
    state text NOT NULL CHECK (state IN ('pending', 'running')),
    trigger text NOT NULL CHECK (trigger IN ('schedule', 'catch_up', 'backfill', 'manual', 'test')),
    rank smallint NOT NULL GENERATED ALWAYS AS (
        CASE WHEN trigger = 'schedule' AND revived_at IS NULL THEN 0 ELSE 1 END
    ) STORED,
    job_version bigint NOT NULL CHECK (job_version >= 1),
    attempt bigint NOT NULL CHECK (attempt >= 0),
    lane bigint CHECK (lane >= 0),
    held boolean NOT NULL DEFAULT false,
    cancel_requested boolean NOT NULL DEFAULT false,
    queue text NOT NULL DEFAULT '',
    payload text,
    ready_at bigint NOT NULL,
    late_after bigint NOT NULL,
    max_run_us bigint NOT NULL CHECK (max_run_us > 0),
    created_at bigint NOT NULL,
    first_started_at bigint,
    attempt_started_at bigint,
    granted_at bigint,
    deadline_at bigint,
    lease_token bytea CHECK (length(lease_token) = 16),
    lease_until bigint,
    worker text,
    last_token bytea,
    outcome text,
    status bigint,
    error text,
    duration_us bigint,
    moved_us bigint NOT NULL DEFAULT 0 CHECK (moved_us >= 0),
    -- A claim looks at each of these, and at nothing else: see domain/priority.py.
    priority bigint NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 9 OR priority BETWEEN -60 AND -51),
    free_attempts bigint NOT NULL DEFAULT 0 CHECK (free_attempts >= 0),
    revived_at bigint,
    accepted_at bigint,
    progress_percent double precision CHECK (progress_percent BETWEEN 0 AND 100),
    progress_message text,
    progress_at bigint,
    PRIMARY KEY (slot, job_id, scheduled_at),
    CHECK (
        CASE state
            WHEN 'running' THEN
                lane IS NOT NULL AND attempt >= 1 AND lease_token IS NOT NULL AND lease_until IS NOT NULL
                AND worker IS NOT NULL AND attempt_started_at IS NOT NULL AND granted_at IS NOT NULL
                AND lease_until <= deadline_at
            ELSE lease_token IS NULL AND lease_until IS NULL AND NOT cancel_requested
        END
    ),
    CHECK ((first_started_at IS NULL) = (deadline_at IS NULL))
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05
);

-- The fence of overlap: one live run per lane.
CREATE UNIQUE INDEX live_lanes ON live_runs (slot, job_id, lane) WHERE lane IS NOT NULL;
CREATE INDEX live_claimable ON live_runs (queue, priority, ready_at)
WHERE state = 'pending' AND lane IS NOT NULL AND NOT held;
-- `rank >= 0` and `deadline_at > 0` hold for all of them: only statements that want these indexes say so. For others,
-- which name a run by its key and the state that it must have, a planner without statistics would take an index of all
-- that wait or run as readily as the primary key.
CREATE INDEX live_waiting ON live_runs (slot, job_id, rank, scheduled_at)
WHERE state = 'pending' AND lane IS NULL AND rank >= 0;
CREATE INDEX live_leased ON live_runs (lease_until) WHERE state = 'running' AND deadline_at > 0;
CREATE INDEX live_retries ON live_runs (deadline_at) WHERE state = 'pending' AND deadline_at IS NOT NULL;

-- History, in partitions by planned instant: retention drops whole ones. Instants that no partition was made for
-- (backfills of long ago) go to the default one. Rows are not updated, but for the range of a blackout that grows;
-- `revive` takes one out.
CREATE TABLE ended_runs (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    scheduled_at bigint NOT NULL CHECK (scheduled_at >= 0),
    state text NOT NULL CHECK (
        state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'unknown', 'missed', 'skipped')
    ),
    late boolean NOT NULL,
    trigger text NOT NULL CHECK (trigger IN ('schedule', 'catch_up', 'backfill', 'manual', 'test')),
    job_version bigint NOT NULL CHECK (job_version >= 1),
    attempt bigint NOT NULL CHECK (attempt >= 0),
    created_at bigint NOT NULL,
    started_at bigint,
    attempt_started_at bigint,
    finished_at bigint NOT NULL,
    duration_us bigint,
    max_run_us bigint,
    status bigint,
    outcome text,
    worker text,
    last_token bytea,
    queue text NOT NULL DEFAULT '',
    payload text,
    error text,
    response bytea,
    reason text CHECK (reason IN ('overlap', 'paused', 'blackout', 'deleted')),
    count bigint NOT NULL DEFAULT 1 CHECK (count >= 1),
    until bigint,
    blocked_by bigint,
    moved_us bigint NOT NULL DEFAULT 0 CHECK (moved_us >= 0),
    PRIMARY KEY (slot, job_id, scheduled_at),
    CHECK ((state = 'skipped') = (reason IS NOT NULL)),
    CHECK (CASE WHEN count > 1 THEN until > scheduled_at AND state IN ('missed', 'skipped') ELSE until IS NULL END)
) PARTITION BY RANGE (scheduled_at);

CREATE TABLE ended_runs_default PARTITION OF ended_runs DEFAULT;

CREATE INDEX ended_by_time ON ended_runs (scheduled_at, job_id);
-- What people look for among successes; written for the few runs that are not plain ones.
CREATE INDEX ended_notable ON ended_runs (state, late, scheduled_at, job_id) WHERE state <> 'succeeded' OR late;
CREATE INDEX ended_notable_by_job ON ended_runs (slot, job_id, scheduled_at) WHERE state <> 'succeeded' OR late;
-- Rows are written in the order in which runs end, so this tells in a few pages whether all of a partition is old.
CREATE INDEX ended_by_end ON ended_runs USING brin (finished_at) WITH (autosummarize = on);
-- Retention deletes from the default partition row by row.
CREATE INDEX ended_default_by_end ON ended_runs_default (finished_at);

-- The ranges of ended_runs' collapsed rows (count > 1), again and without partitions: every new run asks whether one
-- covers its instant, and must not ask each partition.
CREATE TABLE ended_ranges (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    scheduled_at bigint NOT NULL,
    until bigint NOT NULL CHECK (until > scheduled_at),
    PRIMARY KEY (slot, job_id, scheduled_at)
);

-- Finished attempts that did not succeed, in the same partitions. `token` is NULL where the lease ran out: that worker
-- finished nothing.
CREATE TABLE attempts (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    scheduled_at bigint NOT NULL,
    attempt bigint NOT NULL CHECK (attempt >= 1),
    kind text NOT NULL,
    started_at bigint NOT NULL,
    duration_us bigint NOT NULL,
    worker text,
    status bigint,
    error text,
    token bytea,
    response bytea,
    PRIMARY KEY (slot, job_id, scheduled_at, attempt)
) PARTITION BY RANGE (scheduled_at);

CREATE TABLE attempts_default PARTITION OF attempts DEFAULT;

CREATE INDEX attempts_default_by_time ON attempts_default (scheduled_at);

CREATE TABLE backfills (
    slot integer NOT NULL,
    job_id bigint NOT NULL,
    number bigint NOT NULL CHECK (number >= 1),
    from_at bigint NOT NULL CHECK (from_at >= 0),
    to_at bigint NOT NULL CHECK (to_at > from_at),
    sequence text NOT NULL CHECK (sequence IN ('oldest', 'newest')),
    rate_per_s bigint NOT NULL CHECK (rate_per_s >= 1),
    most bigint NOT NULL CHECK (most >= 1),
    instants bigint NOT NULL CHECK (instants >= 0),
    looked_at bigint NOT NULL DEFAULT 0,
    created bigint NOT NULL DEFAULT 0 CHECK (created <= most),
    left_from bigint NOT NULL,
    left_to bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('running', 'done', 'cancelled')),
    reason text,
    next_at bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (slot, job_id, number),
    CHECK ((state = 'running') = (ended_at IS NULL))
);

CREATE INDEX backfills_due ON backfills (next_at) WHERE state = 'running';

CREATE TABLE calendars (
    namespace text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL CHECK (version >= 1),
    rules text NOT NULL,
    replan_after bigint CHECK (replan_after >= -1),
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL CHECK (updated_at >= created_at),
    PRIMARY KEY (namespace, name)
);

CREATE INDEX calendars_to_replan ON calendars (namespace, name) WHERE replan_after IS NOT NULL;

CREATE TABLE calendar_uses (
    namespace text NOT NULL,
    name text NOT NULL,
    job_id bigint NOT NULL,
    PRIMARY KEY (namespace, name, job_id)
);

CREATE INDEX calendar_uses_by_job ON calendar_uses (job_id);

CREATE TABLE blackouts (
    namespace text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL CHECK (version >= 1),
    rules text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL CHECK (updated_at >= created_at),
    PRIMARY KEY (namespace, name)
);

CREATE TABLE pauses (
    namespace text NOT NULL,
    tag text NOT NULL,
    note text,
    paused_at bigint NOT NULL,
    until bigint,
    cancels boolean NOT NULL,
    is_spread boolean NOT NULL DEFAULT false,
    ended_at bigint,
    PRIMARY KEY (namespace, tag)
);

CREATE TABLE nodes (
    name text PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('node', 'worker')),
    started_at bigint NOT NULL,
    seen_at bigint NOT NULL,
    detail text NOT NULL
);

CREATE TABLE api_keys (
    key_id text PRIMARY KEY,
    namespace text NOT NULL,
    name text NOT NULL,
    secret_hash bytea NOT NULL,
    scopes text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    last_used_at bigint
);

CREATE TABLE secrets (
    namespace text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL CHECK (version >= 1),
    ciphertext bytea NOT NULL,
    created_at bigint NOT NULL,
    retires_at bigint,
    PRIMARY KEY (namespace, name, version)
);

CREATE TABLE saved_answers (
    scope text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    status bigint NOT NULL DEFAULT 0,
    headers text NOT NULL DEFAULT '',
    body bytea NOT NULL DEFAULT ''::bytea,
    created_at bigint NOT NULL,
    PRIMARY KEY (scope, key)
);

CREATE INDEX saved_answers_by_age ON saved_answers (created_at);

CREATE VIEW runs AS
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL::text AS reason, 1::bigint AS count,
    NULL::bigint AS until, NULL::bigint AS blocked_by, ready_at, first_started_at AS started_at, attempt_started_at,
    NULL::bigint AS finished_at, duration_us, coalesce(first_started_at > late_after, false) AS late, status, outcome,
    error, worker, nullif(queue, '') AS queue, lane, cancel_requested, lease_until, deadline_at, slot
FROM live_runs
UNION ALL
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count,
    until, blocked_by, NULL, started_at, attempt_started_at,
    finished_at, duration_us, late, status, outcome,
    error, worker, nullif(queue, ''), NULL, false, NULL, NULL, slot
FROM ended_runs;
