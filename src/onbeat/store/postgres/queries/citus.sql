-- Tables spread over the servers of a Citus cluster. Parameters are numbered in the order in which a name first appears.

-- name: has_citus
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus');

-- name: one_server_at_a_time
-- Later tables follow the placement of the first one, so they cannot be spread at the same time.
SET LOCAL citus.multi_shard_modify_mode = 'sequential';

-- name: is_spread
-- Citus keeps a row for each table that it knows.
SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = (:table::text)::regclass);

-- name: spread_by_slot
-- Rows of one slot lie together: each table where the one that is named with it lies.
SELECT create_distributed_table((:table::text)::regclass, 'slot', colocate_with => :beside::text);

-- name: copy_to_all
-- Few rows, which rows of all slots are joined with: all servers have them.
SELECT create_reference_table((:table::text)::regclass);

-- name: lay_indexes_by_slot
-- What is due, ready or lost is looked for in one slot; a server holds many. The index of all clocks stays: figures for
-- people ask for the first of them.
DROP INDEX live_claimable, live_leased, live_retries;
CREATE INDEX clocks_due_by_slot ON clocks (slot, next_fire_at, job_id);
CREATE INDEX live_claimable ON live_runs (slot, queue, priority, ready_at)
WHERE state = 'pending' AND lane IS NOT NULL AND NOT held;
CREATE INDEX live_leased ON live_runs (slot, lease_until) WHERE state = 'running' AND deadline_at > 0;
CREATE INDEX live_retries ON live_runs (slot, deadline_at) WHERE state = 'pending' AND deadline_at IS NOT NULL;

-- name: note_spread_tables
UPDATE meta SET is_distributed = true;
