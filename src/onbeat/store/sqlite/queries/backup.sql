-- What a copy of a data file is checked by, and how a restored one is kept quiet.

-- name: count_rows
-- Walks the smallest index of each table: the copy and its source must agree.
SELECT
    (SELECT count(*) FROM jobs), (SELECT count(*) FROM live_runs), (SELECT count(*) FROM ended_runs),
    (SELECT count(*) FROM attempts);

-- name: every_secret
-- Reads the whole table: each of them must open with the master key that goes with the copy.
SELECT namespace, name, version, ciphertext, created_at, retires_at FROM secrets;

-- name: pause_everything
-- Walks jobs_by_namespace. The server that opens the file holds the jobs before it fires, since nothing is spread yet.
INSERT INTO pauses (namespace, tag, note, paused_at, cancels)
SELECT namespace, '', :note, :now, 0 FROM jobs WHERE state <> 'deleted' GROUP BY namespace
ON CONFLICT (namespace, tag) DO UPDATE SET
    note = excluded.note, until = NULL, cancels = 0, is_spread = 0, ended_at = NULL;
