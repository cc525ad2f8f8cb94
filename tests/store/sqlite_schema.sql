CREATE INDEX backfills_due ON backfills (next_at) WHERE state = 'running';

CREATE INDEX calendar_uses_by_job ON calendar_uses (job_id);

CREATE INDEX calendars_to_replan ON calendars (namespace, name) WHERE replan_after IS NOT NULL;

CREATE INDEX clocks_due ON clocks (next_fire_at, slot, job_id);

CREATE INDEX ended_by_time ON ended_runs (scheduled_at, job_id);

CREATE UNIQUE INDEX ended_key ON ended_runs (slot, job_id, scheduled_at);

CREATE INDEX ended_notable ON ended_runs (scheduled_at, job_id) WHERE state <> 'succeeded' OR late = 1;

CREATE INDEX ended_notable_by_job ON ended_runs (slot, job_id, scheduled_at) WHERE state <> 'succeeded' OR late = 1;

CREATE INDEX ended_ranges ON ended_runs (slot, job_id, scheduled_at, until) WHERE count > 1;

CREATE INDEX jobs_by_age ON jobs (created_at, job_id) WHERE state <> 'deleted';

CREATE INDEX jobs_by_namespace ON jobs (namespace, created_at, job_id) WHERE state <> 'deleted';

CREATE INDEX jobs_deleted ON jobs (updated_at) WHERE state = 'deleted';

CREATE UNIQUE INDEX jobs_key ON jobs (namespace, key) WHERE key IS NOT NULL;

CREATE INDEX jobs_paused_by ON jobs (namespace, paused_by) WHERE paused_by IS NOT NULL;

CREATE INDEX jobs_paused_until ON jobs (paused_until) WHERE paused_until IS NOT NULL;

CREATE INDEX live_claimable ON live_runs (queue, priority, ready_at)
WHERE state = 'pending' AND lane IS NOT NULL AND held = 0;

CREATE UNIQUE INDEX live_lanes ON live_runs (slot, job_id, lane) WHERE lane IS NOT NULL;

CREATE INDEX live_leased ON live_runs (lease_until) WHERE state = 'running';

CREATE INDEX live_retries ON live_runs (deadline_at) WHERE state = 'pending' AND deadline_at IS NOT NULL;

CREATE INDEX live_waiting ON live_runs (slot, job_id, rank, scheduled_at) WHERE state = 'pending' AND lane IS NULL;

CREATE INDEX saved_answers_by_age ON saved_answers (created_at);

CREATE TABLE after_finish (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    every_us INTEGER NOT NULL CHECK (every_us > 0),
    until INTEGER,
    PRIMARY KEY (slot, job_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    key_id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    secret_hash BLOB NOT NULL,
    scopes TEXT NOT NULL CHECK (json_valid(scopes)),
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    kind TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    worker TEXT,
    status INTEGER,
    error TEXT,
    token BLOB,
    response BLOB,
    PRIMARY KEY (slot, job_id, scheduled_at, attempt)
) STRICT;

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

CREATE TABLE blackouts (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    rules TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at >= created_at),
    PRIMARY KEY (namespace, name)
) STRICT;

