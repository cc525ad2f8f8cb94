"""The database's time between readings: never backwards, and a jump is believed only the second time."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from onbeat.clock import (
    JUMP_HELD_US,
    REREAD_AFTER_S,
    REREAD_UNSURE_AFTER_S,
    SKEW_PAGED_US,
    DatabaseClock,
    describe_skew,
    host_time_us,
)
from onbeat.store.open import open_store

T0 = 1_800_000_000_000_000
SECOND = 1_000_000


class World:
    """A server clock and a boot clock, each turned by hand."""

    def __init__(self) -> None:
        self.server = T0
        self.boot = 100.0
        self.wall = T0
        self.readings = 0

    async def read(self) -> int:
        self.readings += 1
        return self.server

    def pass_time(self, seconds: float) -> None:
        self.server += round(seconds * SECOND)
        self.boot += seconds
        self.wall += round(seconds * SECOND)


async def started(world: World) -> DatabaseClock:
    return await DatabaseClock.start(world.read, boottime=lambda: world.boot, wall=lambda: world.wall)


async def test_between_readings_time_goes_on_by_the_boot_clock() -> None:
    world = World()
    clock = await started(world)
    world.boot += 2.5
    await clock.refresh()
    assert clock.now() == T0 + 2_500_000
    assert world.readings == 1


async def test_an_old_reading_is_renewed_and_a_small_difference_taken_at_once() -> None:
    world = World()
    clock = await started(world)
    world.pass_time(REREAD_AFTER_S)
    world.server += 3 * SECOND
    await clock.refresh()
    assert clock.now() == world.server
    assert world.readings == 2


async def test_a_small_step_back_lets_time_stand_still_and_never_run_backwards() -> None:
    world = World()
    clock = await started(world)
    world.pass_time(REREAD_AFTER_S)
    before = clock.now()
    world.server -= 5 * SECOND
    await clock.refresh()
    assert clock.now() == before
    world.pass_time(3)
    assert clock.now() == before
    world.pass_time(4)
    assert clock.now() == before + 2 * SECOND


@pytest.mark.parametrize("step_s", [-3_600, -61, 61, 3_600, 86_400])
async def test_a_jump_is_held_until_a_second_reading_agrees(step_s: int) -> None:
    world = World()
    clock = await started(world)
    world.pass_time(REREAD_AFTER_S)
    world.server += step_s * SECOND
    await clock.refresh()
    held = clock.now()
    assert held == T0 + round(REREAD_AFTER_S * SECOND)
    world.pass_time(1)
    await clock.refresh()
    assert clock.now() == max(held, world.server)


async def test_a_single_wrong_reading_is_forgotten() -> None:
    world = World()
    clock = await started(world)
    world.pass_time(REREAD_AFTER_S)
    world.server += 3_600 * SECOND
    await clock.refresh()
    world.server -= 3_600 * SECOND
    world.pass_time(1)
    await clock.refresh()
    assert clock.now() == world.server
    world.pass_time(REREAD_AFTER_S)
    world.server += 3_600 * SECOND
    await clock.refresh()
    assert clock.now() < world.server  # held again: the first jump counts for nothing


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(-2 * JUMP_HELD_US, 2 * JUMP_HELD_US), st.booleans()), max_size=30)
)
async def test_time_never_runs_backwards_whatever_the_server_says(steps: list[tuple[float, int, bool]]) -> None:
    world = World()
    clock = await started(world)
    last = clock.now()
    for seconds, step, reads in steps:
        world.pass_time(seconds)
        world.server += step
        if reads:
            await clock.refresh()
        assert clock.now() >= last
        last = clock.now()


@pytest.mark.parametrize("off_s", [0, 1, -1, 31, -31, 3_600])
async def test_every_reading_says_how_far_the_hosts_clock_is_off(off_s: int) -> None:
    world = World()
    clock = await started(world)
    assert clock.skew_us == 0
    world.pass_time(REREAD_AFTER_S)
    world.wall += off_s * SECOND
    await clock.refresh()
    assert clock.skew_us == off_s * SECOND
    assert clock.now() == world.server  # and decides nothing by it


async def test_a_reading_that_takes_long_is_no_skew() -> None:
    world = World()

    async def slow() -> int:
        world.pass_time(4)
        reading = world.server
        world.pass_time(4)
        return reading

    clock = await DatabaseClock.start(slow, boottime=lambda: world.boot, wall=lambda: world.wall)
    assert clock.skew_us == 0


class SlowWorld(World):
    """Whose server answers after so many seconds, and says what time it was then, or was before them."""

    before_s = 0.0
    after_s = 0.0

    async def read(self) -> int:
        self.pass_time(self.before_s)
        reading = await super().read()
        self.pass_time(self.after_s)
        return reading


@pytest.mark.parametrize(("before_s", "after_s"), [(5.0, 0.0), (0.0, 5.0), (2.0, 3.0)])
async def test_a_reading_that_took_long_moves_no_time_that_it_agrees_with(before_s: float, after_s: float) -> None:
    world = SlowWorld()
    clock = await started(world)
    world.before_s, world.after_s = before_s, after_s
    world.pass_time(REREAD_AFTER_S)
    await clock.refresh()
    assert clock.now() == world.server


@pytest.mark.parametrize(("before_s", "after_s"), [(5.0, 0.0), (0.0, 5.0), (2.0, 3.0)])
async def test_a_first_reading_that_took_long_is_never_ahead_and_taken_again_soon(
    before_s: float, after_s: float
) -> None:
    world = SlowWorld()
    world.before_s, world.after_s = before_s, after_s
    clock = await started(world)
    assert clock.now() == world.server - round(after_s * SECOND)
    world.before_s = world.after_s = 0.0
    world.pass_time(REREAD_UNSURE_AFTER_S)
    await clock.refresh()
    assert clock.now() == world.server


async def test_a_step_that_a_long_reading_cannot_explain_is_taken() -> None:
    world = SlowWorld()
    clock = await started(world)
    world.before_s = 1.0
    world.pass_time(REREAD_AFTER_S)
    world.server += 3 * SECOND
    await clock.refresh()
    assert clock.now() == world.server


async def test_a_skew_is_told_once_when_it_begins_when_it_grows_and_when_it_is_over() -> None:
    world = World()
    with structlog.testing.capture_logs() as told:
        clock = await started(world)
        for off_s in (1, 3, 4, 31, 32, 3, 0):
            world.pass_time(REREAD_AFTER_S)
            world.wall = world.server + off_s * SECOND
            await clock.refresh()
    assert [(entry["log_level"], entry["skew_s"]) for entry in told] == [
        ("warning", 3.0),
        ("error", 31.0),
        ("warning", 3.0),
        ("info", 0.0),
    ]


async def test_a_store_whose_time_is_not_the_hosts_shows_as_skew(tmp_path: Path) -> None:
    store = await open_store(str(tmp_path / "onbeat.db"), read_time=lambda: host_time_us() - 40 * SECOND)
    try:
        clock = await DatabaseClock.start(store.read_clock)
        assert clock.skew_us > SKEW_PAGED_US
        assert describe_skew(clock.skew_us) is not None
    finally:
        await store.close()


def test_a_clock_that_was_never_read_says_so() -> None:
    async def never() -> int:
        return 0

    with pytest.raises(RuntimeError, match="refresh"):
        DatabaseClock(never).now()
