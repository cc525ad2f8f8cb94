"""History in partitions on PostgreSQL: made ahead, dropped whole, and never at the expense of those who work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.support.postgres import Databases

from onbeat.domain.ids import RunKey
from onbeat.domain.states import RunState
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.postgres.partitions import DAY_US, DAYS_AHEAD
from onbeat.store.values import Page, RunFilter

SECOND = 1_000_000
SLOTS = 256
JOB = 7_919_000_017
Connection = asyncpg.Connection


class History:
    """A database with a store over it, and a connection that writes history past the store."""

    def __init__(self, url: str, store: Store, connection: Connection[asyncpg.Record], today: int) -> None:
        self.url = url
        self.store = store
        self.connection = connection
        self.today = today

    async def partitions(self, table: str) -> list[str]:
        """Names of the days that are attached."""
        rows = await self.connection.fetch(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::text::regclass ORDER BY 1", table
        )
        return [row[0] for row in rows if not row[0].endswith("_default")]

    async def tables(self) -> list[str]:
        """Every table of a day, attached or not."""
        rows = await self.connection.fetch(
            "SELECT relname FROM pg_class WHERE relname ~ '_[0-9]{8}$' AND relkind = 'r'"
        )
        return sorted(row[0] for row in rows)

    async def make_day(self, days_ago: int) -> int:
        """A day of long ago, as it was made when it lay ahead. Answer: its first instant."""
        begin = self.today - days_ago * DAY_US
        for table in ("ended_runs", "attempts"):
            await self.connection.execute(
                f"CREATE TABLE {table}_{day_of(begin)} PARTITION OF {table}"
                f" FOR VALUES FROM ({begin}) TO ({begin + DAY_US})"
            )
        return begin

    async def end(
        self, scheduled_at: int, *, finished_at: int, job_id: int = JOB, state: RunState = RunState.SUCCEEDED,
        late: bool = False,
    ) -> RunKey:  # fmt: skip
        """A run that ended."""
        await self.connection.execute(
            "INSERT INTO ended_runs (slot, job_id, scheduled_at, state, late, trigger, job_version, attempt,"
            " created_at, finished_at) VALUES ($1, $2, $3, $4, $5, 'schedule', 1, 1, $3, $6)",
            job_id % SLOTS, job_id, scheduled_at, state.value, late, finished_at,
        )  # fmt: skip
        return RunKey(job_id, scheduled_at)

    async def collapse(self, scheduled_at: int, *, until: int) -> RunKey:
        """A range of missed instants."""
        await self.connection.execute(
            "INSERT INTO ended_runs (slot, job_id, scheduled_at, state, late, trigger, job_version, attempt,"
            " created_at, finished_at, count, until)"
            " VALUES ($1, $2, $3, 'missed', false, 'schedule', 1, 0, $4, $4, 2, $4)",
            JOB % SLOTS, JOB, scheduled_at, until,
        )  # fmt: skip
        await self.connection.execute(
            "INSERT INTO ended_ranges (slot, job_id, scheduled_at, until) VALUES ($1, $2, $3, $4)",
            JOB % SLOTS, JOB, scheduled_at, until,
        )  # fmt: skip
        return RunKey(JOB, scheduled_at)

    async def fail_attempt(self, key: RunKey) -> None:
        """A failed attempt of a run."""
        await self.connection.execute(
            "INSERT INTO attempts (slot, job_id, scheduled_at, attempt, kind, started_at, duration_us)"
            " VALUES ($1, $2, $3, 1, 'timeout', $3, 1)",
            key.job_id % SLOTS, key.job_id, key.scheduled_at,
        )  # fmt: skip

    async def count(self, table: str) -> int:
        """Rows of a table."""
        return int(await self.connection.fetchval(f"SELECT count(*) FROM {table}"))  # noqa: S608 - a name of ours


def day_of(instant: int) -> str:
    """As it stands in a partition's name."""
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime("%Y%m%d")


@pytest.fixture
async def history(databases: Databases) -> AsyncIterator[History]:
    """An empty database."""
    url = await databases.create()
    store = await open_store(url)
    connection = await asyncpg.connect(url)
    now = await store.read_clock()
    yield History(url, store, connection, now - now % DAY_US)
    await connection.close()
    await store.close()
    await databases.drop(url)


