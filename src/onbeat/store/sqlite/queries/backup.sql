-- What a copy of a data file is checked by. No bindings.

-- name: count_rows
-- Walks the smallest index of each table: the copy and its source must agree.
SELECT
    (SELECT count(*) FROM jobs), (SELECT count(*) FROM live_runs), (SELECT count(*) FROM ended_runs),
    (SELECT count(*) FROM attempts);

-- name: every_secret
-- Reads the whole table: each of them must open with the master key that goes with the copy.
SELECT namespace, name, version, ciphertext, created_at, retires_at FROM secrets;
