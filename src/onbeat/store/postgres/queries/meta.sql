-- What the database says of itself.

-- name: read_clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: has_meta
-- Is there a table of that name that has onbeat's columns? Other programs may have one, too.
SELECT count(*) = 3
FROM pg_attribute
WHERE attrelid = to_regclass('meta') AND attname IN ('schema_version', 'serves_from', 'installation_id');

-- name: has_tables
SELECT EXISTS (
    SELECT 1 FROM pg_class AS c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
);

-- name: read_meta
SELECT schema_version, serves_from, slots, unfinished_copy IS NOT NULL, is_distributed FROM meta;

-- name: lock_schema
-- One migrating process at a time. It ends with the transaction, so it works behind a pooler, too.
SELECT pg_advisory_xact_lock(7308332046);

-- name: describe
INSERT INTO meta (only_row, schema_version, serves_from, installation_id, slots, created_at)
VALUES (1, :schema_version, :serves_from, replace(gen_random_uuid()::text, '-', ''), :slots, :now);

-- name: raise_schema_version
UPDATE meta SET schema_version = :schema_version, serves_from = :serves_from;

-- name: almanac_revision
SELECT almanac_revision FROM meta;

-- name: hold_almanac_revision
SELECT almanac_revision FROM meta FOR SHARE;

-- name: raise_almanac_revision
UPDATE meta SET almanac_revision = almanac_revision + 1;
