"""From options to request bodies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Call

from onbeat.cli import job_bodies
from onbeat.cli.job_files import BATCH, LARGEST_BATCH, batches, read_jobs
from onbeat.domain.errors import RequestError


def test_new_url_takes_the_queue_away_and_a_body_the_payload() -> None:
    assert job_bodies.with_exclusions({"url": "https://example.com/"}) == {
        "queue": None,
        "url": "https://example.com/",
    }
    assert job_bodies.with_exclusions({"body": "x"}) == {"payload": None, "body": "x"}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--every", "5m"),
        ("--url", "https://example.com/"),
        ("--every", "5m", "--queue", "mail", "--url", "https://example.com/"),
        ("--every", "5m", "--url", "https://example.com/", "--payload", "{"),
        ("--every", "5m", "--url", "https://example.com/", "--payload", "1", "--body", "x"),
        ("--every", "5m", "--url", "https://example.com/", "--header", "nothing"),
        ("--every", "5m", "--url", "https://example.com/", "--tz", "UTC"),
        ("--rrule", "FREQ=DAILY", "--url", "https://example.com/"),
        ("--every", "5m", "--dtstart", "2027-01-01T09:00", "--url", "https://example.com/"),
        ("--every", "5m", "--url", "https://example.com/", "--grace", "soon"),
    ],
)
def test_bad_input_is_found_before_anything_is_sent(call: Call, options: tuple[str, ...]) -> None:
    shown = call("jobs", "create", *options, "--server", "http://127.0.0.1:9")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")


def test_update_without_a_change_is_refused(call: Call) -> None:
    assert call("jobs", "update", "hello").code == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "{",
        "[]",
        '{"name": "a"}\nnothing\n',
        '{"name": NaN}',
        '{"name": 1e400}',
        '{"name": "a", "name": "b"}',
        '{"name": "\\ud800"}',
        '{"name": ' + "[" * 63 + "]" * 63 + "}",
        '{"name": ' + "[" * 50_000 + "]" * 50_000 + "}",
    ],
)
def test_file_of_jobs_is_read_whole_before_anything_is_sent(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(text)
    with pytest.raises(RequestError):
        read_jobs(path)


def test_file_of_jobs_may_be_written_on_any_system(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_bytes('\ufeff{"name": "a\u2028b\x85c"}\r\n\r\n{"name": "d"}'.encode())
    assert read_jobs(path) == [{"name": "a\u2028b\x85c"}, {"name": "d"}]


def test_large_jobs_of_a_file_travel_in_several_calls() -> None:
    large = {"name": "x" * (LARGEST_BATCH // 3)}
    jobs = [large] * 5 + [{"name": "y"}] * (BATCH + 1)
    calls = list(batches(jobs))
    assert [len(call) for call in calls] == [2, 2, BATCH, 2]
    assert [job for call in calls for job in call] == jobs


@pytest.mark.parametrize("payload", ["NaN", "1e400", '{"a": 1, "a": 2}', '"\\ud800"', "[" * 5_000, "\udcff"])
def test_payload_that_is_no_strict_json_is_found_before_anything_is_sent(call: Call, payload: str) -> None:
    shown = call("jobs", "trigger", "hello", "--payload", payload, "--server", "http://127.0.0.1:9")
    assert (shown.code, shown.out) == (2, "")
    assert "--payload" in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "create", "--name", "\udcff", "--every", "5m", "--queue", "q"),
        ("jobs", "list", "--tag", "\udcff"),
        ("jobs", "bulk", "pause", "--text", "\udcff"),
        ("jobs", "list", "--server", "http://\udcff/"),
    ],
)
def test_argument_that_is_no_utf_8_is_refused(call: Call, arguments: tuple[str, ...]) -> None:
    shown = call(*arguments) if "--server" in arguments else call(*arguments, "--server", "http://127.0.0.1:9")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")


def test_rules_of_recurrence_share_their_beginning() -> None:
    rules = job_bodies.schedules(
        cron=None, every=None, at=None, rrule=["FREQ=DAILY", "FREQ=WEEKLY"], dtstart="2027-01-01T09:00"
    )
    assert rules == [
        {"rrule": "FREQ=DAILY", "dtstart": "2027-01-01T09:00"},
        {"rrule": "FREQ=WEEKLY", "dtstart": "2027-01-01T09:00"},
    ]
