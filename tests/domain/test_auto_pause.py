"""When a job that keeps failing pauses by itself."""

from __future__ import annotations

import pytest

from onbeat.domain.auto_pause import FAILURES, Streak, check_auto_pause, lengthened, reason_to_pause
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import SECOND_US, AutoPausePolicy
from onbeat.domain.states import RunState

NOW = 1_800_000_000 * SECOND_US


@pytest.mark.parametrize(
    ("policy", "failures", "failing_for_s", "reason"),
    [
        (AutoPausePolicy(failures=1), 1, 0, "1 failed run in a row"),
        (AutoPausePolicy(failures=10), 9, 1_000_000, None),
        (AutoPausePolicy(failures=10), 10, 0, "10 failed runs in a row"),
        (AutoPausePolicy(failures=10), 11, 0, "11 failed runs in a row"),
        (AutoPausePolicy(failing_s=60), 1_000, 59, None),
        (AutoPausePolicy(failing_s=60), 2, 60, "failing for 60 s, 2 failed runs in a row"),
        (AutoPausePolicy(failing_s=60), 2, 3_601, "failing for 3601 s, 2 failed runs in a row"),
        (AutoPausePolicy(failures=10, failing_s=60), 9, 59, None),
        (AutoPausePolicy(failures=10, failing_s=60), 10, 1, "10 failed runs in a row"),
        (AutoPausePolicy(failures=10, failing_s=60), 3, 61, "failing for 61 s, 3 failed runs in a row"),
        (AutoPausePolicy(failing_s=60), 5, -3_600, None),  # the clock was set back
    ],
)
def test_whichever_limit_is_reached_first_pauses_the_job(
    policy: AutoPausePolicy, failures: int, failing_for_s: int, reason: str | None
) -> None:
    streak = Streak(failures, NOW - failing_for_s * SECOND_US)
    expected = None if reason is None else f"auto_pause: {reason}"
    assert reason_to_pause(policy, streak, now=NOW) == expected


def test_a_streak_counts_its_runs_and_remembers_when_the_first_of_them_ended() -> None:
    first = lengthened(None, now=NOW)
    assert first == Streak(1, NOW)
    assert lengthened(first, now=NOW + 5) == Streak(2, NOW)


def test_failed_timed_out_and_unknown_runs_have_failed_and_no_others() -> None:
    assert {RunState.FAILED, RunState.TIMED_OUT, RunState.UNKNOWN} == FAILURES


def test_a_policy_that_names_no_limit_is_refused() -> None:
    check_auto_pause(None)
    check_auto_pause(AutoPausePolicy(failing_s=1))
    with pytest.raises(DefinitionError) as caught:
        check_auto_pause(AutoPausePolicy())
    assert (caught.value.reason_code, caught.value.field) == ("auto_pause_invalid", "auto_pause")
