-- Processes, and figures about the database. Bindings go by position, in the order of first appearance.

-- name: put_node
INSERT INTO nodes (name, kind, started_at, seen_at, detail) VALUES (:name, :kind, :started_at, :seen_at, :detail)
ON CONFLICT (name) DO UPDATE SET
    kind = excluded.kind, started_at = excluded.started_at, seen_at = excluded.seen_at, detail = excluded.detail;

-- name: drop_node
DELETE FROM nodes WHERE name = :name;

-- name: drop_silent_nodes
-- Reads all of nodes: one row per process.
DELETE FROM nodes WHERE seen_at < :seen_before;

-- name: find_nodes
-- Reads all of nodes: one row per process.
SELECT name, kind, started_at, seen_at, detail FROM nodes WHERE seen_at > :seen_after ORDER BY name;

-- name: job_counts
SELECT state, count FROM job_counts WHERE count > 0;

-- name: count_live
-- Reads one index of live_runs; history is never counted.
SELECT count(*) FROM live_runs;

-- name: count_running
-- Walks live_leased.
SELECT count(*) FROM live_runs INDEXED BY live_leased WHERE state = 'running';

-- name: oldest_ready_at
-- Walks live_claimable.
SELECT min(ready_at) FROM live_runs INDEXED BY live_claimable WHERE state = 'pending' AND lane IS NOT NULL AND held = 0;
