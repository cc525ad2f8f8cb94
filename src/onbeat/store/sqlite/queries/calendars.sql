-- Named calendars and their users. Bindings go by position, in the order in which a name first appears in a query.

-- name: put_calendar
-- Writes nothing where the same rules stand there. Job ids are not negative, so -1 is before them all.
INSERT INTO calendars (namespace, name, version, rules, replan_after, created_at, updated_at)
VALUES (:namespace, :name, 1, :rules, -1, :now, :now)
ON CONFLICT (namespace, name) DO UPDATE SET
    version = calendars.version + 1, rules = excluded.rules, replan_after = -1,
    updated_at = max(calendars.updated_at, excluded.updated_at)
WHERE calendars.rules <> excluded.rules;

-- name: get_calendar
-- Walks the primary key of calendars.
SELECT namespace, name, version, rules, created_at, updated_at
FROM calendars
WHERE namespace = :namespace AND name = :name;

-- name: find_calendars
-- Reads all of calendars, in the order of its primary key: few rows, read at the start and after a change.
SELECT namespace, name, version, rules, created_at, updated_at
FROM calendars
ORDER BY namespace, name;

-- name: delete_calendar
DELETE FROM calendars WHERE namespace = :namespace AND name = :name;

-- name: count_users
-- Walks the primary key of calendar_uses.
SELECT count(*) FROM calendar_uses WHERE namespace = :namespace AND name = :name;

-- name: add_use
INSERT INTO calendar_uses (namespace, name, job_id) VALUES (:namespace, :name, :job_id)
ON CONFLICT (namespace, name, job_id) DO NOTHING;

-- name: drop_uses
-- Walks calendar_uses_by_job.
DELETE FROM calendar_uses WHERE job_id = :job_id;

-- name: calendar_to_replan
-- Walks calendars_to_replan, which is empty most of the time.
SELECT namespace, name, replan_after FROM calendars WHERE replan_after IS NOT NULL ORDER BY namespace, name LIMIT 1;

-- name: jobs_to_replan
-- Walks the primary key of calendar_uses from where the last batch ended.
SELECT
    j.job_id, j.namespace, j.key, j.name, j.tags, j.version, j.state, j.reason, j.definition, c.next_fire_at,
    j.created_at, j.updated_at, j.paused_at, j.paused_until, j.paused_by
FROM calendar_uses AS u
CROSS JOIN jobs AS j ON j.job_id = u.job_id
LEFT JOIN clocks AS c ON c.slot = j.slot AND c.job_id = j.job_id
WHERE u.namespace = :namespace AND u.name = :name AND u.job_id > :replan_after
ORDER BY u.job_id
LIMIT :limit;

-- name: replan_from
UPDATE calendars SET replan_after = :replan_after WHERE namespace = :namespace AND name = :name;
