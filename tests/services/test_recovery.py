"""The global recovery rate: how caught-up runs are spread over seconds."""

from __future__ import annotations

from collections import Counter

from onbeat.domain.ids import RunKey
from onbeat.services.recovery import SECONDS_REMEMBERED, Recovery

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND


def test_no_second_has_more_starts_than_the_rate_and_none_waits_longer_than_it_must() -> None:
    recovery = Recovery(per_s=50)
    begun = recovery.begin(now=NOW)
    places = [begun.place(RunKey(job, mark), earliest=NOW + mark * SECOND) for job in range(200) for mark in range(3)]
    starts = Counter(place // SECOND for place in places)
    assert max(starts.values()) == 50
    assert max(places) < NOW + 600 // 50 * SECOND


def test_a_run_never_starts_before_its_own_earliest_instant() -> None:
    recovery = Recovery(per_s=2)
    begun = recovery.begin(now=NOW)
    earliest = NOW + SECOND // 4 * 3
    places = [begun.place(RunKey(1, number), earliest=earliest) for number in range(5)]
    assert min(places) == earliest
    assert places[2:] == [NOW + SECOND, NOW + SECOND + SECOND // 2, NOW + 2 * SECOND]


def test_asking_again_in_one_transaction_gives_the_same_place_and_takes_no_other() -> None:
    recovery = Recovery(per_s=1)
    begun = recovery.begin(now=NOW)
    first = [begun.place(RunKey(1, number), earliest=NOW) for number in range(3)]
    assert [begun.place(RunKey(1, number), earliest=NOW) for number in range(3)] == first
    assert begun.place(RunKey(1, 3), earliest=NOW) == NOW + 3 * SECOND


def test_transactions_that_go_on_at_once_share_the_rate_and_keep_their_own_places() -> None:
    recovery = Recovery(per_s=2)
    one, other = recovery.begin(now=NOW), recovery.begin(now=NOW)
    first = [one.place(RunKey(1, number), earliest=NOW) for number in range(2)]
    assert other.place(RunKey(2, 0), earliest=NOW) == NOW + SECOND
    recovery.begin(now=NOW)
    assert [one.place(RunKey(1, number), earliest=NOW) for number in range(2)] == first  # tried again
    assert other.place(RunKey(2, 1), earliest=NOW) == NOW + SECOND + SECOND // 2


def test_a_run_brought_back_takes_a_place_of_its_own_each_time() -> None:
    recovery = Recovery(per_s=2)
    begun = recovery.begin(now=NOW)
    begun.place(RunKey(1, 1), earliest=NOW)
    places = [recovery.next_place(earliest=NOW) for _ in range(3)]
    assert places == [NOW + SECOND // 2, NOW + SECOND, NOW + SECOND + SECOND // 2]


def test_places_of_runs_that_are_recorded_already_stay_taken() -> None:
    recovery = Recovery(per_s=10)
    assert not recovery.is_filled
    recovery.fill([(NOW // SECOND, 10), (NOW // SECOND + 1, 4)])
    assert recovery.is_filled
    begun = recovery.begin(now=NOW)
    assert begun.place(RunKey(1, 1), earliest=NOW) == NOW + SECOND + 400_000


def test_seconds_long_past_are_forgotten() -> None:
    recovery = Recovery(per_s=1)
    begun = recovery.begin(now=NOW)
    for number in range(SECONDS_REMEMBERED + 2):
        begun.place(RunKey(1, number), earliest=NOW)
    later = NOW + 2 * SECONDS_REMEMBERED * SECOND
    begun = recovery.begin(now=later)
    assert begun.place(RunKey(1, 1), earliest=NOW) == NOW  # room again: nobody remembers what started then
