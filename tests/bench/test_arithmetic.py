"""What the harness counts and compares."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench.figures import Figure, Limit, Result, at_least, at_most, latencies, percentile
from bench.idle import idle_jobs
from bench.long_runs import count_at_once
from bench.machine import filesystem_of
from bench.many_jobs import JobShape, create_jobs
from bench.markdown import Report, table_lines
from bench.rig import lag_ms
from bench.scenario import number
from bench.sink import Arrival, read_arrival
from bench.summary import Spread, summarise
from tests.support.database import look

from onbeat.domain.ids import RunKey, format_run_id
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, WebhookTarget, decode_definition
from onbeat.domain.moved_start import moved_start


@pytest.mark.parametrize(
    ("most", "count"), [(1, 1), (3_600, 3_600), (100_000, 99_981), (1_000_000, 999_970), (10_000_000, 9_999_977)]
)
def test_idle_jobs_are_as_many_as_make_every_second_alike(most: int, count: int) -> None:
    assert idle_jobs(most).count == count


def test_percentiles_are_values_that_were_measured() -> None:
    ordered = list(range(1, 101))
    assert [percentile(ordered, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 51, 100, 100]
    assert percentile([7.0], 0.5) == 7.0


def test_of_nothing_there_is_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 0.5)


def test_latencies_name_their_shares_and_bear_their_targets() -> None:
    figures = latencies("lag", [3.0, 1.0, 2.0], targets={0.99: at_most(5)}, limits={0.5: Limit("bare", 0.5)})
    assert [(figure.name, figure.value) for figure in figures] == [
        ("lag, p50", 2),
        ("lag, p99", 3),
        ("lag, longest", 3),
    ]
    assert [figure.target for figure in figures] == [None, at_most(5), None]
    assert [figure.limit for figure in figures] == [Limit("bare", 0.5), None, None]


def test_a_target_includes_its_bound() -> None:
    assert at_least(10).is_met_by(10)
    assert not at_least(10).is_met_by(9.9)
    assert at_most(10).is_met_by(10)
    assert not at_most(10).is_met_by(10.1)


def result(value: float, limit: float) -> Result:
    return Result("here", [Figure("rate", value, "per second", at_least(10), Limit("bare", limit))])


def test_runs_are_summarised_by_least_median_and_most() -> None:
    summary = summarise("x --y", [result(9, 100), result(30, 80), result(11, 90)], ["died"])
    (row,) = summary.rows
    assert (summary.runs, summary.setting, summary.failures) == (3, "here", ["died"])
    assert (row.measured, row.is_met) == (Spread(9, 11, 30), True)
    assert (row.limit_of, row.limit) == ("bare", Spread(80, 90, 100))


def test_the_median_decides_whether_a_target_is_reached() -> None:
    assert summarise("x", [result(9, 1), result(9, 1), result(99, 1)], []).rows[0].is_met is False


def test_a_figure_that_only_some_runs_have_is_kept() -> None:
    other = Result("here", [Figure("memory", 5, "MB")])
    assert [row.name for row in summarise("x", [other, result(1, 1)], []).rows] == ["memory", "rate"]


def test_a_line_that_always_failed_is_told() -> None:
    summary = summarise("x", [], ["first\nlast"])
    report = Report("quick", 1, "a", "b", {}, {}, (1, 2, 3), (4, 5, 6), [summary])
    assert "A run failed: `last`" in table_lines(report)


def test_a_report_survives_its_file_and_tells_what_was_not_reached() -> None:
    summary = summarise("x", [result(9, 20_000)], [])
    report = Report("quick", 1, "a", "b", {"cores": "2"}, {"Python": "3"}, (1, 2, 3), (4, 5, 6), [summary])
    read = msgspec.json.decode(msgspec.json.encode(report), type=Report)
    assert read == report
    line = next(line for line in table_lines(read) if line.startswith("| rate"))
    assert line == ("| rate | 9.00 | 9.00 | 9.00 | per second | ≥ 10.0, **not reached** | 20,000 (bare) |")


@pytest.mark.parametrize(("value", "shown"), [(12_345.6, "12,346"), (99.94, "99.9"), (9.876, "9.88"), (0, "0.00")])
def test_numbers_have_about_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_runs_at_once_are_those_that_began_and_have_not_ended() -> None:
    assert count_at_once([0, 1, 2], lasts_s=1.5, moments_s=[0, 1, 1.5, 2.4, 2.5, 9]) == [1, 2, 1, 2, 1, 0]


def test_the_filesystem_of_a_folder_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = f"/dev/a / ext4 rw 0 0\n/dev/b {tmp_path.resolve()} xfs rw 0 0\ntmpfs {tmp_path.resolve()}x tmpfs rw 0 0\n"
    assert filesystem_of(tmp_path / "deep", mounts) == "xfs (/dev/b)"


@pytest.mark.parametrize(
    "line",
    [b"1.5 id - 127.0.0.1\n", b"1.5 id 1970-01-01T00:00:01Z 127.0.0.1", b"1.5 id 1970-01-01T00:00:01Z\n"],
    ids=["not a fire", "not written to its end", "cut"],
)
def test_lines_of_the_receiver_that_are_no_arrival(line: bytes) -> None:
    assert read_arrival(line) is None


def test_an_arrival_knows_how_late_it_is() -> None:
    arrival = read_arrival(b"1.5 id 1970-01-01T00:00:01Z 127.0.0.2\n")
    assert arrival is not None
    assert (arrival.webhook_id, arrival.address, arrival.lag_ms) == ("id", "127.0.0.2", 500)


def test_the_lag_of_a_start_that_is_spread_counts_from_where_the_job_starts() -> None:
    key = RunKey(12_345, 1_000 * SECOND_US)
    planned = Arrival(1_001.5, format_run_id(key), 1_000.0, "127.0.0.1")
    start = moved_start(Definition((), WebhookTarget("http://x/"), spread_s=1), job_id=key.job_id).start_of(0)
    assert (lag_ms(planned, spread_s=0), lag_ms(planned, spread_s=1)) == (1_500, 1_500 - start / 1e3)
    assert 0 < start < SECOND_US


@pytest.mark.parametrize("first_at", [None, 1_000_000_003 * SECOND_US])
def test_many_jobs_are_due_evenly_and_where_their_schedules_say(either_database: str, first_at: int | None) -> None:
    data = either_database
    shape = JobShape(60, 20, "http://127.0.0.1:9/x", addresses=3)
    began_at = create_jobs(data, shape, first_at=first_at)
    assert first_at is None or began_at == first_at
    due = look(data, "SELECT next_fire_at, count(*) FROM clocks GROUP BY 1 ORDER BY 1")
    assert due == [(began_at + second * SECOND_US, 20) for second in range(3)]
    rows = look(data, "SELECT definition, next_fire_at, job_id % 256 = jobs.slot FROM jobs JOIN clocks USING (job_id)")
    assert len(rows) == 60
    hosts = set()
    for stored, next_fire_at, is_in_its_slot in rows:
        definition = decode_definition(stored)
        (schedule,) = definition.schedules
        assert isinstance(schedule, EverySchedule)
        assert (next_fire_at - schedule.anchor_at) % (3 * SECOND_US) == 0
        assert is_in_its_slot
        assert isinstance(definition.target, WebhookTarget)
        hosts.add(definition.target.url)
    assert hosts == {f"http://127.0.0.{number}:9/x" for number in (1, 2, 3)}


@pytest.mark.parametrize("shape", [(61, 20), (20_000_000, 20)])
def test_shapes_that_cannot_be_even_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="multiple"):
        JobShape(*shape, "http://127.0.0.1:9/x")
