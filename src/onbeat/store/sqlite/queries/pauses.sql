-- Pauses of a tag or of everything: few rows. Bindings go by position, in the order of first appearance.

-- name: put_pause
INSERT INTO pauses (namespace, tag, note, paused_at, until, cancels)
VALUES (:namespace, :tag, :note, :paused_at, :until, :cancels)
ON CONFLICT (namespace, tag) DO UPDATE SET
    note = excluded.note, until = excluded.until, cancels = excluded.cancels, is_spread = 0, ended_at = NULL;

-- name: find_pauses
SELECT namespace, tag, note, paused_at, until, cancels, is_spread, ended_at FROM pauses ORDER BY namespace, tag;

-- name: covering_pause
-- Reads the pauses of a namespace: of everything first, then by tag.
SELECT tag, note
FROM pauses
WHERE
    namespace = :namespace AND ended_at IS NULL
    AND (tag = '' OR EXISTS (SELECT 1 FROM json_each(:tags) AS t WHERE t.value = tag))
ORDER BY tag
LIMIT 1;

-- name: note_spread
UPDATE pauses SET is_spread = 1 WHERE namespace = :namespace AND tag = :tag AND ended_at IS NULL;

-- name: end_pause
UPDATE pauses SET ended_at = :ended_at WHERE namespace = :namespace AND tag = :tag AND ended_at IS NULL;

-- name: drop_pause
DELETE FROM pauses WHERE namespace = :namespace AND tag = :tag AND ended_at IS NOT NULL;

-- name: jobs_held_by
-- Walks jobs_paused_by. A job that was resumed is not in it any more.
SELECT job_id FROM jobs INDEXED BY jobs_paused_by
WHERE namespace = :namespace AND paused_by = :tag
LIMIT :limit;

-- name: pauses_over
-- Walks jobs_paused_until.
SELECT job_id FROM jobs INDEXED BY jobs_paused_until
WHERE paused_until IS NOT NULL AND paused_until <= :now
ORDER BY paused_until
LIMIT :limit;
