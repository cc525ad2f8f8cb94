"""PostgreSQL as a store: any number of nodes on one database.

Locks
-----
Many nodes write at once, under READ COMMITTED. What a transaction decides from, it has locked first, and reads in a
*later* statement than the one that may have waited, or from the very row that it waited for: only those are certain to
be what the other transaction left. Locks are taken in this order, and rows of one table in the order of their primary
key, so that two transactions wait for each other at worst in rare mixtures, which the server ends after a second and
`database.py` begins anew:

    calendars -> backfills -> clocks -> jobs -> pauses -> live_runs -> after_finish -> all else

- The clock is the lock on "this job fires". `Fires.record_due` takes due clocks with SKIP LOCKED, and only then, in a
  later statement, reads the jobs: nobody changes a job whose clock another one holds.
- Whoever changes a job, or records a run of it by another way than its clock, calls `locks.lock_job` first: the clock
  where there is one, then the job's row. What it returns was read after the lock and stays true until the transaction
  ends. So two transactions never admit runs to the lanes of one job at a time.
- Only a transaction that holds a job's row gives the job a clock: where none is there after the row was locked, none
  appears. The exception is the clock that a finish sets (`after_finish.py`), which lies ahead by a second at least:
  whoever makes such a job inactive, or makes a job such a one, locks its live runs first, so that finishes are over or
  wait.
- The lock on a namespace's pauses is an advisory one: shared for those that make a job active, exclusive for those
  that begin or end a pause. So a pause that was begun is seen by all that come after, and covers all that came before.
- Leases, finishes and cancellations lock live runs only. A verdict that pauses the job (410 Gone) would lock the job
  after its run, so that transaction begins anew with the job (`finishes.write_locking`).
- Whoever puts a run in line behind held lanes locks the runs that hold them first, and looks again afterwards
  (`locks.lock_lanes`); whoever frees a lane looks for waiting runs in a later statement than the one that took the
  holder's row (`lanes.py`). So one of the two always sees the other, and no run waits for a lane that nobody will pass
  on. A batch of fires that has waited for such a run in vain goes on without its job (`fires.WAITS_AGAIN_AFTER_S`).
- The identity of a fire is unique over two tables, live runs and history. A statement sees history as it was when it
  began, and a live run of that identity as it is. So whoever inserts a run that may be live already locks it first
  (`recording.insert_runs`), and waits for whoever ends it: the next statement finds it in one of the two.
- A pause removes the clock and marks the job's live runs as held. Whoever records a run waited for the clock or the
  job's row, and whoever starts an attempt for the live run's row; both see the pause or are over before it is.

One slot at a time
------------------
Where the tables are spread over servers by slot (`meta.is_distributed`), the same modules send the same statements in
their form for one slot: see `one_slot.py`. All of the above holds, since a job and its runs are of one slot.

Connections
-----------
Fires, leases and heartbeats run on connections that no request ever holds (`Database.prompt`), under shorter limits:
requests that wait for each other, or a storm of them, keep none of these from going on. What such a call needs of other
nouns, as a caller's key, is read on them, too.
"""
