-- Blackouts: few rows.

-- name: put_blackout
-- Writes nothing where the same rules stand there.
INSERT INTO blackouts (namespace, name, version, rules, created_at, updated_at)
VALUES (:namespace, :name, 1, :rules, :now, :now)
ON CONFLICT (namespace, name) DO UPDATE SET
    version = blackouts.version + 1, rules = excluded.rules,
    updated_at = greatest(blackouts.updated_at, excluded.updated_at)
WHERE blackouts.rules <> excluded.rules;

-- name: get_blackout
-- Walks the primary key of blackouts.
SELECT namespace, name, version, rules, created_at, updated_at
FROM blackouts
WHERE namespace = :namespace AND name = :name;

-- name: find_blackouts
-- Reads all of blackouts, in the order of its primary key: few rows, read at the start and after a change.
SELECT namespace, name, version, rules, created_at, updated_at
FROM blackouts
ORDER BY namespace, name;

-- name: delete_blackout
DELETE FROM blackouts WHERE namespace = :namespace AND name = :name;
