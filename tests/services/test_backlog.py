"""A dispatcher's way through a backlog: every slot has its turn, whatever becomes of the parts."""

from __future__ import annotations

from collections import Counter

import pytest

from onbeat.services.backlog import PARTS, Backlog


def turns(backlog: Backlog, own: range, count: int) -> list[tuple[int, ...]]:
    """The slots of so many parts, of which nothing is due."""
    seen = []
    for _ in range(count):
        seen.append(backlog.slots(own))
        backlog.note(jobs=0, left_from=None)
    return seen


@pytest.mark.parametrize("slots", [1, 7, PARTS, 256, 1_000])
def test_a_round_goes_through_each_slot_once_and_the_next_begins_anew(slots: int) -> None:
    own = range(slots)
    parts = turns(Backlog(), own, 2 * min(PARTS, slots))
    assert all(parts)
    assert Counter(slot for part in parts for slot in part) == dict.fromkeys(own, 2)


def test_a_part_is_gone_through_from_instant_to_instant_to_its_end() -> None:
    backlog, own = Backlog(), range(256)
    first = backlog.slots(own)
    for left_from in (10, 10, 30):
        backlog.note(jobs=5, left_from=left_from)
        assert (backlog.slots(own), backlog.since) == (first, left_from)
    backlog.note(jobs=5, left_from=None)
    assert backlog.since == 0
    assert not set(backlog.slots(own)) & set(first)


def test_a_part_that_is_in_other_hands_is_left_for_the_next_round() -> None:
    backlog, own = Backlog(), range(256)
    first = backlog.slots(own)
    backlog.note(jobs=0, left_from=10)
    assert (backlog.since, set(backlog.slots(own)) & set(first)) == (0, set())


def test_slots_that_come_and_go_on_the_way_have_their_turn() -> None:
    backlog = Backlog()
    turns(backlog, range(256), 20)
    seen = {slot for part in turns(backlog, range(100, 110), PARTS) for slot in part}
    assert seen == set(range(100, 110))
