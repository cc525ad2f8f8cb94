"""Ids are a pure function of what they name, and nothing else parses as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.errors import IdInvalid
from onbeat.domain.ids import RunKey, format_job_id, format_run_id, parse_job_id, parse_run_id

JOB_IDS = st.integers(0, (1 << 63) - 1)
INSTANTS = st.integers(0, (1 << 63) - 1)


@given(job_id=JOB_IDS, scheduled_at=INSTANTS)
def test_ids_round_trip(job_id: int, scheduled_at: int) -> None:
    key = RunKey(job_id, scheduled_at)
    assert parse_job_id(format_job_id(job_id)) == job_id
    assert parse_run_id(format_run_id(key)) == key
    assert len(format_run_id(key)) == 30
    assert "." not in format_run_id(key)  # Standard Webhooks forbids it in a message id


@given(first=st.tuples(JOB_IDS, INSTANTS), second=st.tuples(JOB_IDS, INSTANTS))
def test_different_fires_have_different_run_ids(first: tuple[int, int], second: tuple[int, int]) -> None:
    assert (format_run_id(RunKey(*first)) == format_run_id(RunKey(*second))) == (first == second)


def test_run_ids_never_change_between_releases() -> None:
    # Receivers deduplicate on these: a new encoding would deliver every fire of an upgrade twice.
    assert format_run_id(RunKey(1, 1_800_000_000_000_000)) == "run_0000000000000g01k52wm9h000"
    assert format_job_id(12_345_678_901_234_567) == "job_00aywaheppjw7"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run_",
        "job_00aywaheppjw7",
        "run_" + "0" * 25,
        "run_" + "0" * 27,
        "run_" + "u" * 26,
        "run_" + "z" * 26,
        "RUN_" + "0" * 26,
        "run_" + "0" * 25 + "\n",
        "run_" + "0" * 25 + "é",
        "../" + "0" * 27,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(IdInvalid):
        parse_run_id(text)


@given(st.text())
def test_any_text_is_an_id_or_refused(text: str) -> None:
    for parse in (parse_job_id, parse_run_id):
        try:
            parse(text)
        except IdInvalid:
            continue
