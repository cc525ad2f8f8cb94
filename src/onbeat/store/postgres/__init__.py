"""PostgreSQL as a store: any number of nodes on one database.

# Locks

Writers run side by side under READ COMMITTED. What a transaction decides from, it has locked first, and reads in a
*later* statement than the one that may have waited: only that one is certain to see what the other transaction left.

Locks are taken in this order, and rows of one table in the order of their primary key:

1. the row in `calendars` (`replan`);
2. the row in `clocks`: whoever holds it decides what becomes of the job's fires;
3. the row in `jobs`, FOR NO KEY UPDATE: its state, its definition, and that no clock appears. A job that has a clock is
   changed only with that clock locked, and only a transaction that holds the job's row gives it a clock;
4. the pauses of a namespace, an advisory lock: shared by those that make a job active, exclusive for those that begin
   or end a pause;
5. rows in `live_runs`. Who puts a run in line behind a held lane locks the runs that hold one; who frees a lane looks
   for waiting runs in a later statement;
6. everything else: keys, versions, history, attempts, counts.

`locks.lock_jobs` takes 2 and 3. `record_due` takes due clocks with SKIP LOCKED, reads their jobs in a later statement
and waits for none of them, since nobody holds such a job without its clock.

Claims, finishes and expiries begin with 5. Where one of them needs a job after all (a pause after 410, a clock after a
finish), it asks with NOWAIT: a job that is in other hands makes the transaction begin anew, rather than wait in a
circle. What else deadlocks is found by the server after a second and begins anew, too (`database.py`).

So a pause holds from its commit on: a fire that was recorded before had the clock, a claim or a permit before had the
run's row, each waits for the other, and what comes after reads `held` and the job's state as the pause left them.
"""