async def test_days_are_made_ahead_when_the_store_opens(history: History) -> None:
    first = datetime.fromtimestamp(history.today // SECOND, UTC)
    days = [f"{first + timedelta(days=number):%Y%m%d}" for number in range(DAYS_AHEAD + 1)]
    assert await history.partitions("ended_runs") == [f"ended_runs_{day}" for day in days]
    assert await history.partitions("attempts") == [f"attempts_{day}" for day in days]


async def test_retention_makes_days_that_are_missing(history: History) -> None:
    before = await history.tables()
    await history.connection.execute(f"DROP TABLE {before[0]}; DROP TABLE {before[-1]}")
    await history.store.runs.prune(ended_before=0, limit=10)
    assert await history.tables() == before


async def test_many_nodes_make_the_days_at_once(history: History) -> None:
    before = await history.tables()
    for table in before:
        await history.connection.execute(f"DROP TABLE {table}")
    stores = await asyncio.gather(*(open_store(history.url) for _ in range(8)))
    await asyncio.gather(*(store.close() for store in stores))
    await history.store.runs.prune(ended_before=0, limit=10)
    assert await history.tables() == before


async def test_a_day_whose_runs_lie_in_the_default_partition_leaves_them_there(history: History) -> None:
    ahead = history.today + 2 * DAY_US
    await history.connection.execute(f"DROP TABLE ended_runs_{day_of(ahead)}")
    key = await history.end(ahead, finished_at=ahead)
    await (await open_store(history.url)).close()
    assert f"ended_runs_{day_of(ahead)}" not in await history.tables()
    assert await history.store.runs.get(key) is not None


async def test_a_day_is_dropped_once_all_its_runs_ended_before_with_ranges_and_attempts(history: History) -> None:
    old, kept = await history.make_day(40), await history.make_day(20)
    key = await history.end(old, finished_at=old + SECOND, state=RunState.FAILED)
    await history.fail_attempt(key)
    await history.collapse(old + 10 * SECOND, until=old + 20 * SECOND)
    recent = await history.collapse(kept, until=kept + SECOND)
    assert await history.store.runs.prune(ended_before=old + DAY_US - 1, limit=10) == 0
    assert await history.store.runs.prune(ended_before=old + DAY_US, limit=10) == 2
    assert [name for name in await history.tables() if day_of(old) in name] == []
    assert await history.store.runs.attempts(key) == []
    assert await history.connection.fetchval("SELECT array_agg(scheduled_at) FROM ended_ranges") == [kept]
    assert await history.store.runs.get(recent) is not None
    assert await history.store.runs.prune(ended_before=old + DAY_US, limit=10) == 0


async def test_a_late_backfill_keeps_its_day(history: History) -> None:
    begin = await history.make_day(40)
    for number in range(2_000):
        await history.end(begin + number * SECOND, finished_at=begin + number * SECOND)
    await history.end(begin + DAY_US - SECOND, finished_at=history.today)
    assert await history.store.runs.prune(ended_before=history.today, limit=10) == 0
    assert await history.count("ended_runs") == 2_001
    assert await history.store.runs.prune(ended_before=history.today + 1, limit=10) == 10
    assert await history.count("ended_runs") == 0


async def test_attempts_of_a_run_that_still_goes_on_keep_their_day(history: History) -> None:
    begin = await history.make_day(40)
    ended = await history.end(begin, finished_at=begin)
    await history.fail_attempt(RunKey(JOB, begin + SECOND))
    await history.connection.execute(
        "INSERT INTO live_runs (slot, job_id, scheduled_at, state, trigger, job_version, attempt, ready_at, late_after,"
        " max_run_us, created_at) VALUES ($1, $2, $3, 'pending', 'schedule', 1, 1, $3, $3, 1, $3)",
        JOB % SLOTS, JOB, begin + SECOND,
    )  # fmt: skip
    await history.store.runs.prune(ended_before=history.today, limit=10)
    assert await history.store.runs.get(ended) is None
    assert len(await history.store.runs.attempts(RunKey(JOB, begin + SECOND))) == 1
    await history.connection.execute("DELETE FROM live_runs")
    await history.store.runs.prune(ended_before=history.today, limit=10)
    assert await history.store.runs.attempts(RunKey(JOB, begin + SECOND)) == []


async def test_what_a_crash_left_half_dropped_is_dropped_by_the_next_one(history: History) -> None:
    begin = await history.make_day(40)
    await history.collapse(begin, until=begin + SECOND)
    await history.connection.execute(f"ALTER TABLE ended_runs DETACH PARTITION ended_runs_{day_of(begin)}")
    assert await history.store.runs.prune(ended_before=history.today, limit=10) == 1
    assert await history.count("ended_ranges") == 0
    assert [name for name in await history.tables() if day_of(begin) in name] == []


async def test_nobody_waits_long_for_a_day_that_is_in_use(history: History) -> None:
    begin = await history.make_day(40)
    await history.end(begin, finished_at=begin)
    reader = await asyncpg.connect(history.url)
    await reader.execute("BEGIN; SELECT count(*) FROM ended_runs")
    try:
        assert await history.store.runs.prune(ended_before=history.today, limit=10) == 0
        assert await history.count("ended_runs") == 1
    finally:
        await reader.execute("COMMIT")
        await reader.close()
    assert await history.store.runs.prune(ended_before=history.today, limit=10) == 1


async def test_nodes_prune_at_once_without_harm(history: History) -> None:
    other = await open_store(history.url)
    for days_ago in range(40, 45):
        begin = await history.make_day(days_ago)
        await history.end(begin, finished_at=begin)
    for number in range(100):
        await history.end(number, finished_at=number)
    await history.connection.execute(
        "INSERT INTO job_counts SELECT n % 4, 'active', 1 FROM generate_series(1, 1000) AS n"
    )
    stores = (history.store, other) * 4
    removed = await asyncio.gather(*(store.runs.prune(ended_before=history.today, limit=30) for store in stores))
    removed += [await history.store.runs.prune(ended_before=history.today, limit=1_000) for _ in range(2)]
    assert sum(removed) == 105
    assert await history.count("ended_runs") == 0
    assert (await history.store.counts()).jobs_by_state == {"active": 1_000}
    assert await history.count("job_counts") == 4
    await other.close()


async def test_runs_end_while_days_come_and_go(history: History) -> None:
    """Whoever writes history waits for a moment at worst, and what was written is there."""
    begins = [await history.make_day(days_ago) for days_ago in range(40, 44)]
    for begin in begins:
        await history.end(begin, finished_at=begin)
    writer = await asyncpg.connect(history.url)
    written = 0

    async def write() -> None:
        nonlocal written
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await writer.execute(
                    "INSERT INTO ended_runs (slot, job_id, scheduled_at, state, late, trigger, job_version, attempt,"
                    " created_at, finished_at) VALUES (0, 0, $1, 'succeeded', false, 'schedule', 1, 1, 0, $1)",
                    history.today + written,
                )
                written += 1
                await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    while await history.count("ended_runs") - written > 0 or len(await history.partitions("attempts")) > DAYS_AHEAD + 1:
        await history.store.runs.prune(ended_before=history.today - 30 * DAY_US, limit=10)
    writing.cancel()
    await writing
    await writer.close()
    assert await history.count("ended_runs") >= written > 0


@pytest.mark.parametrize(
    "where",
    [
        RunFilter(),
        RunFilter(late=True),
        RunFilter(states=frozenset({RunState.FAILED, RunState.MISSED})),
        RunFilter(states=frozenset({RunState.SUCCEEDED})),
        RunFilter(states=frozenset({RunState.SUCCEEDED, RunState.FAILED}), late=True),
        RunFilter(late=False),
        RunFilter(job_id=JOB),
        RunFilter(job_id=JOB, states=frozenset({RunState.FAILED})),
    ],
)
async def test_pages_over_days_and_the_default_partition_are_whole_and_in_order(
    history: History, where: RunFilter
) -> None:
    begins = [await history.make_day(days_ago) for days_ago in (3, 2)] + [history.today, history.today - 400 * DAY_US]
    states = (RunState.SUCCEEDED, RunState.FAILED, RunState.SUCCEEDED, RunState.MISSED, RunState.SUCCEEDED)
    expected = []
    for begin in begins:
        for number in range(25):
            for job_id in (JOB, JOB + 1):
                state, late = states[number % 5], number % 3 == 0
                key = await history.end(
                    begin + number * SECOND, finished_at=begin + number * SECOND, job_id=job_id, state=state, late=late
                )
                wanted = not where.states or state in where.states
                if wanted and where.late in (None, late) and where.job_id in (None, job_id):
                    expected.append((key.scheduled_at, key.job_id))
    found: list[tuple[int, int]] = []
    page = Page(limit=7)
    while views := await history.store.runs.find(where, page):
        found += [(view.key.scheduled_at, view.key.job_id) for view in views]
        page = Page(limit=7, after=found[-1])
    assert found == sorted(expected, reverse=True)
