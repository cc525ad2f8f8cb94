"""The cron grammar: what is read, and how what is not is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import example, given
from hypothesis import strategies as st
from tests.domain.cron_oracle import EXPRESSIONS

from onbeat.domain.cron import LONGEST_EXPRESSION, MACROS, CronExpression, depends_on_job, parse_cron
from onbeat.domain.errors import DefinitionError

Read = TypeVar("Read")

FIELD_NAMES = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")


def read(text: str, *, job_id: int | None = 1) -> CronExpression:
    return parse_cron(text, job_id=job_id)


def refusal(text: object) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        parse_cron(text, job_id=1)  # type: ignore[arg-type]
    assert caught.value.field == "cron"
    assert caught.value.remedy
    assert len(caught.value.detail) < 200
    return caught.value


def _or_none(make: Callable[[], Read]) -> Read | None:
    try:
        return make()
    except (DefinitionError, CronSimError):
        return None


@given(EXPRESSIONS)
@example("*/100 5/7 1/2 JAN-MAR MON,WED,7")
@example("0 0 LW,15 * 1/2")
@example("0 0 L * SUN-TUE,FRI#1")
def test_fields_mean_what_cronsim_reads(text: str) -> None:
    ours, other = _or_none(lambda: read(text)), _or_none(lambda: CronSim(text, datetime(2026, 1, 1, tzinfo=UTC)))
    if ours is None:
        assert other is None or next(other, None) is None
        assert refusal(text).reason_code == "never_fires"
        return
    assert other is not None
    assert set(ours.minute.values) == other.minutes
    assert set(ours.hour.values) == other.hours
    assert set(ours.month.values) == other.months
    for day in range(20_000, 20_000 + 1500):
        date = datetime.fromtimestamp(day * 86_400, UTC).date()
        both = date.month in other.months and other.match_day(date)
        assert ours.days.matches(day) == both, (text, date)


@given(EXPRESSIONS)
@example("0 22-2 * * FRI-MON")
@example("H H(0-7) * * H")
@example("0 0 ? * MON-FRI")
def test_plain_form_means_the_same(text: str) -> None:
    with suppress(DefinitionError):
        expression = read(text)
        again = read(expression.plain)
        for name in ("second", "minute", "hour", "month", "weekday", "day"):
            before, after = getattr(expression, name), getattr(again, name)
            assert (before.values, before.nth_weekdays, before.last_day, before.last_weekday) == (
                after.values,
                after.nth_weekdays,
                after.last_day,
                after.last_weekday,
            )
        CronSim(expression.plain, datetime(2026, 1, 1, tzinfo=UTC))


@given(st.text(max_size=40) | st.from_regex(r"[-*/,0-9A-Z#?LH() ]{1,30}", fullmatch=True))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(DefinitionError):  # and nothing else
        read(text)


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("0 0 * * 7", "weekday", (0,)),
        ("0 0 * * 0", "weekday", (0,)),
        ("0 0 * * SUN", "weekday", (0,)),
        ("0 0 * * 5-7", "weekday", (0, 5, 6)),
        ("0 0 * * fri-sun", "weekday", (0, 5, 6)),
        ("0 0 * * FRI-MON", "weekday", (0, 1, 5, 6)),
        ("0 0 * * 7-2", "weekday", (0, 1, 2)),
        ("0 0 * * MON-SUN", "weekday", (0, 1, 2, 3, 4, 5, 6)),
        ("0 22-2 * * *", "hour", (0, 1, 2, 22, 23)),
        ("0 22-4/2 * * *", "hour", (0, 2, 4, 22)),
        ("0 21-3/2 * * *", "hour", (1, 3, 21, 23)),
        ("0 0 29-2 * *", "day", (1, 2, 29, 30, 31)),
        ("0 0 1 NOV-feb *", "month", (1, 2, 11, 12)),
        ("*/35 * * * *", "minute", (0, 35)),
        ("5/20 * * * *", "minute", (5, 25, 45)),
        ("5-5/20 * * * *", "minute", (5,)),
        ("10-30/10,50 * * * *", "minute", (10, 20, 30, 50)),
        ("*/15 0 0 1 1 *", "second", (0, 15, 30, 45)),
        ("0 12 ? * *", "day", tuple(range(1, 32))),
    ],
)
def test_field_values(text: str, field: str, values: tuple[int, ...]) -> None:
    assert getattr(read(text), field).values == values


def test_blanks_and_tabs_between_fields_do_not_matter() -> None:
    assert read("  0 \t 2 * * * \t").plain == "0 2 * * *"


@pytest.mark.parametrize("macro", MACROS)
def test_macros_stand_for_their_five_fields(macro: str) -> None:
    assert read(macro.upper()).plain == MACROS[macro]
    assert read(macro).macro == macro


@pytest.mark.parametrize(
    ("text", "is_fixed"),
    [
        ("30 2 * * *", True),
        ("0-59 2 * * *", True),
        ("0 */2 * * *", False),
        ("*/5 2 * * *", False),
        ("*,5 2 * * *", False),
        ("0 * * * *", False),
        ("0 30 2 * * *", False),
        ("H H * * *", True),
        ("H * * * *", False),
        ("@daily", True),
        ("@hourly", False),
    ],
)
def test_fixed_time_is_told_by_the_stars(text: str, is_fixed: bool) -> None:
    assert read(text).is_fixed_time == is_fixed


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("60 * * * *", "minute field: '60'"),
        ("0 24 * * *", "hour field: '24'"),
        ("0 0 0 * *", "day-of-month field: '0'"),
        ("0 0 32 * *", "day-of-month field: '32'"),
        ("0 0 * 13 *", "month field: '13'"),
        ("0 0 * 0 *", "month field: '0'"),
        ("0 0 * * 8", "day-of-week field: '8'"),
        ("60 0 0 * * *", "second field: '60'"),
        ("1,2,x,4 * * * *", "minute field: 'X'"),
        ("*/0 * * * *", "minute field: '*/0'"),
        ("*/-5 * * * *", "minute field: '*/-5'"),
        ("*/1.5 * * * *", "minute field: '*/1.5'"),
        ("*/ * * * *", "minute field: '*/'"),
        ("1/2/3 * * * *", "minute field: '1/2/3'"),
        ("1-2-3 * * * *", "minute field: '1-2-3'"),
        ("-5 * * * *", "minute field: '-5'"),
        ("5- * * * *", "minute field: '5-'"),
        ("*-5 * * * *", "minute field: '*-5'"),
        ("** * * * *", "minute field: '**'"),
        ("+5 * * * *", "minute field: '+5'"),
        ("1_0 * * * *", "minute field: '1_0'"),
        ("5-1 * * * *", "minute field: '5-1'"),
        ("50-10 0 0 * * *", "second field: '50-10'"),
        ("1,,2 * * * *", "minute field: '1,,2'"),
        (",1 * * * *", "minute field: ',1'"),
        ("? * * * *", "minute field: '?'"),
        ("0 0 ?,1 * *", "day-of-month field: '?,1'"),
        ("L * * * *", "minute field: 'L'"),
        ("0 0 L-3 * *", "day-of-month field: 'L-3'"),
        ("0 0 L/2 * *", "day-of-month field: 'L/2'"),
        ("0 0 15W * *", "nearest weekday"),
        ("0 0 * * L", "day-of-week field: 'L'"),
        ("0 0 * * 8L", "day-of-week field: '8L'"),
        ("0 0 * * MON#0", "day-of-week field: 'MON#0'"),
        ("0 0 * * MON#6", "day-of-week field: 'MON#6'"),
        ("0 0 * * 1#1#1", "day-of-week field: '1#1#1'"),
        ("0 0 * * MONDAY", "day-of-week field: 'MONDAY'"),
        ("0 0 * MON *", "month field: 'MON'"),
        ("0 0 * * JAN", "day-of-week field: 'JAN'"),
        ("H(0-70) * * * *", "minute field: 'H(0-70)'"),
        ("H(7-0) * * * *", "minute field: 'H(7-0)'"),
        ("H/0 * * * *", "minute field: 'H/0'"),
        ("H5 * * * *", "minute field: 'H5'"),
        ("99999999999 * * * *", "minute field: '99999999999'"),
    ],
)
def test_refusal_names_the_field_and_the_part(text: str, named: str) -> None:
    error = refusal(text)
    assert error.reason_code == "cron_invalid"
    assert named in error.detail


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found 0 fields"),
        ("*", "found 1 field,"),
        ("* * * *", "found 4 fields"),
        ("0 0 12 * * ? 2027", "found 7 fields; that would need"),
        ("* * * * * * * *", "found 8 fields"),
        ("@every 5m", "@every"),
        ("@reboot", "@reboot"),
        ("@fortnightly", "not a macro"),
        ("@daily 5", "not a macro"),
        ("@", "not a macro"),
        ("0 2 * * *\n* * * * *", "more than one line"),
        ("0 2 * * *\r", "more than one line"),
        ("0 2 * * *\n", "more than one line"),
        ("0\u00a02 * * *", "contains"),
        ("0\v2 * * *", "contains"),
        ("0 2 * * *\0", "contains"),
        ("٣ * * * *", "contains"),
        ("0 0 * * ſun", "contains"),
        ("CRON_TZ=Europe/Berlin 0 9 * * *", "time zone"),
        ("TZ=UTC 0 9 * * *", "time zone"),
        ("* " * 5000, "10000 characters"),
        ("1," * 200 + "1 * * * *", "characters"),
        (None, "not text"),
        (5, "not text"),
        (b"* * * * *", "not text"),
    ],
)
def test_refusal_says_what_was_found(text: object, said: str) -> None:
    error = refusal(text)
    assert error.reason_code == "cron_invalid"
    assert said in error.detail


def test_longest_sensible_expression_is_read() -> None:
    text = ",".join(str(minute) for minute in range(60)) + " * * * *"
    assert len(text) < LONGEST_EXPRESSION
    assert read(text).minute.values == tuple(range(60))


@pytest.mark.parametrize(
    "text",
    [
        "0 0 30 2 *",
        "0 0 30,31 2 *",
        "0 0 31 4 *",
        "0 0 31 2,4,6 *",
        "0 0 31 4,6,9,11 *",
        "0 0 30 2 ?",
        "0 0 30 2 */2",
        "0 0 0 31 4 *",
        "0 0 */29 2 1#2",  # the 1st and 30th are no second Monday
    ],
)
def test_expression_that_matches_no_day_is_refused(text: str) -> None:
    assert refusal(text).reason_code == "never_fires"


@pytest.mark.parametrize("text", ["H H * * *", "H/15 * * * *", "H(0-7) 3 * * *", "0 0 H * *", "0 0 1 H *", "0 0 * * H"])
def test_spread_depends_on_the_job_and_on_nothing_else(text: str) -> None:
    assert depends_on_job(text)
    assert read(text, job_id=7).plain == read(text, job_id=7).plain
    assert len({read(text, job_id=job_id).plain for job_id in range(200)}) > 4
    assert read(text, job_id=None).plain


@pytest.mark.parametrize("text", ["0 0 * * THU", "0 0 * MAR THU#2", "@hourly", "* * * * *"])
def test_expression_without_spread_is_the_same_for_all_jobs(text: str) -> None:
    assert not depends_on_job(text)
    assert read(text, job_id=1) == read(text, job_id=2)


def test_spread_stays_in_its_bounds_and_fills_them() -> None:
    jobs = range(2000)
    assert {read("H(0-7) * * * *", job_id=job).minute.values for job in jobs} == {(minute,) for minute in range(8)}
    assert {read("0 0 H * *", job_id=job).day.values for job in jobs} == {(day,) for day in range(1, 29)}
    assert {read("0 0 * * H", job_id=job).weekday.values for job in jobs} == {(day,) for day in range(7)}
    for job in jobs:
        minutes = read("H/15 * * * *", job_id=job).minute.values
        assert len(minutes) == 4
        assert {minute % 15 for minute in minutes} == {minutes[0]}


def test_spread_of_minute_and_hour_are_independent() -> None:
    pairs = {
        (read("H H * * *", job_id=job).minute.values, read("H H * * *", job_id=job).hour.values) for job in range(999)
    }
    assert len(pairs) > 600


def test_field_names_in_refusals_are_those_of_the_manual() -> None:
    for index, name in enumerate(FIELD_NAMES):
        parts = ["0", "0", "0", "1", "1", "1"]
        parts[index] = "99"
        assert re.match(rf"{name} field: '99'", refusal(" ".join(parts)).detail)
