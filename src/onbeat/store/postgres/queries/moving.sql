-- A whole database on its way. What cannot be bound is written by moving.py, out of the list of what moves.

-- name: read_rows
-- Reads all of a table, in an order that is the same each time.
SELECT {columns} FROM {table} ORDER BY {order} OFFSET $1;

-- name: count_table
SELECT count(*) FROM {table};

-- name: holds_any
SELECT EXISTS (SELECT FROM {table});

-- name: empty_tables
TRUNCATE {tables};

-- name: read_installation
SELECT installation_id, slots, created_at, almanac_revision, unfinished_copy FROM meta;

-- name: begin_copy
UPDATE meta SET
    unfinished_copy = :token, installation_id = :installation_id, created_at = :created_at,
    almanac_revision = :almanac_revision;

-- name: hold_copy
-- Until the transaction ends, no other process begins or goes on with a copy.
SELECT coalesce(unfinished_copy = :token, false) FROM meta FOR UPDATE;

-- name: finish_copy
UPDATE meta SET unfinished_copy = NULL;
