"""The preview: words, next instants, and what changes of the clock do to them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from tests.domain.cron_oracle import EXPRESSIONS, near_changes

from onbeat.domain.cron import parse_cron
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import format_instant, parse_instant
from onbeat.domain.model import AtSchedule, CronSchedule, EverySchedule, Schedule
from onbeat.domain.preview import Preview, preview
from onbeat.domain.timetable import compile_timetable
from onbeat.domain.words import describe_schedule, explain
from onbeat.domain.zones import TZDATA_VERSION


def show(*schedules: Schedule, after: str, count: int = 3, job_id: int | None = 1) -> Preview:
    return preview(schedules, job_id=job_id, after=parse_instant(after, field="after"), count=count)


def notes_of(text: str, *, job_id: int | None = 1) -> str:
    return " ".join(describe_schedule(CronSchedule(text), job_id=job_id).notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 9 * * 1-5", "At 09:00 on Monday through Friday"),
        ("*/10 * * * * *", "Every 10th second of every minute"),
        ("@daily", "At 00:00 every day"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
        ("0 0 13 * 5", "At 00:00 on the 13th day of month or on Friday"),
        ("0 0 22 * *", "At 00:00 on the 22nd day of every month"),
        ("0 0 1,21,23 * *", "At 00:00 on the first, the 21st, and the 23rd day of month"),
        ("0 0 11-13 * *", "At 00:00 on every day of month from 11 through 13"),
        ("0 0 * * FRI-MON", "At 00:00 on Friday, Saturday, Sunday, and Monday"),
        ("0 0 ? * 5#2", "At 00:00 on the second Friday of the month"),
    ],
)
def test_cron_is_put_in_words(text: str, words: str) -> None:
    assert explain(parse_cron(text, job_id=1)) == words


@given(EXPRESSIONS)
def test_every_expression_has_words(text: str) -> None:
    with suppress(DefinitionError):
        assert explain(parse_cron(text, job_id=1))[0].isupper()


def test_intervals_and_one_shots_are_put_in_words() -> None:
    anchor = parse_instant("2026-01-01T00:00:00Z", field="anchor")
    every = describe_schedule(EverySchedule(5400, anchor), job_id=1)
    assert every.text == "Every 1h30m, counted from 2026-01-01T00:00:00Z"
    assert "elapsed time" in every.notes[0]
    assert describe_schedule(AtSchedule(anchor), job_id=1).text == "Once, at 2026-01-01T00:00:00Z"


def test_notes_say_what_is_easily_misread() -> None:
    assert "either of them" in notes_of("0 0 13 * 5")
    assert "both" in notes_of("0 0 */2 * 5")
    assert "first one is seconds" in notes_of("0 30 2 * * *")
    assert "stands for '0 0 * * *'" in notes_of("@daily")
    assert "only minute 0 matches" in notes_of("*/90 * * * *")
    assert "starts again with each hour" in notes_of("*/35 * * * *")
    assert notes_of("*/15 9 * * 1-5") == ""


def test_spread_is_shown_as_it_is_resolved() -> None:
    resolved = parse_cron("H H(0-7) * * *", job_id=5).plain
    assert resolved in notes_of("H H(0-7) * * *", job_id=5)
    assert "example" in notes_of("H H(0-7) * * *", job_id=None)


def test_instants_are_shown_in_the_time_of_each_zone() -> None:
    shown = show(
        CronSchedule("0 9 * * *", "Europe/Berlin"),
        CronSchedule("0 9 * * *", "Asia/Kolkata"),
        after="2026-05-01T00:00:00Z",
        count=2,
    )
    assert shown.timezones == ("Europe/Berlin", "Asia/Kolkata")
    assert [instant.local for instant in shown.instants] == [
        ("Fri 2026-05-01 05:30 +0200", "Fri 2026-05-01 09:00 +0530"),
        ("Fri 2026-05-01 09:00 +0200", "Fri 2026-05-01 12:30 +0530"),
    ]
    assert shown.tzdata_version == TZDATA_VERSION


def test_schedules_without_a_wall_clock_are_shown_in_utc() -> None:
    shown = show(EverySchedule(3600, 0), after="2026-05-01T00:00:00Z", count=1)
    assert shown.timezones == ("UTC",)
    assert shown.instants[0].local == ("Fri 2026-05-01 01:00 +0000",)
    assert shown.notes == ()


def test_instant_moved_out_of_a_gap_says_so() -> None:
    shown = show(CronSchedule("30 2 * * *", "America/New_York"), after="2025-03-08T12:00:00Z")
    assert shown.instants[0].local == ("Sun 2025-03-09 03:00 -0400",)
    assert "Sun 2025-03-09 02:30 does not exist" in shown.instants[0].notes[0]
    assert [instant.notes for instant in shown.instants[1:]] == [(), ()]
    assert "2025-03-09T07:00:00Z the clock goes forward by 1h" in shown.notes[0]
    assert "fires once, at Sun 2025-03-09 03:00 -0400" in shown.notes[0]


def test_local_time_that_comes_twice_says_which_pass_it_is() -> None:
    fixed = show(CronSchedule("30 1 * * *", "America/New_York"), after="2025-11-01T12:00:00Z", count=1)
    assert "fires the first time only" in fixed.instants[0].notes[0]
    assert "comes twice; it fires the first time only" in fixed.notes[0]
    wildcard = show(CronSchedule("*/30 * * * *", "America/New_York"), after="2025-11-02T05:00:00Z", count=4)
    passes = ["first" if "first" in note else "second" for instant in wildcard.instants for note in instant.notes]
    assert passes == ["first", "second", "second"]
    assert "fires in both passes" in wildcard.notes[0]


def test_next_change_is_told_even_where_a_later_one_matters() -> None:
    shown = show(CronSchedule("30 1 * * *", "America/New_York"), after="2025-03-01T00:00:00Z", count=1)
    assert len(shown.notes) == 2
    assert "keeps its local times" in shown.notes[0]
    assert "2025-11-02T06:00:00Z" in shown.notes[1]


def test_zone_without_changes_has_no_notes() -> None:
    assert show(CronSchedule("30 1 * * *", "Asia/Tokyo"), after="2025-03-01T00:00:00Z").notes == ()


def test_preview_ends_where_the_instants_end() -> None:
    at = parse_instant("2026-05-01T00:00:00Z", field="at")
    assert len(show(AtSchedule(at), after="2026-01-01T00:00:00Z", count=5).instants) == 1
    assert show(AtSchedule(at), after="2027-01-01T00:00:00Z", count=5).instants == ()


def test_preview_refuses_what_cannot_be_honoured() -> None:
    with pytest.raises(DefinitionError) as refusal:
        show(CronSchedule("0 0 30 2 *"), after="2026-01-01T00:00:00Z")
    assert refusal.value.field == "schedules[0].cron"


@given(near_changes(), EXPRESSIONS)
def test_preview_shows_what_the_dispatcher_will_do(moment: tuple[str, int], expression: str) -> None:
    timezone, second = moment
    schedules = (CronSchedule(expression, timezone),)
    after = format_instant(second * 1_000_000)
    with suppress(DefinitionError):
        instant: int | None = second * 1_000_000
        for shown in show(*schedules, after=after, count=5).instants:
            assert instant is not None
            instant = compile_timetable(schedules, job_id=1).next_after(instant)
            assert shown.at == instant
