-- Partitions of history. A table's name cannot be bound, so partitions.py writes {names} that it made from a date.

-- name: find_partitions
-- Reads the catalogue: two rows per day. Those that are not attached were taken out of their table, to be dropped.
SELECT c.relname::text, i.inhrelid IS NOT NULL
FROM pg_catalog.pg_class AS c
LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = c.oid
WHERE
    c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    AND c.relname ~ '^(ended_runs|attempts)_[0-9]{8}$';

-- name: try_lock_partitions
-- One process at a time makes or drops partitions. It ends with the transaction, so it works behind a pooler, too.
SELECT pg_try_advisory_xact_lock(7308332047);

-- name: default_holds_rows
-- Walks ended_by_time or attempts_default_by_time. A partition cannot be made for instants that are there already.
SELECT EXISTS (SELECT FROM {table}_default WHERE scheduled_at >= $1 AND scheduled_at < $2);

-- name: create_partition
CREATE TABLE IF NOT EXISTS {partition} PARTITION OF {table} FOR VALUES FROM ({from_at}) TO ({to_at});

-- name: holds_younger
-- Walks ended_by_end of the partition: a few pages, wherever the row lies.
SELECT EXISTS (SELECT FROM {partition} WHERE finished_at >= $1);

-- name: holds_runs
-- Walks ended_by_time; reads all of live_runs, which is small.
SELECT
    EXISTS (SELECT FROM ended_runs WHERE scheduled_at >= $1 AND scheduled_at < $2)
    OR EXISTS (SELECT FROM live_runs WHERE scheduled_at >= $1 AND scheduled_at < $2);

-- name: detach_partition
-- Not CONCURRENTLY: PostgreSQL has that only for tables without a default partition.
ALTER TABLE {table} DETACH PARTITION {partition};

-- name: count_rows
SELECT count(*) FROM (SELECT FROM {partition} LIMIT $1) AS counted;

-- name: drop_ranges
-- Walks ended_notable of the partition, then the primary key of ended_ranges.
DELETE FROM ended_ranges AS r
USING {partition} AS e
WHERE
    e.state IN ('missed', 'skipped') AND (e.state <> 'succeeded' OR e.late) AND e.count > 1
    AND r.slot = e.slot AND r.job_id = e.job_id AND r.scheduled_at = e.scheduled_at;

-- name: drop_partition
DROP TABLE {partition};
