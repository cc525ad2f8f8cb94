-- Named calendars and their users.

-- name: put_calendar
-- Writes nothing where the same rules stand there. Job ids are not negative, so -1 is before them all.
INSERT INTO calendars (namespace, name, version, rules, replan_after, created_at, updated_at)
VALUES (:namespace, :name, 1, :rules, -1, :now, :now)
ON CONFLICT (namespace, name) DO UPDATE SET
    version = calendars.version + 1, rules = excluded.rules, replan_after = -1,
    updated_at = greatest(calendars.updated_at, excluded.updated_at)
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

-- name: lock_calendar
-- Walks the primary key of calendars. Waits for jobs that are about to use it.
SELECT 1 FROM calendars WHERE namespace = :namespace AND name = :name FOR UPDATE;

-- name: keep_calendars
-- Walks the primary key of calendars. None of these is deleted until the transaction ends, as a foreign key would have
-- it; new rules and a walk over the users are in nobody's way.
SELECT 1
FROM unnest(:namespaces::text[], :names::text[]) AS n (namespace, name)
JOIN calendars AS c ON c.namespace = n.namespace AND c.name = n.name
ORDER BY c.namespace, c.name
FOR KEY SHARE OF c;

-- name: delete_calendar
DELETE FROM calendars WHERE namespace = :namespace AND name = :name;

-- name: count_users
-- Walks the primary key of calendar_uses.
SELECT count(*) FROM calendar_uses WHERE namespace = :namespace AND name = :name;

-- name: add_uses
INSERT INTO calendar_uses (namespace, name, job_id)
SELECT * FROM unnest(:namespaces::text[], :names::text[], :job_ids::bigint[])
ON CONFLICT (namespace, name, job_id) DO NOTHING;

-- name: drop_uses
-- Walks calendar_uses_by_job.
DELETE FROM calendar_uses WHERE job_id = :job_id;

-- name: calendar_to_replan
-- Walks calendars_to_replan, which is empty most of the time.
SELECT namespace, name, replan_after
FROM calendars
WHERE replan_after IS NOT NULL
ORDER BY namespace, name
LIMIT 1
FOR NO KEY UPDATE;

-- name: any_to_replan
-- Walks calendars_to_replan.
SELECT EXISTS (SELECT 1 FROM calendars WHERE replan_after IS NOT NULL);

-- name: users_to_replan
-- Walks the primary key of calendar_uses from where the last batch ended.
SELECT job_id
FROM calendar_uses
WHERE namespace = :namespace AND name = :name AND job_id > :replan_after
ORDER BY job_id
LIMIT :limit;

-- name: replan_from
UPDATE calendars SET replan_after = :replan_after WHERE namespace = :namespace AND name = :name;

-- name: put_clocks
INSERT INTO clocks (slot, job_id, next_fire_at)
SELECT * FROM unnest(:slots::integer[], :job_ids::bigint[], :next_fire_ats::bigint[]) AS asked
ON CONFLICT (slot, job_id) DO UPDATE SET next_fire_at = excluded.next_fire_at;
