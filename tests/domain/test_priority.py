"""Places in the line of runs that are ready."""

from __future__ import annotations

import pytest

from onbeat.domain.priority import AGEING_US, RECOVERY_STEPS, place, standing
from onbeat.domain.states import Trigger


@pytest.mark.parametrize("trigger", list(Trigger))
def test_runs_that_make_up_for_the_past_stand_an_hour_behind(trigger: Trigger) -> None:
    is_recovery = trigger in (Trigger.CATCH_UP, Trigger.BACKFILL)
    assert standing(5, trigger) == (5 - RECOVERY_STEPS if is_recovery else 5)
    assert RECOVERY_STEPS * AGEING_US == 3_600_000_000


def test_a_step_of_priority_is_worth_a_minute_of_waiting() -> None:
    low = place(ready_at=0, standing=0)
    assert place(ready_at=9 * AGEING_US - 1, standing=9) < low < place(ready_at=9 * AGEING_US + 1, standing=9)
