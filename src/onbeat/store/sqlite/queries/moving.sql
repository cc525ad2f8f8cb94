-- A whole database on its way. What cannot be bound is written by moving.py, out of the list of what moves.

-- name: read_rows
-- Reads all of a table, in an order that is the same each time.
SELECT {columns} FROM {table} ORDER BY {order} LIMIT -1 OFFSET ?;

-- name: write_row
INSERT INTO {table} ({columns}) VALUES ({values});

-- name: count_table
SELECT count(*) FROM {table};

-- name: read_installation
SELECT installation_id, slots, created_at, almanac_revision FROM meta;

-- name: write_installation
UPDATE meta
SET installation_id = :installation_id, created_at = :created_at, almanac_revision = :almanac_revision;
