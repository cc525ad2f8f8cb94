-- Processes, and figures about the database.

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

-- name: live_nodes
-- Reads all of nodes. By the database's clock, as their beats are.
SELECT name FROM nodes
WHERE kind = 'node' AND seen_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - :within_us::bigint
ORDER BY name;

-- name: job_counts
-- Adds up the changes that were not yet compacted: thousands at most.
SELECT state, sum(count)::bigint FROM job_counts GROUP BY state HAVING sum(count) > 0;

-- name: live_figures
-- Reads indexes of live_runs and clocks; history is never counted.
SELECT
    (SELECT count(*) FROM live_runs),
    (SELECT count(*) FROM live_runs WHERE state = 'running' AND deadline_at > 0),
    (SELECT min(ready_at) FROM live_runs WHERE state = 'pending' AND lane IS NOT NULL AND NOT held),
    (SELECT min(next_fire_at) FROM clocks);
