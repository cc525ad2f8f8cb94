-- The database about itself. Bindings go by position, in the order in which a name first appears in a query.

-- name: has_tables
SELECT count(*) FROM sqlite_schema WHERE type = 'table';

-- name: has_meta
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta';

-- name: schema_version
SELECT schema_version FROM meta;

-- name: slots
SELECT slots FROM meta;

-- name: describe
INSERT INTO meta (only_row, schema_version, installation_id, slots, created_at)
VALUES (1, :schema_version, lower(hex(randomblob(16))), :slots, :now);

-- name: almanac_revision
SELECT almanac_revision FROM meta;

-- name: raise_almanac_revision
UPDATE meta SET almanac_revision = almanac_revision + 1;

-- name: raise_schema_version
UPDATE meta SET schema_version = :schema_version;
