"""Which instants a backfill takes, and what is left of the marks that they lay in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.backfill import BackfillOrder, Span, adds_up, blacked_out, cut_out, first_of, left_after
from onbeat.domain.blackout import Blackout, BlackoutRules
from onbeat.domain.misfire import InstantRange
from onbeat.domain.model import CronSchedule, EverySchedule
from onbeat.domain.timetable import compile_timetable

S = 1_000_000
TENS = compile_timetable((EverySchedule(every_s=10, anchor_at=0),), job_id=None)
MINUTES = compile_timetable((CronSchedule(expression="* * * * *"),), job_id=None)


@pytest.mark.parametrize(
    ("span", "order", "number", "expected"),
    [
        (Span(0, 40), "oldest", 9, (0, 10, 20, 30)),
        (Span(1, 41), "oldest", 2, (10, 20)),
        (Span(0, 40), "newest", 9, (30, 20, 10, 0)),
        (Span(0, 41), "newest", 2, (40, 30)),
        (Span(11, 20), "oldest", 9, ()),
        (Span(20, 20), "newest", 9, ()),
        (Span(30, 20), "oldest", 9, ()),
    ],
)
def test_first_instants_of_a_span(span: Span, order: str, number: int, expected: tuple[int, ...]) -> None:
    found = first_of(TENS, Span(span.start * S, span.end * S), order=BackfillOrder(order), number=number)
    assert found == tuple(second * S for second in expected)


def test_what_is_left_begins_after_the_last_instant_or_ends_before_it() -> None:
    assert left_after(Span(0, 50), 20, order=BackfillOrder.OLDEST) == Span(21, 50)
    assert left_after(Span(0, 50), 20, order=BackfillOrder.NEWEST) == Span(0, 20)


@pytest.mark.parametrize(
    ("first", "last", "count", "expected"),
    [(10, 50, 5, True), (10, 50, 4, False), (11, 50, 4, False), (10, 51, 5, False), (10, 10, 1, True)],
)
def test_a_mark_adds_up_where_ends_and_number_are_those_of_the_timetable(
    first: int, last: int, count: int, expected: bool
) -> None:
    assert adds_up(TENS, InstantRange(first * S, last * S, count)) is expected


@given(taken=st.sets(st.integers(0, 200), min_size=1), first=st.integers(0, 3_000_000), number=st.integers(1, 200))
def test_pieces_and_taken_instants_are_the_mark(taken: set[int], first: int, number: int) -> None:
    start = first * 60 * S
    every = [start + minute * 60 * S for minute in range(number)]
    instants = [instant for place, instant in enumerate(every) if place in taken]
    pieces = cut_out(MINUTES, InstantRange(every[0], every[-1], number), instants)
    assert all(adds_up(MINUTES, piece) for piece in pieces)
    covered = [instant for piece in pieces for instant in every if piece.first <= instant <= piece.last]
    assert sorted(covered + instants) == every
    assert sum(piece.count for piece in pieces) + len(instants) == number


def test_instants_in_any_window_are_blacked_out() -> None:
    blackouts = [
        Blackout("a", BlackoutRules(from_at=10 * S, until_at=30 * S)),
        Blackout("b", BlackoutRules(from_at=50 * S, until_at=51 * S)),
    ]
    instants = [second * S for second in (50, 40, 30, 20, 10, 0)]
    assert blacked_out(blackouts, instants) == {10 * S, 20 * S, 50 * S}
    assert blacked_out(blackouts, []) == frozenset()
