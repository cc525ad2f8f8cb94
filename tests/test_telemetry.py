"""What is counted, as Prometheus reads it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from onbeat.domain.ids import RunKey
from onbeat.domain.model import QueueTarget
from onbeat.domain.states import Trigger
from onbeat.services.assignment import Assignment
from onbeat.telemetry import LAG_BUCKETS, Lengths, Metrics

AT = 1_800_000_000_000_000


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(lengths=st.lists(st.sampled_from([*LAG_BUCKETS, 0.0, 0.0049, 7.0, 1e6]) | st.floats(0, 1e4), max_size=30))
def test_lengths_are_counted_as_the_library_counts_them(lengths: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counted = Lengths("lag_seconds", "Lag", buckets=LAG_BUCKETS, registry=ours)
    compared = Histogram("lag_seconds", "Lag", buckets=LAG_BUCKETS, registry=theirs)
    for length in lengths:
        counted.observe(length)
        compared.observe(length)
    assert samples(ours) == pytest.approx(samples(theirs))


def assignment(*, attempt: int = 1, trigger: Trigger = Trigger.SCHEDULE, starts_at: int | None = None) -> Assignment:
    return Assignment(
        key=RunKey(1, AT), token=random.randbytes(16), attempt=attempt, trigger=trigger, job_name="job", job_key=None,
        job_version=1, namespace="default", target=QueueTarget("q"), timeout_s=1, at_most_once=False, payload=None,
        queue="q", lease_until=AT, granted_at=AT, deadline_at=None, late_after=AT, secrets=(), connect_timeout_s=None,
        callback_url=None, granted_boottime=0, starts_at=starts_at,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("begun", "lag_us"),
    [
        (assignment(), 2_000_000),
        (assignment(trigger=Trigger.MANUAL), 2_000_000),
        (assignment(starts_at=AT + 1_500_000), 500_000),
        (assignment(starts_at=AT + 3_000_000), 0),
        (assignment(attempt=2), None),
        (assignment(trigger=Trigger.CATCH_UP), None),
        (assignment(trigger=Trigger.BACKFILL), None),
    ],
)
def test_start_lag_counts_from_when_a_run_was_to_start_and_leaves_out_what_is_late_on_purpose(
    begun: Assignment, lag_us: int | None
) -> None:
    metrics = Metrics()
    found = begun.start_lag_us(now=AT + 2_000_000)
    metrics.observe_start(found)
    assert found == lag_us
    assert samples(metrics.registry)["onbeat_start_lag_seconds_count", ""] == (lag_us is not None)
    assert samples(metrics.registry)["onbeat_start_lag_seconds_sum", ""] == (lag_us or 0) / 1e6
