"""Ranges of instants without those that have a record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.misfire import InstantRange
from onbeat.domain.model import SECOND_US, EverySchedule
from onbeat.domain.recorded import without_recorded
from onbeat.domain.timetable import compile_timetable

EACH_3_S = compile_timetable((EverySchedule(every_s=3, anchor_at=0),), job_id=1)


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(-5, 70), st.integers(0, 9)), max_size=5),
)
def test_pieces_are_exactly_the_instants_without_a_record(
    first: int, length: int, records: list[tuple[int, int]]
) -> None:
    instants = [3 * number * SECOND_US for number in range(first, first + length + 1)]
    recorded = tuple((start * SECOND_US, (start + lasts) * SECOND_US) for start, lasts in records)
    whole = InstantRange(instants[0], instants[-1], len(instants))
    found: list[int] = []
    for piece in without_recorded(EACH_3_S, whole, recorded):
        held = [instant for instant in instants if piece.first <= instant <= piece.last]
        assert (held[0], held[-1], len(held)) == (piece.first, piece.last, piece.count)
        found += held
    assert found == [at for at in instants if not any(start <= at <= end for start, end in recorded)]
