-- Pauses of a tag or of everything: few rows.

-- name: lock_pauses
-- Shared by all that make jobs of these namespaces active, until their transactions end. Two namespaces of one hash
-- wait for each other without need.
SELECT pg_advisory_xact_lock_shared(7308332, hashtext(namespace)) FROM unnest(:namespaces::text[]) AS namespace;

-- name: lock_pauses_alone
-- Waits for them, and lets none begin until this transaction ends.
SELECT pg_advisory_xact_lock(7308332, hashtext(:namespace::text));

-- name: put_pause
INSERT INTO pauses (namespace, tag, note, paused_at, until, cancels)
VALUES (:namespace, :tag, :note, :paused_at, :until, :cancels)
ON CONFLICT (namespace, tag) DO UPDATE SET
    note = excluded.note, until = excluded.until, cancels = excluded.cancels, is_spread = false, ended_at = NULL;

-- name: find_pauses
-- Reads all of pauses.
SELECT namespace, tag, note, paused_at, until, cancels, is_spread, ended_at FROM pauses ORDER BY namespace, tag;

-- name: pauses_that_hold
-- Walks the primary key of pauses.
SELECT p.namespace, p.tag, p.note
FROM unnest(:namespaces::text[]) AS n (namespace) JOIN pauses AS p ON p.namespace = n.namespace
WHERE p.ended_at IS NULL;

-- name: note_spread
UPDATE pauses SET is_spread = true WHERE namespace = :namespace AND tag = :tag AND ended_at IS NULL;

-- name: end_pause
UPDATE pauses SET ended_at = :ended_at WHERE namespace = :namespace AND tag = :tag AND ended_at IS NULL;

-- name: drop_pause
DELETE FROM pauses WHERE namespace = :namespace AND tag = :tag AND ended_at IS NOT NULL;

-- name: jobs_held_by
-- Walks jobs_paused_by. A job that was resumed is not in it any more.
SELECT job_id FROM jobs WHERE namespace = :namespace AND paused_by = :tag LIMIT :limit;

-- name: pauses_over
-- Walks jobs_paused_until.
SELECT job_id FROM jobs WHERE paused_until IS NOT NULL AND paused_until <= :now ORDER BY paused_until LIMIT :limit;