CREATE TABLE calendar_uses (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (namespace, name, job_id)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE clocks (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    next_fire_at INTEGER NOT NULL CHECK (next_fire_at >= 0),
    PRIMARY KEY (slot, job_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE ended_runs (
    ended_id INTEGER PRIMARY KEY,
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL CHECK (scheduled_at >= 0),
    state TEXT NOT NULL CHECK (
        state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'unknown', 'missed', 'skipped')
    ),
    late INTEGER NOT NULL CHECK (late IN (0, 1)),
    trigger TEXT NOT NULL CHECK (trigger IN ('schedule', 'catch_up', 'backfill', 'manual', 'test')),
    job_version INTEGER NOT NULL CHECK (job_version >= 1),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    attempt_started_at INTEGER,
    finished_at INTEGER NOT NULL,
    duration_us INTEGER,
    max_run_us INTEGER,
    status INTEGER,
    outcome TEXT,
    worker TEXT,
    last_token BLOB,
    queue TEXT,
    payload TEXT,
    error TEXT,
    response BLOB,
    reason TEXT CHECK (reason IN ('overlap', 'paused', 'blackout', 'deleted')),
    count INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1),
    until INTEGER,
    blocked_by INTEGER, moved_us INTEGER NOT NULL DEFAULT 0 CHECK (moved_us >= 0),
    CHECK ((state = 'skipped') = (reason IS NOT NULL)),
    CHECK (CASE WHEN count > 1 THEN until > scheduled_at AND state IN ('missed', 'skipped') ELSE until IS NULL END)
) STRICT;

CREATE TABLE failing_jobs (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    failures INTEGER NOT NULL CHECK (failures > 0),
    failing_since INTEGER NOT NULL,
    PRIMARY KEY (slot, job_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_counts (
    state TEXT PRIMARY KEY,
    count INTEGER NOT NULL CHECK (count >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_versions (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    definition TEXT NOT NULL,
    PRIMARY KEY (slot, job_id, version)
) STRICT;

CREATE TABLE jobs (
    job_id INTEGER PRIMARY KEY CHECK (job_id >= 0),
    slot INTEGER NOT NULL CHECK (slot >= 0),
    namespace TEXT NOT NULL,
    key TEXT,
    name TEXT NOT NULL,
    tags TEXT NOT NULL CHECK (json_valid(tags)),
    version INTEGER NOT NULL CHECK (version >= 1),
    state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'completed', 'error', 'deleted')),
    reason TEXT,
    definition TEXT NOT NULL,
    max_running INTEGER NOT NULL CHECK (max_running >= 1),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    updated_at INTEGER NOT NULL CHECK (updated_at >= created_at),
    paused_at INTEGER,
    paused_until INTEGER, paused_by TEXT,
    CHECK (state <> 'deleted' OR key IS NULL)
) STRICT;

CREATE TABLE live_runs (
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL CHECK (scheduled_at >= 0),
    state TEXT NOT NULL CHECK (state IN ('pending', 'running')),
    trigger TEXT NOT NULL CHECK (trigger IN ('schedule', 'catch_up', 'backfill', 'manual', 'test')),
    job_version INTEGER NOT NULL CHECK (job_version >= 1),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    lane INTEGER CHECK (lane >= 0),
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    queue TEXT,
    payload TEXT,
    ready_at INTEGER NOT NULL,
    late_after INTEGER NOT NULL,
    max_run_us INTEGER NOT NULL CHECK (max_run_us > 0),
    created_at INTEGER NOT NULL,
    first_started_at INTEGER,
    attempt_started_at INTEGER,
    granted_at INTEGER,
    deadline_at INTEGER,
    lease_token BLOB CHECK (length(lease_token) = 16),
    lease_until INTEGER,
    worker TEXT,
    last_token BLOB,
    outcome TEXT,
    status INTEGER,
    error TEXT,
    duration_us INTEGER, moved_us INTEGER NOT NULL DEFAULT 0 CHECK (moved_us >= 0), priority INTEGER NOT NULL DEFAULT 5, free_attempts INTEGER NOT NULL DEFAULT 0 CHECK (free_attempts >= 0), revived_at INTEGER, accepted_at INTEGER, progress_percent REAL CHECK (progress_percent BETWEEN 0 AND 100), progress_message TEXT, progress_at INTEGER, rank INTEGER NOT NULL
GENERATED ALWAYS AS (trigger <> 'schedule' OR revived_at IS NOT NULL) VIRTUAL,
    PRIMARY KEY (slot, job_id, scheduled_at),
    CHECK (
        CASE state
            WHEN 'running' THEN
                lane IS NOT NULL AND attempt >= 1 AND lease_token IS NOT NULL AND lease_until IS NOT NULL
                AND worker IS NOT NULL AND attempt_started_at IS NOT NULL AND granted_at IS NOT NULL
                AND lease_until <= deadline_at
            ELSE lease_token IS NULL AND lease_until IS NULL AND cancel_requested = 0
        END
    ),
    CHECK ((first_started_at IS NULL) = (deadline_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    schema_version INTEGER NOT NULL CHECK (schema_version >= 0),
    installation_id TEXT NOT NULL,
    slots INTEGER NOT NULL CHECK (slots BETWEEN 1 AND 65536),
    created_at INTEGER NOT NULL
, almanac_revision INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TABLE nodes (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('node', 'worker')),
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    detail TEXT NOT NULL
) STRICT, WITHOUT ROWID;

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

CREATE TABLE saved_answers (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    status INTEGER NOT NULL DEFAULT 0,
    headers TEXT NOT NULL DEFAULT '',
    body BLOB NOT NULL DEFAULT x'',
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;

CREATE TABLE secrets (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    ciphertext BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    retires_at INTEGER,
    PRIMARY KEY (namespace, name, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER jobs_count_delete AFTER DELETE ON jobs BEGIN
    UPDATE job_counts SET count = count - 1 WHERE state = OLD.state;
END;

CREATE TRIGGER jobs_count_insert AFTER INSERT ON jobs BEGIN
    UPDATE job_counts SET count = count + 1 WHERE state = NEW.state;
END;

CREATE TRIGGER jobs_count_update AFTER UPDATE OF state ON jobs WHEN NEW.state <> OLD.state BEGIN
    UPDATE job_counts SET count = count - 1 WHERE state = OLD.state;
    UPDATE job_counts SET count = count + 1 WHERE state = NEW.state;
END;

CREATE VIEW runs AS
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, NULL AS reason, 1 AS count, NULL AS until,
    NULL AS blocked_by, ready_at, first_started_at AS started_at, attempt_started_at, NULL AS finished_at, duration_us,
    coalesce(first_started_at > late_after, 0) AS late, status, outcome, error, worker, queue, lane, cancel_requested,
    lease_until, deadline_at, slot
FROM live_runs
UNION ALL
SELECT
    job_id, scheduled_at, state, trigger, job_version, attempt, created_at, reason, count, until,
    blocked_by, NULL, started_at, attempt_started_at, finished_at, duration_us,
    late, status, outcome, error, worker, queue, NULL, 0,
    NULL, NULL, slot
FROM ended_runs;
