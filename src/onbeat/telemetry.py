"""Metrics and logs. Names stand in docs/operations.md; the number to page on is `onbeat_dispatch_lag_seconds`."""

from __future__ import annotations

import logging
import sys
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.store.values import Finished, FinishResult, FiredBatch

LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
DURATION_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)


class Lengths(Collector):
    """A histogram of lengths in seconds, counted on the event loop alone. The library's own takes two locks for each,
    and looks at one bucket after the other.
    """

    def __init__(self, name: str, documentation: str, *, buckets: Sequence[float], registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(map(float, buckets))
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, length_s: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, length_s)] += 1
        self._sum += length_s

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See Collector."""
        bounds = [*map(str, self._bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


class Counts(Collector):
    """A counter with one label, counted on the event loop alone: without the lock of the library's own."""

    def __init__(
        self, name: str, documentation: str, *, label: str, values: Iterable[str], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._counts = dict.fromkeys(values, 0)
        registry.register(self)

    def count(self, value: str) -> None:
        """Count one."""
        self._counts[value] += 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        """See Collector."""
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, count in self._counts.items():
            family.add_metric([value], count)
        yield family


class Metrics:
    """Everything that this process counts. No label is ever a job's name: their number is not bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.dispatch_lag = Gauge(
            "onbeat_dispatch_lag_seconds",
            "Age of the oldest fire that is due and not yet recorded",
            registry=self.registry,
        )
        self.fires = Counter(
            "onbeat_fires_total", "Fires recorded, by what became of them", ["result"], registry=self.registry
        )
        self.fires_swept = Counter(
            "onbeat_fires_swept_total",
            "Fires recorded in place of another node that did not come to it",
            registry=self.registry,
        )
        self.start_lag = Lengths(
            "onbeat_start_lag_seconds",
            "From the moment at which a run was to start to its first attempt",
            buckets=LAG_BUCKETS,
            registry=self.registry,
        )
        self.attempt_duration = Lengths(
            "onbeat_attempt_duration_seconds", "Length of an attempt", buckets=DURATION_BUCKETS, registry=self.registry
        )
        self.attempts = Counts(
            "onbeat_attempts_total", "Attempts ended, by outcome", label="outcome", values=OutcomeKind,
            registry=self.registry,
        )  # fmt: skip
        self.fence_rejections = Counter(
            "onbeat_fence_rejections_total", "Finishes of stale workers that were refused", registry=self.registry
        )
        self.leases_expired = Counter(
            "onbeat_leases_expired_total", "Runs taken back from silent workers", registry=self.registry
        )
        self.runs_ended = Counter(
            "onbeat_runs_ended_total", "Runs that an attempt ended, by state", ["state"], registry=self.registry
        )
        self.jobs_paused = Counter(
            "onbeat_jobs_paused_total",
            "Jobs that the end of a run paused: by auto_pause, or by 410 Gone",
            registry=self.registry,
        )
        self.overdue = Gauge("onbeat_runs_overdue", "Runs that go on beyond their max_run_time", registry=self.registry)
        self.clock_skew = Gauge(
            "onbeat_clock_skew_seconds",
            "How far this host's wall clock is ahead of the database's; negative: behind",
            registry=self.registry,
        )
        self.running = Gauge("onbeat_running_attempts", "Attempts in this process now", registry=self.registry)

    def observe_batch(self, batch: FiredBatch, *, now: int) -> None:
        """One dispatch transaction: what became of its fires, and how far behind the clocks are after it."""
        self._count_fires(batch)
        behind_us = 0 if batch.next_due_at is None else max(now - batch.next_due_at, 0)
        self.dispatch_lag.set(behind_us / 1e6)

    def observe_sweep(self, batch: FiredBatch) -> None:
        """The same for fires in slots of another node; how far behind that one is, is its own figure."""
        self._count_fires(batch)
        self.fires_swept.inc(batch.runs + batch.marks)

    def observe_start(self, lag_us: int | None) -> None:
        """An attempt began in this process, so much later than its run was to start; None: it is not counted."""
        if lag_us is not None:
            self.start_lag.observe(lag_us / 1e6)

    def observe_attempt(self, outcome: Outcome) -> None:
        """An attempt ended in this process."""
        self.attempts.count(outcome.kind)
        self.attempt_duration.observe(outcome.duration_us / 1e6)

    def observe_endings(self, answers: Sequence[Finished], *, lost: bool) -> None:
        """Attempts that were reported, or taken back."""
        if lost:
            self.leases_expired.inc(len(answers))
        refused = (FinishResult.LEASE_LOST, FinishResult.RUN_TERMINAL)
        self.fence_rejections.inc(sum(answer.result in refused for answer in answers))
        self.jobs_paused.inc(sum(answer.paused_job is not None for answer in answers))
        states = Tally(answer.state for answer in answers if answer.result is FinishResult.ENDED)
        for state, count in states.items():
            if state is not None:
                self.runs_ended.labels(state=state.value).inc(count)

    def render(self) -> bytes:
        """The text format of Prometheus."""
        return generate_latest(self.registry)

    def _count_fires(self, batch: FiredBatch) -> None:
        self.fires.labels(result="run").inc(batch.runs)
        self.fires.labels(result="mark").inc(batch.marks)
        self.fires.labels(result="conflict").inc(batch.conflicts)


def configure_logging(*, level: str = "info", json_lines: bool | None = None) -> None:
    """Logs to standard error: readable on a terminal, JSON lines elsewhere."""
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    renderer: structlog.typing.Processor = (
        # Plain tracebacks: others show local variables, and with them URLs and keys.
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if as_json else structlog.processors.StackInfoRenderer(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
